/**
 * Why a handler is asked to stop: the reason that its signal is aborted with.
 */
import { TaggedError } from "better-result";
import { JobAlreadyCompleted } from "../client/errors.js";
import { isEnded, type Job, type JobState } from "../core/job.js";

const sentences = {
  cancelled: "The job was cancelled.",
  shutdown: "The worker is shutting down; the job will run again.",
  timeout: "The try took longer than the job type allows.",
  expired: "The job's deadline has come.",
  taken_by_another_worker: "The worker lost its hold on the job; another one may run it.",
  already_completed: "The job was ended by somebody else.",
  not_found: "The job is gone.",
  error: "The store could not be reached for so long that the hold on the job is no longer sure.",
} as const;

/** Why a handler's signal was aborted. */
export type AbortReason = keyof typeof sentences;

/** The reason of an aborted `job.signal`. */
export class JobAborted extends TaggedError("JobAborted")<{
  readonly message: string;
  readonly jobId: string;
  readonly reason: AbortReason;
}> {}

/** The reason to abort a job's signal with. */
export function jobAborted(jobId: string, reason: AbortReason): JobAborted {
  return new JobAborted({ jobId, reason, message: sentences[reason] });
}

/** What it means for a running handler that its job ended in this state without it. */
export function abortReasonOf(state: JobState): AbortReason {
  switch (state) {
    case "cancelled":
    case "expired":
      return state;
    case "completed":
    case "failed":
    case "skipped":
      return "already_completed";
    case "pending":
    case "blocked":
    case "active":
    case "retry":
    case "stale":
    case "dead":
    case "dismissed":
    case "unreachable":
      return "taken_by_another_worker";
  }
}

/** What a handler is told of a job that is no longer its worker's, as it is stored now; `null` where it is gone. */
export function lostJob(id: string, job: Job | null): JobAborted | JobAlreadyCompleted {
  if (job === null) return jobAborted(id, "not_found");
  const { state } = job;
  if (!isEnded(state)) return jobAborted(id, "taken_by_another_worker");
  const message = `Job ${id} was ended as ${state} by somebody else; what this handler gave does not count.`;
  return new JobAlreadyCompleted({ id, state, message });
}
