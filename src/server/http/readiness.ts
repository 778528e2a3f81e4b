/**
 * Whether the store can be used. Anybody may ask, and nobody is counted, so that the store is asked at most once at a
 * time and its answer counts for a moment.
 */
import type { Clock } from "../../engine/clock.js";
import type { Engine } from "../../engine/engine.js";

/** How long a store that is asked whether it is there may take. */
const patienceMs = 5_000;

/** How long an answer of the store counts. */
const freshMs = 1_000;

/** What is known of the store. */
export interface StoreCheck {
  readonly name: "store";
  readonly status: "ok" | "failed";
  /** Why it cannot be used. */
  readonly detail?: string;
}

/** Asks the store for everybody. */
export class Readiness {
  readonly #engine: Engine;
  readonly #clock: Clock;
  #asking: Promise<StoreCheck> | null = null;
  #known: { readonly check: StoreCheck; readonly at: number } | null = null;

  constructor(engine: Engine, clock: Clock) {
    this.#engine = engine;
    this.#clock = clock;
  }

  /** What the store says now, or said a moment ago. */
  async check(): Promise<StoreCheck> {
    if (this.#known !== null && this.#clock.monotonic() - this.#known.at < freshMs)
      return this.#known.check;
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = null;
    });
    return this.#asking;
  }

  async #ask(): Promise<StoreCheck> {
    const check = await this.#answer();
    this.#known = { check, at: this.#clock.monotonic() };
    return check;
  }

  async #answer(): Promise<StoreCheck> {
    let callOff = () => {};
    const late = new Promise<never>((_, reject) => {
      const tooLate = () => reject(new Error("The store does not answer."));
      callOff = this.#clock.after(patienceMs, tooLate);
    });
    try {
      await Promise.race([this.#engine.head(), late]);
      return { name: "store", status: "ok" };
    } catch (error) {
      const detail = error instanceof Error ? error.message : "The store cannot be used.";
      return { name: "store", status: "failed", detail };
    } finally {
      callOff();
    }
  }
}
