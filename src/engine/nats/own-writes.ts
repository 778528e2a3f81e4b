/**
 * What this process has stored lately, and where it lies. Any copy of a stream may answer a question, also one that is
 * behind by what was stored a moment ago; who asks for what they have stored themselves is to see it.
 */

/** For how long a copy may be behind. It answers no questions before it has caught up after a start. */
const behindMaxMs = 5_000;

/** How much of what was stored is remembered at least; as much again may be older. */
const writesMax = 20_000;

/** What was stored in a stretch of time: the newest positions by name, and the highest of all. */
class Stretch {
  readonly positions = new Map<string, number>();
  head = 0;
}

/** The newest positions that this process has written to, by name. */
export class OwnWrites {
  readonly #monotonic: () => number;
  #newer = new Stretch();
  #older = new Stretch();
  #turnedAt = Number.NEGATIVE_INFINITY;

  constructor(monotonic: () => number) {
    this.#monotonic = monotonic;
  }

  /** The highest position that was written to lately. A stream that was made anew begins with the first one again. */
  get head(): number {
    this.#forget();
    return Math.max(this.#newer.head, this.#older.head);
  }

  /** Remembers that something was stored at a position. */
  reached(seq: number): void {
    this.#forget();
    this.#newer.head = Math.max(this.#newer.head, seq);
  }

  /** Remembers that something was stored under a name. Answers may come out of order. */
  stored(name: string, seq: number): void {
    this.reached(seq);
    const { positions } = this.#newer;
    positions.set(name, Math.max(positions.get(name) ?? 0, seq));
  }

  /** Whether whoever read a name up to this position was shown less than this process has stored under it. */
  isBehind(name: string, seq: number): boolean {
    this.#forget();
    const [newer, older] = [this.#newer.positions.get(name), this.#older.positions.get(name)];
    return seq < Math.max(newer ?? 0, older ?? 0);
  }

  /** Lets go of what is so old, or so long ago, that every copy has it. */
  #forget(): void {
    const now = this.#monotonic();
    const isOver = now - this.#turnedAt > behindMaxMs;
    if (!isOver && this.#newer.positions.size < writesMax) return;
    this.#older = now - this.#turnedAt > 2 * behindMaxMs ? new Stretch() : this.#newer;
    this.#newer = new Stretch();
    this.#turnedAt = now;
  }
}
