/**
 * What a handler gets that runs in a process of its own.
 */
import type { Json } from "../../core/json.js";
import type { ActiveJob } from "../active-job.js";
import type { BlockerOutcome } from "../blockers.js";

/**
 * The job that a handler in a process of its own carries out. It is as in the worker, but for transactions: those are the
 * worker's, and `prepare` and `complete` stand beside the module in `handle`. What it says goes through the worker.
 */
export interface IsolatedJob<Payload>
  extends Omit<
    ActiveJob<Payload, never, never, { readonly [name: string]: BlockerOutcome }>,
    "prepare" | "complete" | "key" | "remainingMs"
  > {
  /** What the `prepare` of the type's handler gave in the worker. */
  readonly prepared: Json | undefined;
}
