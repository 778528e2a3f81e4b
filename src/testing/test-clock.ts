/**
 * The clock of a test service: it stands still until the test moves it, and what comes due on the
 * way happens at its own time, deadlines and lapsed leases included.
 */
import type { JobRow } from "../engine/query.js";
import type { FakeClock } from "./fake-clock.js";
import { nextChangeAt } from "./open-jobs.js";

/** What a clock needs to know of the jobs that time will change. */
export interface TimeBound {
  /** The jobs that have not ended. */
  readonly openJobs: () => Promise<readonly JobRow[]>;
  /** When a schedule fires next; `null` when none does. */
  readonly nextFiring: () => Promise<number | null>;
  /** Gives the keeper its turn. */
  readonly tend: () => Promise<void>;
}

/** The time of a test service. */
export class TestClock {
  readonly #fake: FakeClock;
  readonly #bound: TimeBound;

  constructor(fake: FakeClock, bound: TimeBound) {
    this.#fake = fake;
    this.#bound = bound;
  }

  /** The time in milliseconds since 1970. */
  now(): number {
    return this.#fake.now();
  }

  /**
   * Moves time on. What comes due meanwhile is set in motion; handlers that do real I/O may still
   * run when this resolves, so call `drain` to wait for them.
   *
   * @example
   * await test.clock.advance(60_000);
   */
  async advance(byMs: number): Promise<void> {
    if (!(Number.isFinite(byMs) && byMs >= 0)) {
      throw new RangeError(`A clock moves on by 0 or more milliseconds, not by ${byMs}.`);
    }
    const until = Math.round(this.now() + byMs);
    while (this.now() < until) {
      const open = await this.#bound.openJobs();
      const changeAt = nextChangeAt(open, this.now()) ?? until;
      const firingAt = (await this.#bound.nextFiring()) ?? until;
      const delayMs = Math.min(changeAt, firingAt, until) - this.now();
      // While no handler runs, nothing happens between two due times but idle looks at the store.
      if (open.some(({ state }) => state === "active")) await this.#fake.advance(delayMs);
      else await this.#fake.leap(delayMs);
      await this.#bound.tend();
      await this.#fake.advance(0);
    }
  }

  /** Moves time on to a later moment. */
  advanceTo(time: Date | number): Promise<void> {
    return this.advance((typeof time === "number" ? time : time.getTime()) - this.now());
  }
}
