/**
 * The jobs that this process has put into an outbox. Until they are published the store does not know them, and one who
 * waits for such a job should not be told that there is none.
 */
import type { Clock } from "../engine/clock.js";

/** How long a job counts as being on its way: its transaction may have been rolled back, which nobody tells. */
const wayMaxMs = 60_000;

/** How many are remembered; the oldest are forgotten first. */
const jobsMax = 10_000;

/** Remembers jobs for as long as they may be on their way. */
export class OnItsWay {
  readonly #clock: Clock;
  /** When each was put down, the oldest first. */
  readonly #since = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A job was put down. */
  add(id: string): void {
    this.#since.delete(id);
    this.#since.set(id, this.#clock.monotonic());
    const [oldest] = this.#since.keys();
    if (this.#since.size > jobsMax && oldest !== undefined) this.#since.delete(oldest);
  }

  /** Whether a job that the store does not know may still come. */
  has(id: string): boolean {
    const since = this.#since.get(id);
    if (since === undefined) return false;
    if (this.#clock.monotonic() - since < wayMaxMs) return true;
    this.#since.delete(id);
    return false;
  }
}
