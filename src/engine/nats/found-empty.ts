/**
 * Consumers that were found empty. As long as hints are heard, a ticket that comes is told of, and so a claim need not ask
 * them: each ask is a round trip that whoever was started before it waits for.
 */
import type { Where } from "./news.js";

/** For how long a consumer is believed to be empty. A hint may be lost, and so it is asked again after that. */
const trustMs = 1_000;

/** What was found, and what hints have told since. */
export class FoundEmpty {
  readonly #now: () => number;
  readonly #areHintsHeard: () => boolean;
  /** When each was found empty. */
  readonly #at = new Map<string, number>();
  /** Hints that were heard, and the one that last told of each consumer, or of anything. */
  #hints = 0;
  #lastOfAny = 0;
  readonly #lastOf = new Map<string, number>();

  constructor(now: () => number, areHintsHeard: () => boolean) {
    this.#now = now;
    this.#areHintsHeard = areHintsHeard;
  }

  /** Hints told of new tickets. */
  told(where: Where): void {
    if (where === null) {
      this.#at.clear();
      this.#lastOf.clear();
      this.#lastOfAny = ++this.#hints;
      return;
    }
    if (where.size === 0) return;
    this.#hints += 1;
    for (const consumer of where) {
      // Anybody may send names; only those that were asked once count.
      if (this.#at.delete(consumer) || this.#lastOf.has(consumer))
        this.#lastOf.set(consumer, this.#hints);
    }
  }

  /** Begins to ask a consumer. Gives the way to say that it was empty, which counts unless a hint has come since. */
  ask(consumer: string): () => void {
    const asked = this.#hints;
    if (!this.#lastOf.has(consumer)) this.#lastOf.set(consumer, this.#lastOfAny);
    return () => {
      const told = Math.max(this.#lastOf.get(consumer) ?? 0, this.#lastOfAny);
      if (told <= asked) this.#at.set(consumer, this.#now());
    };
  }

  /** Whether a consumer was found empty a moment ago, and no hint has told of it since. */
  has(consumer: string): boolean {
    if (!this.#areHintsHeard()) return false;
    const at = this.#at.get(consumer);
    const now = this.#now();
    // A clock that has gone back must not make it believed for longer.
    return at !== undefined && at <= now && now < at + trustMs;
  }
}
