/**
 * The trace that a job belongs to: the caller's own, that of the span which is active, or a fresh one.
 */
import { contextFrom, freshContext } from "../core/context.js";
import type { JobContext } from "../core/job.js";
import type { IdSource } from "./ids.js";

/** The trace of the code that runs now, or `null` when it runs in none. */
export type ActiveTrace = () => {
  readonly traceparent: string;
  readonly tracestate?: string;
} | null;

/** Nothing is traced. */
export const noTrace: ActiveTrace = () => null;

/** The context of a new job. Without a request of its own, the job is its request. */
export function contextOf(
  jobId: string,
  given: Partial<JobContext> | undefined,
  activeTrace: ActiveTrace,
  ids: IdSource,
): JobContext | null {
  const requestId = given?.requestId ?? jobId;
  const trace =
    given?.traceparent === undefined ? activeTrace() : { ...given, traceparent: given.traceparent };
  if (trace === null) return freshContext(requestId, ids.randomHex(24));
  return contextFrom(requestId, trace.traceparent, trace.tracestate);
}
