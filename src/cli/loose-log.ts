/**
 * The log of a store that cannot do two things at once. What means nothing to any reader is left out before the
 * checker sees it: notes that came after their attempt was over, and what a removal that broke off has left of a job.
 */
import type { LogChecker, Violation } from "../conformance/checker.js";
import type { JobEvent } from "../core/event.js";
import { evolve } from "../core/evolve.js";
import { transitions } from "../core/transitions.js";

/** Takes events in the order of the feed, and hands on those that mean something. */
export class LooseLog {
  readonly #checker: LogChecker;
  /** Events of jobs whose creation was not seen, until a `deleted` explains them. */
  readonly #unexplained = new Map<string, JobEvent[]>();

  constructor(checker: LogChecker) {
    this.#checker = checker;
  }

  /** Looks at the next event. */
  see(event: JobEvent): void {
    const { name, jobId } = event;
    if (name === "deleted") this.#unexplained.delete(jobId);
    const job = this.#checker.job(jobId);
    if (job === null && name !== "created" && name !== "deleted") {
      const events = this.#unexplained.get(jobId) ?? [];
      events.push(event);
      this.#unexplained.set(jobId, events);
      return;
    }
    const isLate = transitions[name].kind !== "change" && evolve(job, event).ignored !== null;
    if (!isLate) this.#checker.see(event);
  }

  /** Gives everything that was found, with what nothing has explained. */
  finish(): readonly Violation[] {
    for (const event of [...this.#unexplained.values()].flat()) this.#checker.see(event);
    return this.#checker.finish();
  }
}
