/**
 * What this process has stored lately, and where it lies. Any copy of a stream may answer a question, also one that is
 * behind by what was stored a moment ago; who asks for what they have stored themselves is to see it.
 */

/** For how long a copy may be behind. It answers no questions before it has caught up after a start. */
const behindMaxMs = 5_000;

/** How much of what was stored is remembered at least; as much again may be older. */
const writesMax = 20_000;

/** The newest positions that this process has written to, by name. */
export class OwnWrites {
  readonly #monotonic: () => number;
  #newer = new Map<string, number>();
  #older = new Map<string, number>();
  #turnedAt = Number.NEGATIVE_INFINITY;
  #head = 0;

  constructor(monotonic: () => number) {
    this.#monotonic = monotonic;
  }

  /** The highest position that was written to at all. */
  get head(): number {
    return this.#head;
  }

  /** Remembers that something was stored under a name. */
  stored(name: string, seq: number): void {
    this.#forget();
    this.#head = Math.max(this.#head, seq);
    this.#newer.set(name, seq);
  }

  /** Whether whoever read a name up to this position was shown less than this process has stored under it. */
  isBehind(name: string, seq: number): boolean {
    this.#forget();
    return seq < (this.#newer.get(name) ?? this.#older.get(name) ?? 0);
  }

  /** Lets go of what is so old, or so long ago, that every copy has it. */
  #forget(): void {
    const now = this.#monotonic();
    const isOver = now - this.#turnedAt > behindMaxMs;
    if (!isOver && this.#newer.size < writesMax) return;
    this.#older = now - this.#turnedAt > 2 * behindMaxMs ? new Map() : this.#newer;
    this.#newer = new Map();
    this.#turnedAt = now;
  }
}
