/**
 * What keeps a job from waiting for others: one that does not exist, or that waits for the job's own chain, or may do so.
 */
import { type Blocking, CircleWalk } from "../../core/circle.js";
import type { EventOf } from "../../core/event.js";
import { type Blocker, isEnded, type Job } from "../../core/job.js";
import type { AppendOutcome } from "../engine.js";

/** How jobs and the current jobs of chains are found. */
export interface Finder {
  readonly job: (id: string) => Promise<Job | null>;
  readonly chain: (id: string) => Promise<Job | null>;
}

type Refusal = Extract<AppendOutcome, { outcome: "bad_blocker" }>;

/** Why a new job may not wait for its blockers, if so. */
export async function blockerRefusal(
  finder: Finder,
  { jobId, blockers, chainId }: EventOf<"created">,
): Promise<Refusal | null> {
  for (const isChain of [false, true]) {
    for (const blocker of blockers) {
      if ((blocker.chain ?? false) !== isChain || (await blockingJob(finder, blocker))) continue;
      return { outcome: "bad_blocker", reason: "missing", blockerId: blocker.jobId };
    }
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
  for (let [next] = walk.next(1); next !== undefined; [next] = walk.next(1)) {
    const job = await blockingJob(finder, next);
    if (job === null || isEnded(job.state)) continue;
    for (const further of job.blockers) walk.reach(further, next.via);
  }
  return walk.refusal && { outcome: "bad_blocker", ...walk.refusal };
}

/** The job that a blocker stands for: the job itself, or the one that its chain has come to. */
function blockingJob(finder: Finder, { jobId, chain }: Blocking): Promise<Job | null> {
  return chain ? finder.chain(jobId) : finder.job(jobId);
}
