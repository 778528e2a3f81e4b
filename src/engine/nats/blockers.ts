/**
 * What keeps a job from waiting for others: one that does not exist, or that waits for the job's own chain, or may do so.
 */
import { type Blocking, CircleWalk } from "../../core/circle.js";
import type { EventOf } from "../../core/event.js";
import { type Blocker, isEnded, type Job } from "../../core/job.js";
import type { AppendOutcome } from "../engine.js";

/** How jobs and the current jobs of chains are found. */
export interface Finder {
  readonly jobs: (ids: readonly string[]) => Promise<readonly (Job | null)[]>;
  /** The job that a chain has come to; `null` where the chain is not there, or its end was removed. */
  readonly chain: (id: string) => Promise<Job | null>;
}

/** How many jobs and chains are looked behind at once. */
const walkMax = 100;

type Refusal = Extract<AppendOutcome, { outcome: "bad_blocker" }>;

/** Why a new job may not wait for its blockers, if so. */
export async function blockerRefusal(
  finder: Finder,
  { jobId, blockers, chainId }: EventOf<"created">,
): Promise<Refusal | null> {
  for (const isChain of [false, true]) {
    const asked = blockers.filter(({ chain = false }) => chain === isChain);
    const found = await blockingJobs(finder, isChain, asked);
    const missing = asked.find((_, place) => !found[place]);
    if (missing) return { outcome: "bad_blocker", reason: "missing", blockerId: missing.jobId };
  }
  if (chainId === undefined) return null;
  // Nobody can wait for a chain that begins with this job.
  if (chainId === jobId && (await finder.chain(chainId)) === null) return null;
  return circleRefusal(finder, blockers, chainId);
}

/** Walks from blocker to blocker, and refuses the first of a job through which it would wait for its own chain. */
async function circleRefusal(
  finder: Finder,
  blockers: readonly Blocker[],
  chainId: string,
): Promise<Refusal | null> {
  const walk = new CircleWalk(chainId, blockers);
  for (let next = walk.next(walkMax); next.length > 0; next = walk.next(walkMax)) {
    const jobs = await blockingJobs(finder, next[0]?.chain ?? false, next);
    for (const [place, { via }] of next.entries()) {
      const job = jobs[place];
      if (!job || isEnded(job.state)) continue;
      for (const further of job.blockers) walk.reach(further, via);
    }
  }
  return walk.refusal && { outcome: "bad_blocker", ...walk.refusal };
}

/** The jobs that blockers of one kind stand for: the jobs themselves, or those that their chains have come to. */
function blockingJobs(
  finder: Finder,
  areChains: boolean,
  blockers: readonly Blocking[],
): Promise<readonly (Job | null)[]> {
  const ids = blockers.map(({ jobId }) => jobId);
  return areChains ? Promise.all(ids.map(finder.chain)) : finder.jobs(ids);
}
