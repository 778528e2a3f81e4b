/**
 * How many events go out one by one, and from when on they go as one batch. A server needs milliseconds for an atomic
 * batch, however small, and for a message in it no less than for one alone, unless it brings each of those to the disk by
 * itself. What it does cannot be asked, and so it is measured.
 */

/** What is believed before anything was measured, in milliseconds. */
const aloneFirstMs = 0.05;
const batchFirstMs = 4;

/** Where messages alone are stored faster than this, nothing is brought to the disk for each, and a batch never pays. */
const quickMs = 0.12;

/** How much the newest measurement of a batch counts. */
const newestShare = 0.5;

/**
 * Of so many stretches of messages the quickest counts: whatever else this machine does makes a stretch slower, but
 * nothing makes a disk faster.
 */
const stretchesKept = 8;

/** What a message costs in a batch, of what it costs alone, once the batch itself is paid for. */
const batchedShare = 1 / 3;

/** Whatever is not measured seems a little cheaper each time, so that it is tried again. */
const fading = 0.98;

/** After so many messages their pace is taken, also if more are on their way. */
const stretchMax = 200;

/** The most messages that are on their way one by one, and where that is quick: what waits too long for its answer is taken for lost. */
const underWayMax = 500;
const underWayQuickMax = 4_000;

/** How long anything takes at least: clocks of tests may stand still. */
const leastMs = 0.001;

export class Pace {
  readonly #monotonic: () => number;
  readonly #takesBatches: boolean;
  /** What a message alone took in the last stretches. */
  #stretches: readonly number[] = [];
  #aloneMs = aloneFirstMs;
  #batchMs = batchFirstMs;
  /** How many messages are on their way one by one. */
  #underWay = 0;
  /** When the first of them was sent, or the last stretch ended, and how many were stored since. */
  #since = 0;
  #stored = 0;

  /** A server that takes no batches is sent everything one by one. */
  constructor(monotonic: () => number, takesBatches = true) {
    this.#monotonic = monotonic;
    this.#takesBatches = takesBatches;
  }

  /** Whether so many more messages are there one by one no later than as a batch. */
  goesAlone(count: number): boolean {
    if (this.#takesBatches && this.#aloneMs < quickMs)
      return this.#underWay + count <= underWayQuickMax;
    const worthwhile = this.#batchMs / (this.#aloneMs * (1 - batchedShare));
    const aloneMax = this.#takesBatches
      ? Math.min(Math.max(worthwhile, 1), underWayMax)
      : underWayMax;
    return this.#underWay + count <= aloneMax;
  }

  /** Sends messages that go one by one, all at once. */
  alone<Value>(count: number, send: () => Promise<Value>): Promise<Value> {
    if (this.#underWay === 0) this.#begin();
    this.#underWay += count;
    const sent = send();
    const answered = () => {
      this.#underWay -= count;
      this.#stored += count;
      if (this.#underWay === 0 || this.#stored >= stretchMax) this.#measure();
    };
    sent.then(answered, answered);
    return sent;
  }

  /** Takes the pace of a stretch. A message that nobody was beside tells how far the server is, and no more. */
  #measure(): void {
    if (this.#stored > 1) {
      const tookMs = Math.max((this.#monotonic() - this.#since) / this.#stored, leastMs);
      this.#stretches = [...this.#stretches.slice(1 - stretchesKept), tookMs];
      this.#aloneMs = Math.min(...this.#stretches);
      this.#batchMs *= fading;
    }
    this.#begin();
  }

  /** Sends a batch. */
  async together<Value>(size: number, send: () => Promise<Value>): Promise<Value> {
    const sentAt = this.#monotonic();
    const value = await send();
    const elapsedMs = this.#monotonic() - sentAt;
    this.#batchMs = mixed(this.#batchMs, elapsedMs - size * this.#aloneMs * batchedShare);
    this.#aloneMs *= fading;
    return value;
  }

  #begin(): void {
    this.#since = this.#monotonic();
    this.#stored = 0;
  }
}

function mixed(before: number, newest: number): number {
  return before + newestShare * (Math.max(newest, leastMs) - before);
}
