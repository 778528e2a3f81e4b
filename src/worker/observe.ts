/**
 * Middleware that watches: lines in a log, and how long tries took.
 */
import type { Logger } from "../engine/logger.js";
import type { ActiveJob } from "./active-job.js";
import type { Middleware, MiddlewareContext, Next } from "./middleware.js";
import { Skip, Snooze, Terminate } from "./outcome.js";

/** How a try went, as its handler and the middleware inside said it. The store may yet decide otherwise. */
export type TryOutcome = "returned" | "threw" | "snoozed" | "skipped" | "terminated";

/** How long a try took. */
export interface TryTiming {
  readonly jobId: string;
  readonly type: string;
  readonly tries: number;
  readonly outcome: TryOutcome;
  readonly durationMs: number;
}

/**
 * Logs the beginning and the end of every try, with the job's id, its request and its trace, and never its payload.
 * Without a logger it is the one of `connect`.
 *
 * @example
 * service.use(logging());
 */
export function logging(logger?: Logger): Middleware {
  return (job, next, context) => {
    const log = logger ?? context.logger;
    const { id: jobId, type, tries, run } = job;
    const { requestId, traceId } = job.context;
    const fields = { jobId, type, tries, run, requestId, traceId };
    log.info(fields, "A try begins.");
    return watched(job, next, context, ({ outcome, durationMs }, error) => {
      const ended = { ...fields, outcome, durationMs };
      if (outcome === "threw") log.warn({ ...ended, error }, "A try has failed.");
      else log.info(ended, "A try has ended.");
    });
  };
}

/**
 * Tells how long every try took.
 *
 * @example
 * service.use(timing(({ type, durationMs }) => histogram.observe({ type }, durationMs / 1_000)));
 */
export function timing(record: (timing: TryTiming) => void): Middleware {
  return (job, next, context) => watched(job, next, context, (timing) => record(timing));
}

async function watched(
  { id: jobId, type, tries }: ActiveJob<unknown>,
  next: Next,
  { clock }: MiddlewareContext,
  tell: (timing: TryTiming, error?: unknown) => void,
): Promise<unknown> {
  const startedAt = clock.monotonic();
  const timing = (outcome: TryOutcome) => {
    return { jobId, type, tries, outcome, durationMs: clock.monotonic() - startedAt };
  };
  try {
    const returned = await next();
    tell(timing(saidBy(returned) ?? "returned"));
    return returned;
  } catch (error) {
    tell(timing(saidBy(error) ?? "threw"), error);
    throw error;
  }
}

/** What a handler said by returning or throwing one of the outcomes. */
function saidBy(value: unknown): TryOutcome | null {
  if (value instanceof Snooze) return "snoozed";
  if (value instanceof Skip) return "skipped";
  return value instanceof Terminate ? "terminated" : null;
}
