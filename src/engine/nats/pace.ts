/**
 * How many events go out one by one, and from when on they go as one batch. A server needs milliseconds for an atomic
 * batch, however small, because it makes files for it; but it brings all of it to the disk at once, where it may bring
 * messages alone there one by one. What it does cannot be asked, and so it is measured.
 */

/** What is believed before anything was measured, in milliseconds. */
const aloneFirstMs = 0.05;
const batchFirstMs = 4;

/** Where messages alone are stored faster than this, nothing is brought to the disk for each, and a batch never pays. */
const quickMs = 0.12;

/**
 * Of so many stretches of messages, and of so many batches, the quickest counts: whatever else the server and this
 * machine do makes them slower, but nothing makes a disk faster.
 */
const measurementsKept = 8;

/** What a message costs in a batch, once the batch itself is paid for: nothing goes to the disk for it alone. */
const batchedMs = 0.03;

/** With each stretch of messages alone a batch seems a little cheaper, so that it is tried again. */
const fading = 0.99;

/**
 * Messages alone are tried before anything was measured, then again after twice so many batches, and ever more rarely as long
 * as batches stay cheaper. They are few: where each is brought to the disk, hundreds of them hold up everything else.
 */
const batchesBetweenTrials = { first: 16, most: 256 } as const;
const trialMessages = 32;

/** After so many messages their pace is taken, also if more are on their way. */
const stretchMax = 200;

/** The most messages that are on their way one by one, and where that is quick: what waits too long for its answer is taken for lost. */
const underWayMax = 500;
const underWayQuickMax = 4_000;

/** How long anything takes at least: clocks of tests may stand still. */
const leastMs = 0.001;

export class Pace {
  readonly #monotonic: () => number;
  readonly #takesBatches: () => boolean;
  /** What a message alone took in the last stretches, and the last batches without their messages. */
  readonly #stretches: number[] = [];
  readonly #batches: number[] = [];
  #aloneMs = aloneFirstMs;
  #batchMs = batchFirstMs;
  /** How many batches were sent since messages alone were last measured, at first as if that was long ago; and how many are to be. */
  #batchesSince: number = batchesBetweenTrials.first;
  #batchesUntil: number = batchesBetweenTrials.first;
  /** How many messages are on their way one by one. */
  #underWay = 0;
  /** When the first of them was sent, or the last stretch ended, how many were under way then, and how many were stored since. */
  #since = 0;
  #inherited = 0;
  #stored = 0;

  /** While a server takes no batches, it is sent everything one by one. */
  constructor(monotonic: () => number, takesBatches = () => true) {
    this.#monotonic = monotonic;
    this.#takesBatches = takesBatches;
  }

  /** Whether the server stores messages alone as they come, so that none of them gains by waiting for others. */
  get isQuick(): boolean {
    return this.#aloneMs < quickMs || !this.#takesBatches();
  }

  /** How many messages of a batch go one by one before it, to see how long that takes; mostly none. */
  trialOf(size: number): number {
    const isDue = this.#takesBatches() && this.#batchesSince >= this.#batchesUntil;
    return isDue ? Math.min(size, trialMessages) : 0;
  }

  /** Whether so many more messages are there one by one no later than as a batch. */
  goesAlone(count: number): boolean {
    if (this.trialOf(count) > 0) return this.#underWay + count <= trialMessages;
    if (this.#takesBatches() && this.#aloneMs < quickMs)
      return this.#underWay + count <= underWayQuickMax;
    const worthwhile = this.#batchMs / Math.max(this.#aloneMs - batchedMs, leastMs);
    const aloneMax = this.#takesBatches()
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
      const isLong = this.#stored >= Math.max(stretchMax + this.#inherited, this.#underWay);
      if (this.#underWay === 0 || isLong) this.#measure(isLong);
    };
    sent.then(answered, answered);
    return sent;
  }

  /**
   * Takes the pace of a stretch. A message that nobody was beside tells how far the server is, and no more. Answers come in
   * bunches: what was under way before a stretch may have been stored before it, and tells nothing unless more came.
   */
  #measure(isLong: boolean): void {
    if (this.#stored > 1 && (isLong || this.#inherited === 0)) {
      const tookMs = Math.max((this.#monotonic() - this.#since) / this.#stored, leastMs);
      this.#aloneMs = quickest(this.#stretches, tookMs);
      this.#planTrial();
      this.#batchMs *= fading;
    }
    this.#begin();
  }

  /** Says when messages alone are tried again: later than the last time, if that was because of a trial that showed nothing new. */
  #planTrial(): void {
    const { first, most } = batchesBetweenTrials;
    if (this.isQuick) this.#batchesUntil = first;
    else if (this.#batchesSince >= this.#batchesUntil)
      this.#batchesUntil = Math.min(this.#batchesUntil * 2, most);
    this.#batchesSince = 0;
  }

  /** Sends a batch. */
  async together<Value>(size: number, send: () => Promise<Value>): Promise<Value> {
    const sentAt = this.#monotonic();
    const value = await send();
    const elapsedMs = this.#monotonic() - sentAt;
    this.#batchMs = quickest(this.#batches, Math.max(elapsedMs - size * batchedMs, leastMs));
    this.#batchesSince += 1;
    return value;
  }

  #begin(): void {
    this.#since = this.#monotonic();
    this.#inherited = this.#underWay;
    this.#stored = 0;
  }
}

/** Adds a measurement to the last ones; gives the least of them. */
function quickest(measurements: number[], newest: number): number {
  if (measurements.push(newest) > measurementsKept) measurements.shift();
  return Math.min(...measurements);
}
