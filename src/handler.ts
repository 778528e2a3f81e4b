/**
 * What a handler's module needs of Millrace at run time, and nothing else: every isolated try loads its module anew, and
 * this loads in a tenth of the time of the whole package.
 *
 * @packageDocumentation
 */
export type { IsolatedHandler } from "./service/inferred.js";
export { type AbortReason, JobAborted } from "./worker/abort.js";
export type { IsolatedJob } from "./worker/isolate/isolated-job.js";
export { type HandlerOutcome, skip, snooze, terminate } from "./worker/outcome.js";
