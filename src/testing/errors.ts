/**
 * What a test is told when its jobs cannot all be run.
 */
import { TaggedError } from "better-result";
import type { WaitingJob } from "./open-jobs.js";

/** How many stuck jobs a message names. */
const namedMax = 10;

/** `drain` cannot go on. `jobs` are the ones that it was left with, each with the reason. */
export class JobsStuck extends TaggedError("JobsStuck")<{
  readonly message: string;
  readonly jobs: readonly WaitingJob[];
}> {}

/** The error that names stuck jobs, each on a line of its own. */
export function jobsStuck(problem: string, jobs: readonly WaitingJob[]): JobsStuck {
  const named = jobs.slice(0, namedMax).map(({ type, id, state, why }) => {
    return `  ${type} ${id} (${state}): ${why.sentence}`;
  });
  const more = jobs.length > namedMax ? [`  and ${jobs.length - namedMax} more`] : [];
  return new JobsStuck({ jobs, message: [`${problem}:`, ...named, ...more].join("\n") });
}
