/**
 * A clock that stands still until a test moves it. Timers fire in the order of their times,
 * and what they set in motion gets its turns before the next one fires.
 */
import type { Clock } from "../engine/clock.js";

/** Where a fake clock starts unless it is told otherwise: 2030-01-01T00:00:00Z. */
export const fakeStart = Date.UTC(2030, 0, 1);

/** How many turns of the event loop pass between two timers, for promises and messages to arrive. */
const turnsPerStep = 5;

/** The most timers that one `advance` fires; more of them are a loop that never ends. */
const timersMax = 1_000_000;

interface Timer {
  readonly at: number;
  readonly order: number;
  readonly call: () => void;
}

/** A clock that a test moves by hand. */
export class FakeClock implements Clock {
  readonly #start: number;
  readonly #rest: () => Promise<void>;
  readonly #timers = new Set<Timer>();
  #now: number;
  #order = 0;

  /** `rest` lets what a timer has set in motion come to its end: some turns of the event loop by default. */
  constructor(start: number = fakeStart, rest: () => Promise<void> = turns) {
    this.#start = start;
    this.#rest = rest;
    this.#now = start;
  }

  /** Timers fire at any time, but what a store is told is whole. */
  now(): number {
    return Math.floor(this.#now);
  }

  monotonic(): number {
    return this.#now - this.#start;
  }

  after(delayMs: number, call: () => void): () => void {
    const timer = { at: this.#now + Math.max(delayMs, 0), order: this.#order++, call };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** When the next timer fires; `null` when none is set. */
  get nextTimerAt(): number | null {
    return this.#next(Number.POSITIVE_INFINITY)?.at ?? null;
  }

  /** Moves time on and fires every timer that comes due on the way, those set meanwhile included. */
  async advance(delayMs: number): Promise<void> {
    const until = this.#now + delayMs;
    await this.#rest();
    for (let fired = 0; fired < timersMax; fired++) {
      const timer = this.#next(until);
      if (timer === null) {
        this.#now = until;
        return;
      }
      this.#timers.delete(timer);
      this.#now = Math.max(this.#now, timer.at);
      timer.call();
      await this.#rest();
    }
    throw new Error(`More than ${timersMax} timers fired within ${delayMs} ms of a fake clock.`);
  }

  /**
   * Moves time on in one leap, as a machine does that was asleep: what came due on the way fires
   * afterwards, once. A long time costs no more than a short one.
   */
  async leap(delayMs: number): Promise<void> {
    await this.#rest();
    this.#now += delayMs;
    await this.advance(0);
  }

  #next(until: number): Timer | null {
    let next: Timer | null = null;
    for (const timer of this.#timers) {
      if (timer.at > until) continue;
      if (
        next === null ||
        timer.at < next.at ||
        (timer.at === next.at && timer.order < next.order)
      ) {
        next = timer;
      }
    }
    return next;
  }
}

/** Lets pending promises and messages arrive. */
export async function turns(): Promise<void> {
  for (let turn = 0; turn < turnsPerStep; turn++) await new Promise(setImmediate);
}
