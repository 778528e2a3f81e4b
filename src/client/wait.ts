/**
 * Waiting for one job: its result, how it ended otherwise, or why the waiting ended before it did.
 */
import { Result } from "better-result";
import { isEnded, type Job } from "../core/job.js";
import { isStoreError, type StoreError } from "../engine/errors.js";
import { AsyncResult } from "./async-result.js";
import type { Client } from "./client.js";
import { JobEnded, type JobNotFound, jobNotFound, WaitAborted, WaitTimeout } from "./errors.js";
import type { WaitEnd } from "./waiters.js";

/** How long to wait. */
export interface WaitOptions {
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** Everything but the job's result. */
export type WaitFailure = JobEnded | WaitTimeout | WaitAborted | JobNotFound | StoreError;

/** Waits until a job has ended, the time is up, or the signal aborts. */
export function waitForJob<Value>(
  client: Client,
  id: string,
  { timeoutMs, signal }: WaitOptions,
): AsyncResult<Value, WaitFailure> {
  return new AsyncResult<Value, WaitFailure>(
    new Promise((resolve) => {
      if (signal?.aborted) return resolve(Result.err(aborted(id, signal)));
      const finish = (result: Result<Value, WaitFailure>) => {
        stopTimer?.();
        stopWaiting();
        signal?.removeEventListener("abort", onAbort);
        resolve(result);
      };
      const onAbort = () => finish(Result.err(aborted(id, signal)));
      const onTimeout = () => finish(Result.err(timedOut(id, timeoutMs ?? 0)));
      const stopTimer =
        timeoutMs === undefined ? null : client.runtime.clock.after(timeoutMs, onTimeout);
      const stopWaiting = client.waiters.add(id, (end) => finish(ending<Value>(id, end)));
      signal?.addEventListener("abort", onAbort);
    }),
  );
}

function ending<Value>(
  id: string,
  end: WaitEnd,
): Result<Value, JobEnded | JobNotFound | StoreError> {
  if (end === null) return Result.err(jobNotFound(id));
  if (isStoreError(end)) return Result.err(end);
  // The worker has checked the result against the schema that the type comes from.
  return end.state === "completed" ? Result.ok(end.result as Value) : Result.err(jobEnded(end));
}

function jobEnded({ id, state, error, reason }: Job): JobEnded {
  if (!isEnded(state)) throw new Error(`Job ${id} is ${state} and has not ended.`);
  const detail = error?.message ?? reason;
  return new JobEnded({
    id,
    state,
    message: detail
      ? `Job ${id} has ended as ${state}: ${detail}`
      : `Job ${id} has ended as ${state}.`,
    ...(error === undefined ? null : { error }),
    ...(reason === undefined ? null : { reason }),
  });
}

function aborted(id: string, signal: AbortSignal | undefined): WaitAborted {
  const message = `Waiting for job ${id} was aborted; the job goes on.`;
  return new WaitAborted({ id, cause: signal?.reason, message });
}

function timedOut(id: string, timeoutMs: number): WaitTimeout {
  const message = `Job ${id} has not ended within ${timeoutMs} ms; it goes on, so wait again or cancel it.`;
  return new WaitTimeout({ id, timeoutMs, message });
}
