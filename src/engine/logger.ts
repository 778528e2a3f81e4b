/**
 * Where the runtime says what it does: an interface that pino, console and others fit.
 */
import type { Job } from "../core/job.js";

/** Takes structured lines. Fields come first, as pino has it. */
export interface Logger {
  /** What happens all the time; a logger without it is not told. */
  debug?(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** What a line about a job names: enough to find the job, the request that it belongs to, and the trace. */
export interface JobFields {
  readonly jobId: string;
  readonly service: string;
  readonly type: string;
  readonly requestId: string;
  readonly traceId: string;
}

/** The fields of a line about a job. Nothing of its payload is among them. */
export function jobFields(job: Pick<Job, "id" | "service" | "type" | "context">): JobFields {
  const { id, service, type, context } = job;
  return { jobId: id, service, type, requestId: context.requestId, traceId: context.traceId };
}

/** Says nothing. */
export const silentLogger: Logger = { info: () => {}, warn: () => {}, error: () => {} };
