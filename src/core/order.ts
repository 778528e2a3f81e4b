/**
 * The order in which jobs are claimed: priority descending, then run time, then id.
 */
import type { Job } from "./job.js";

/** Priorities lie in this range; a higher one goes first. */
export const priorityMin = -1_000;
export const priorityMax = 1_000;

/** The place where jobs of one kind line up: a queue of a service, a type and its version. */
export type Lane = string;

/** The lane of a job. Names cannot hold `/` or `@`, so that lanes are never ambiguous. */
export function laneOf(job: Pick<Job, "service" | "queue" | "type" | "typeVersion">): Lane {
  return `${job.service}/${job.queue}/${job.type}@${job.typeVersion}`;
}

/** Compares two jobs by the order of claims. */
export function compareOrder(
  a: Pick<Job, "priority" | "runAt" | "id">,
  b: Pick<Job, "priority" | "runAt" | "id">,
): number {
  return b.priority - a.priority || a.runAt - b.runAt || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
}
