/**
 * Waiting for one job: its result, how it ended otherwise, or why the waiting ended before it did.
 */
import { Result } from "better-result";
import { isEnded, type Job } from "../core/job.js";
import { endedDetail } from "../core/why.js";
import { isStoreError, type StoreError } from "../engine/errors.js";
import { AsyncResult, refusal } from "./async-result.js";
import type { Client } from "./client.js";
import {
  type InvalidOption,
  JobEnded,
  type JobNotFound,
  jobNotFound,
  WaitAborted,
  WaitTimeout,
} from "./errors.js";
import { keepAlive } from "./keep-alive.js";
import { type OptionCheck, optionsProblem, signalProblem } from "./option-checks.js";
import { DecryptionFailed, openPart } from "./vault.js";
import type { WaitEnd } from "./waiters.js";

/** How often to look for a job that is on its way to the store. */
const lookMs = 20;

/** How long to wait. */
export interface WaitOptions {
  /** Without one, or with `Infinity`, it waits as long as it takes. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** Everything but the job's result. */
export type WaitFailure =
  | JobEnded
  | WaitTimeout
  | WaitAborted
  | DecryptionFailed
  | JobNotFound
  | InvalidOption
  | StoreError;

/** The options of a wait, each with its check. */
export const waitChecks: { readonly [Name in keyof WaitOptions]-?: OptionCheck } = {
  timeoutMs: (timeoutMs) =>
    typeof timeoutMs === "number" && timeoutMs >= 0
      ? null
      : `${String(timeoutMs)} is not a number of milliseconds; give 0 or more, or Infinity.`,
  signal: signalProblem,
};

/** The job to wait for once this one has ended; `null` when the waiting is over. */
type NextToWaitFor = (ended: Job) => string | null;

/**
 * Waits until a job has ended, the time is up, or the signal aborts. `next` may name another job
 * that is to be waited for in its place, such as the one that continues a chain.
 */
export function waitForJob<Value>(
  client: Client,
  id: string,
  options: WaitOptions,
  next: NextToWaitFor = () => null,
): AsyncResult<Value, WaitFailure> {
  const problem = optionsProblem("a wait", options, waitChecks);
  if (problem !== null) return refusal(problem);
  const { timeoutMs = Number.POSITIVE_INFINITY, signal } = options;
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
      const onTimeout = () => finish(Result.err(timedOut(id, timeoutMs)));
      const stopTimer =
        timeoutMs === Number.POSITIVE_INFINITY
          ? null
          : client.runtime.clock.after(timeoutMs, onTimeout);
      const watch = (awaited: string): (() => void) =>
        client.waiters.add(awaited, (end) => {
          if (end === null && client.onItsWay.has(awaited)) {
            stopWaiting = soon(client, () => {
              stopWaiting = watch(awaited);
            });
            return;
          }
          const following = end === null || isStoreError(end) ? null : next(end);
          if (following === null) finish(ending<Value>(client, awaited, end));
          else stopWaiting = watch(following);
        });
      let stopWaiting = watch(id);
      signal?.addEventListener("abort", onAbort);
    }),
  );
}

/** Calls back in a moment, and keeps the process alive until then. Gives the way to call it off. */
function soon({ runtime: { clock } }: Client, call: () => void): () => void {
  const letGo = keepAlive();
  const callOff = clock.after(lookMs, () => {
    letGo();
    call();
  });
  return () => {
    letGo();
    callOff();
  };
}

function ending<Value>(
  { runtime }: Client,
  id: string,
  end: WaitEnd,
): Result<Value, JobEnded | JobNotFound | DecryptionFailed | StoreError> {
  if (end === null) return Result.err(jobNotFound(id));
  if (isStoreError(end)) return Result.err(end);
  if (end.state !== "completed") return Result.err(jobEnded(end));
  const result =
    end.result === undefined ? undefined : openPart(runtime, end, "result", end.result);
  // The worker has checked the result against the schema that the type comes from.
  return result instanceof DecryptionFailed ? Result.err(result) : Result.ok(result as Value);
}

function jobEnded(job: Job): JobEnded {
  const { id, state, error, reason } = job;
  if (!isEnded(state)) throw new Error(`Job ${id} is ${state} and has not ended.`);
  const detail = endedDetail(job);
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
