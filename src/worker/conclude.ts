/**
 * What the outcome of a try means for its job: the command that is settled.
 * What the handler was told while it ran has its say here, too.
 */
import type { Runtime } from "../client/runtime.js";
import type { Command } from "../core/command.js";
import type { Continuation } from "../core/event.js";
import type { JobError } from "../core/job.js";
import type { Json } from "../core/json.js";
import { type Backoff, retryDelayMs } from "../core/retry.js";
import { jobFields } from "../engine/logger.js";
import type { Hold } from "./hold.js";

/** How a try went, before anybody asks what that means for the job. */
export type Outcome =
  | { readonly kind: "returned"; readonly result?: Json; readonly continuation?: Continuation }
  | { readonly kind: "threw"; readonly error: JobError }
  /** Retrying cannot help. */
  | { readonly kind: "terminated"; readonly error: JobError }
  | { readonly kind: "snoozed"; readonly delayMs: number; readonly reason?: string }
  | { readonly kind: "skipped"; readonly reason: string }
  | { readonly kind: "expired" }
  /** The handler was never called: the worker stops, or its claim took too long. */
  | { readonly kind: "given_back" };

/**
 * Makes the command of an outcome.
 *
 * A try that took too long has failed and a job whose deadline has come has expired, whatever the
 * handler says afterwards. A cancelled handler that throws confirms the cancel, and one that
 * returns a value has completed the job before it could be cancelled. A handler that throws while
 * the worker shuts down gives the job back. After any other abort the outcome is offered as it
 * is, and the store refuses it if the hold is not current.
 */
export function conclude(hold: Hold, outcome: Outcome, runtime: Runtime): () => Command {
  const meant = withAbort(hold, outcome, runtime.engine.now());
  const retryAt = meant.kind === "threw" ? retryTime(hold, meant.error, runtime) : 0;
  return () => commandOf(hold, meant, retryAt, runtime);
}

/** What the outcome is once the reason to stop, if there was one, is taken into account. */
function withAbort(
  hold: Hold,
  outcome: Outcome,
  now: number,
): Outcome | { readonly kind: "cancelled" } {
  const isFailure = outcome.kind === "threw";
  switch (hold.aborted?.reason) {
    case "timeout":
      return { kind: "threw", error: timeoutError(hold) };
    case "expired":
      return (hold.job.deadline ?? now) <= now ? { kind: "expired" } : outcome;
    case "cancelled":
      return isFailure || hold.abandoned ? { kind: "cancelled" } : outcome;
    case "shutdown":
      return isFailure ? { kind: "given_back" } : outcome;
    case "taken_by_another_worker":
    case "already_completed":
    case "not_found":
    case "error":
    case undefined:
      return outcome;
  }
}

function commandOf(
  hold: Hold,
  outcome: ReturnType<typeof withAbort>,
  retryAt: number,
  { ids, engine, instance }: Runtime,
): Command {
  const { token, runAt } = hold.job;
  const eventId = ids.eventId();
  const actor = `worker:${instance}` as const;
  // The most frequent outcome by far, so that it is written out.
  if (outcome.kind === "returned") {
    const { result, continuation } = outcome;
    const completed = {
      command: "complete",
      eventId,
      actor,
      token,
      completedBy: instance,
    } as const;
    if (continuation !== undefined) return { ...completed, continuation };
    return result === undefined
      ? completed
      : { command: "complete", eventId, actor, token, completedBy: instance, result };
  }
  const held = { eventId, actor, token };
  switch (outcome.kind) {
    case "threw":
      return { command: "fail", error: outcome.error, retryAt, ...held };
    case "terminated":
      return { command: "terminate", error: outcome.error, ...held };
    case "snoozed": {
      const { delayMs, reason } = outcome;
      const release = {
        command: "release",
        cause: "snooze",
        runAt: Math.round(engine.now() + delayMs),
      } as const;
      return reason === undefined ? { ...release, ...held } : { ...release, reason, ...held };
    }
    case "skipped":
      return { command: "skip", reason: outcome.reason, ...held };
    case "expired":
      return { command: "expire", ...held };
    case "cancelled":
      return hold.cancelReason === undefined
        ? { command: "confirmCancel", ...held }
        : { command: "confirmCancel", reason: hold.cancelReason, ...held };
    case "given_back": {
      const cause = hold.aborted?.reason === "shutdown" ? "shutdown" : "deferral";
      // Its old run time keeps the job's place in the line.
      return { command: "release", cause, runAt, ...held };
    }
  }
}

function timeoutError(hold: Hold): JobError {
  const message = `The try took longer than ${hold.lane.settings.timeoutMs} ms.`;
  return { message, reason: "timeout" };
}

/** A backoff of the user's own may throw; the job is tried again all the same. */
function retryTime(hold: Hold, error: JobError, { engine, ids, logger }: Runtime): number {
  const delayMs = (backoff: Backoff) =>
    retryDelayMs(backoff, hold.job.tries, ids.random(), error.message);
  try {
    return engine.now() + delayMs(hold.lane.settings.backoff);
  } catch (thrown) {
    const fields = { ...jobFields(hold.job), error: thrown };
    logger.error(fields, "The backoff function of a job type threw; the default is used.");
    return engine.now() + delayMs("default");
  }
}
