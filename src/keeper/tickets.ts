/**
 * Tickets: while this keeper leads, a store that needs it is asked to offer jobs when their time comes.
 */
import type { Runtime } from "../client/runtime.js";

/** How long a hint waits for others to come with it, and the longest time without a look. */
const gatherMs = 20;
const lookMaxMs = 5_000;

/** Asks the store when the next job becomes due, and whenever something was put in line. */
export class Tickets {
  readonly #runtime: Runtime;
  readonly #mayGoOn: () => boolean;
  #stopHints: (() => void) | undefined;
  #callOff: (() => void) | undefined;
  /** The monotonic time of the look that is planned. */
  #plannedAt = Number.POSITIVE_INFINITY;
  #look: Promise<void> | null = null;
  #isAskedAgain = false;
  #isStopped = false;

  constructor(runtime: Runtime, mayGoOn: () => boolean) {
    this.#runtime = runtime;
    this.#mayGoOn = mayGoOn;
  }

  /** Begins to look; does nothing for a store that needs nobody for this. */
  start(): void {
    const { engine } = this.#runtime;
    if (engine.tend === undefined) return;
    this.#stopHints ??= engine.wake("ready", () => this.#plan(gatherMs));
    this.#plan(0);
  }

  /** Looks no more, and waits for the look that is under way. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#stopHints?.();
    this.#callOff?.();
    await this.#look;
  }

  /** Looks once, now. */
  async tend(): Promise<number | null> {
    const { engine, service } = this.#runtime;
    return (await engine.tend?.(service)) ?? null;
  }

  #plan(delayMs: number): void {
    if (this.#look !== null) {
      this.#isAskedAgain = true;
      return;
    }
    const at = this.#runtime.clock.monotonic() + delayMs;
    if (this.#isStopped || at >= this.#plannedAt) return;
    this.#callOff?.();
    this.#plannedAt = at;
    this.#callOff = this.#runtime.clock.after(delayMs, () => {
      this.#plannedAt = Number.POSITIVE_INFINITY;
      this.#look = this.#carryOut();
    });
  }

  async #carryOut(): Promise<void> {
    const { engine, logger } = this.#runtime;
    let delayMs = lookMaxMs;
    this.#isAskedAgain = false;
    try {
      const next = this.#mayGoOn() ? await this.tend() : null;
      if (next !== null) delayMs = Math.min(Math.max(next - engine.now(), 0), lookMaxMs);
    } catch (error) {
      logger.warn(
        { error },
        "Jobs whose time has come could not be offered; the keeper keeps trying.",
      );
    }
    this.#look = null;
    this.#plan(this.#isAskedAgain ? Math.min(delayMs, gatherMs) : delayMs);
  }
}
