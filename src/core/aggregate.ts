/**
 * The outcome of a parent over its children: one value that says how a broadcast went.
 */
import { type Aggregate, isEnded, type JobState } from "./job.js";

/** The aggregate of children in these states, or `null` while one of them has not ended. */
export function aggregate(children: readonly JobState[]): Aggregate | null {
  if (!children.every(isEnded)) return null;
  const completed = children.filter((state) => state === "completed").length;
  const skipped = children.filter((state) => state === "skipped").length;
  const failed = children.length - completed - skipped;
  if (failed === 0) return completed > 0 || children.length === 0 ? "completed" : "skipped";
  return completed > 0 ? "partial_failure" : "failed";
}

/** The state in which a parent ends for an aggregate. */
export function aggregateState(outcome: Aggregate): "completed" | "failed" | "skipped" {
  return outcome === "partial_failure" ? "failed" : outcome;
}
