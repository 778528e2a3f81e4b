/**
 * A clock that stands still until it is moved by hand.
 */
import type { Clock } from "../engine/clock.js";

/** When the clock starts: the first of January 2030. */
const startMs = Date.UTC(2030, 0, 1);

/** A clock that moves only when it is told to. */
export class MovableClock implements Clock {
  #now = startMs;
  readonly #calls = new Map<object, { readonly at: number; readonly call: () => void }>();

  now(): number {
    return this.#now;
  }

  monotonic(): number {
    return this.#now - startMs;
  }

  after(delayMs: number, call: () => void): () => void {
    const handle = {};
    this.#calls.set(handle, { at: this.#now + Math.max(delayMs, 0), call });
    return () => this.#calls.delete(handle);
  }

  /** Moves time forward and makes the calls that have come due, the earliest first. */
  advance(ms: number): void {
    const until = this.#now + ms;
    for (;;) {
      const due = [...this.#calls].filter(([, { at }]) => at <= until);
      const first = due.sort(([, a], [, b]) => a.at - b.at)[0];
      if (first === undefined) break;
      const [handle, { at, call }] = first;
      this.#calls.delete(handle);
      this.#now = Math.max(this.#now, at);
      call();
    }
    this.#now = until;
  }
}
