/**
 * Lets the next jobs of keys in that somebody else had locked when their turn came. All keys of a process are tried together, on one
 * connection and without waiting for a lock, and those that are still locked again after a pause.
 */

/** The pause before a key is tried, and the longest before it is tried again; each is twice as long as the one before. */
const pauseMinMs = 1;
const pauseMaxMs = 1_000;

/** How many keys one transaction tries, and how many are remembered. A sweep finds all others. */
const tryMax = 500;
const keysMax = 10_000;

/** When a key is tried next, by the monotonic clock: whoever has it locked is as real as the server. */
interface Turn {
  readonly at: number;
  readonly pauseMs: number;
}

export class Promoter {
  /** Tries keys, and gives those that have to be tried again. */
  readonly #tryKeys: (keys: readonly string[]) => Promise<Iterable<string>>;
  readonly #turns = new Map<string, Turn>();
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #underWay: Promise<void> | null = null;
  #isClosed = false;

  constructor(tryKeys: (keys: readonly string[]) => Promise<Iterable<string>>) {
    this.#tryKeys = tryKeys;
  }

  /** Keys that were locked. One that is known already is tried soon, too: it may have been free since. */
  add(keys: Iterable<string>): void {
    if (this.#isClosed) return;
    for (const key of keys) this.#put(key, pauseMinMs);
    this.#plan();
  }

  /** Tries once more what is left. What is still locked then is given up, and the sweep of any process finds it. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#underWay;
    const left = [...this.#turns.keys()].slice(0, tryMax);
    this.#turns.clear();
    if (left.length > 0) await this.#tryKeys(left).catch(() => {});
  }

  #put(key: string, pauseMs: number): void {
    if (this.#turns.size >= keysMax && !this.#turns.has(key)) return;
    this.#turns.set(key, { at: performance.now() + pauseMs, pauseMs });
  }

  /** Sees to it that the next turn is not missed. */
  #plan(): void {
    if (this.#isClosed || this.#underWay !== null) return;
    let next = Number.POSITIVE_INFINITY;
    for (const { at } of this.#turns.values()) next = Math.min(next, at);
    if (next >= this.#timerAt || next === Number.POSITIVE_INFINITY) return;
    clearTimeout(this.#timer);
    this.#timerAt = next;
    // A process that ends before leaves them to a sweep.
    this.#timer = setTimeout(this.#onTurn, next - performance.now()).unref();
  }

  readonly #onTurn = (): void => {
    this.#timerAt = Number.POSITIVE_INFINITY;
    this.#underWay = this.#tryDue().finally(() => {
      this.#underWay = null;
      this.#plan();
    });
  };

  async #tryDue(): Promise<void> {
    const now = performance.now();
    const due = [...this.#turns].filter(([, { at }]) => at <= now).slice(0, tryMax);
    // A timer may be a little early.
    if (due.length === 0) return;
    // One that is locked again for somebody while it is tried comes back, because the try may have been too early for that.
    for (const [key] of due) this.#turns.delete(key);
    const keys = due.map(([key]) => key);
    const left = new Set(await this.#tryKeys(keys).catch(() => keys));
    for (const [key, { pauseMs }] of due)
      if (left.has(key) && !this.#turns.has(key)) this.#put(key, Math.min(2 * pauseMs, pauseMaxMs));
  }
}
