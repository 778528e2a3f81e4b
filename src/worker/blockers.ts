/**
 * What a handler learns of the jobs and chains that its own job has waited for.
 */
import type { EndedState, Job } from "../core/job.js";
import type { Json } from "../core/json.js";
import type { Engine } from "../engine/engine.js";

/** How a blocker ended, with its result if it completed. `removed`: neither it nor its result is there any more. */
export type BlockerOutcome<Value = Json | undefined> =
  | { readonly id: string; readonly state: "completed"; readonly result: Value }
  | {
      readonly id: string;
      readonly state: Exclude<EndedState, "completed"> | "removed";
      readonly result?: undefined;
    };

/** The outcomes of a job's blockers, in the order in which it names them. */
export async function loadBlockers(engine: Engine, job: Job): Promise<readonly BlockerOutcome[]> {
  return (await blockerJobs(engine, job)).map(({ id, ended }) => outcomeOf(id, ended));
}

/** The outcomes of the blockers that the definition names; a sentence where one of them is of another type. */
export async function namedBlockers(
  engine: Engine,
  job: Job,
  declared: { readonly [name: string]: string },
): Promise<{ readonly [name: string]: BlockerOutcome } | string> {
  const named: Record<string, BlockerOutcome> = {};
  for (const [place, { id, ended, first }] of (await blockerJobs(engine, job)).entries()) {
    const name = job.blockers[place]?.name;
    if (name === undefined) continue;
    if (first !== null && first.type !== declared[name])
      return `The blocker ${name} is a ${first.type}, and the contract names ${declared[name]}.`;
    named[name] = outcomeOf(id, ended);
  }
  return named;
}

interface BlockerJob {
  readonly id: string;
  /** The job that ended: the blocker itself, or the last of its chain. */
  readonly ended: Job | null;
  /** The job that the blocker's id names. */
  readonly first: Job | null;
}

async function blockerJobs(engine: Engine, job: Job): Promise<readonly BlockerJob[]> {
  const [rows = []] = await engine.query("blockers", { ids: [job.id] });
  const ids = [...new Set(rows.flatMap(({ id, jobId }) => (jobId === null ? [] : [id, jobId])))];
  const loaded = await engine.load(ids);
  const jobs = new Map(loaded.map((found, index) => [ids[index], found?.job ?? null]));
  return rows.map(({ id, jobId }) => ({
    id,
    ended: jobs.get(jobId ?? undefined) ?? null,
    first: jobs.get(id) ?? null,
  }));
}

function outcomeOf(id: string, job: Job | null): BlockerOutcome {
  if (job === null) return { id, state: "removed" };
  return job.state === "completed"
    ? { id, state: "completed", result: job.result }
    : { id, state: job.state as Exclude<EndedState, "completed"> };
}
