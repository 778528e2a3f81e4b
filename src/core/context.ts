/**
 * Trace context: every job has one from its creation on, inherited or made fresh.
 */
import type { JobContext } from "./job.js";

const traceparentPattern = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}$/;

/** A context from a W3C `traceparent`, or `null` when it is not one. */
export function contextFrom(
  requestId: string,
  traceparent: string,
  tracestate?: string,
): JobContext | null {
  const traceId = traceparentPattern.exec(traceparent)?.[1];
  if (traceId === undefined) return null;
  return tracestate
    ? { requestId, traceId, traceparent, tracestate }
    : { requestId, traceId, traceparent };
}

/** A fresh context from 24 random bytes, given in hexadecimal. */
export function freshContext(requestId: string, randomHex: string): JobContext {
  const traceId = randomHex.slice(0, 32);
  return { requestId, traceId, traceparent: `00-${traceId}-${randomHex.slice(32, 48)}-01` };
}
