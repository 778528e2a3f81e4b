/**
 * The words of other systems for the states of a job, accepted where a filter names states. One table; the documents
 * show it.
 */
import type { JobState } from "../../core/job.js";

/** Each word with the state that it means. */
export const stateAliases = {
  queued: "pending",
  new: "pending",
  submitted: "pending",
  unprocessed: "pending",
  scheduled: "pending",
  acknowledged: "pending",
  running: "active",
  started: "active",
  processing: "active",
  cancelling: "active",
  retrying: "retry",
  orphaned: "retry",
  succeeded: "completed",
  terminated: "failed",
  partial_failure: "failed",
} as const satisfies { readonly [word: string]: JobState };

/** The state that a word means. */
export function stateOf(word: JobState | keyof typeof stateAliases): JobState {
  return word in stateAliases
    ? stateAliases[word as keyof typeof stateAliases]
    : (word as JobState);
}
