/**
 * What a handler learns of the jobs and chains that its own job has waited for.
 */
import { type BlockerTypes, blockerTypeProblem } from "../client/blockers.js";
import type { Runtime } from "../client/runtime.js";
import { DecryptionFailed, openPart } from "../client/vault.js";
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
export async function loadBlockers(runtime: Runtime, job: Job): Promise<readonly BlockerOutcome[]> {
  const jobs = await blockerJobs(runtime.engine, job);
  return jobs.map(({ id, ended }) => outcomeOf(runtime, id, ended));
}

/** The outcomes of the blockers that the definition names; a sentence where one of them is of another type. */
export async function namedBlockers(
  runtime: Runtime,
  job: Job,
  declared: BlockerTypes,
): Promise<{ readonly [name: string]: BlockerOutcome } | string> {
  const named: Record<string, BlockerOutcome> = {};
  const jobs = await blockerJobs(runtime.engine, job);
  for (const [place, { id, ended, first }] of jobs.entries()) {
    const name = job.blockers[place]?.name;
    if (name === undefined) continue;
    const problem = first === null ? null : blockerTypeProblem(name, first, job.service, declared);
    if (problem !== null) return `The job cannot begin: ${problem}.`;
    named[name] = outcomeOf(runtime, id, ended);
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

/** Throws `DecryptionFailed` for a result that cannot be read here. */
function outcomeOf(runtime: Runtime, id: string, job: Job | null): BlockerOutcome {
  if (job === null) return { id, state: "removed" };
  if (job.state !== "completed")
    return { id, state: job.state as Exclude<EndedState, "completed"> };
  const result =
    job.result === undefined ? undefined : openPart(runtime, job, "result", job.result);
  if (result instanceof DecryptionFailed) throw result;
  return { id, state: "completed", result };
}
