/**
 * The trace that a job belongs to: the caller's own, the active OpenTelemetry span's, or a fresh one.
 * `@opentelemetry/api` is optional; where it is absent, asking for a span costs nothing.
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

/** Reads active spans through `@opentelemetry/api` if the process has it. */
export async function openTelemetryTrace(): Promise<ActiveTrace> {
  const api = await import("@opentelemetry/api").catch(() => null);
  if (api === null) return noTrace;
  return () => {
    const span = api.trace.getActiveSpan()?.spanContext();
    if (span === undefined || !api.isSpanContextValid(span)) return null;
    const flags = span.traceFlags.toString(16).padStart(2, "0");
    const traceparent = `00-${span.traceId}-${span.spanId}-${flags}`;
    const tracestate = span.traceState?.serialize();
    return tracestate ? { traceparent, tracestate } : { traceparent };
  };
}

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
