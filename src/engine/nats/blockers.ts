/**
 * What keeps a job from waiting for others: one that does not exist, or that waits for the job's own chain.
 */
import type { EventOf } from "../../core/event.js";
import { type Blocker, isEnded, type Job } from "../../core/job.js";
import type { AppendOutcome } from "../engine.js";

/** How many jobs and chains are looked at for a circle. */
const circleWalkMax = 1_000;

/** How jobs and the current jobs of chains are found. */
export interface Finder {
  readonly job: (id: string) => Promise<Job | null>;
  readonly chain: (id: string) => Promise<Job | null>;
}

type Refusal = Extract<AppendOutcome, { outcome: "bad_blocker" }>;

/** Why a new job may not wait for its blockers, if so. */
export async function blockerRefusal(
  finder: Finder,
  { blockers, chainId }: EventOf<"created">,
): Promise<Refusal | null> {
  for (const isChain of [false, true]) {
    for (const blocker of blockers) {
      if ((blocker.chain ?? false) !== isChain || (await blockingJob(finder, blocker))) continue;
      return { outcome: "bad_blocker", reason: "missing", blockerId: blocker.jobId };
    }
  }
  if (chainId === undefined) return null;
  const blockerId = await waitsForChain(finder, blockers, chainId);
  return blockerId === null ? null : { outcome: "bad_blocker", reason: "cycle", blockerId };
}

/** Walks from blocker to blocker, and gives the first of a job through which it would wait for its own chain. */
async function waitsForChain(
  finder: Finder,
  blockers: readonly Blocker[],
  chainId: string,
): Promise<string | null> {
  const seen = new Set<string>();
  const next = blockers.map((blocker) => ({ blocker, via: blocker.jobId }));
  for (const { blocker, via } of next) {
    if (blocker.chain && blocker.jobId === chainId) return via;
    const name = `${blocker.chain ?? false}/${blocker.jobId}`;
    if (seen.has(name) || seen.size >= circleWalkMax) continue;
    seen.add(name);
    const job = await blockingJob(finder, blocker);
    if (job === null || isEnded(job.state)) continue;
    next.push(...job.blockers.map((further) => ({ blocker: further, via })));
  }
  return null;
}

/** The job that a blocker stands for: the job itself, or the one that its chain has come to. */
function blockingJob(finder: Finder, { jobId, chain }: Blocker): Promise<Job | null> {
  return chain ? finder.chain(jobId) : finder.job(jobId);
}
