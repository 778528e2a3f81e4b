// The rounds that Millrace and its peers run in the measures that they share.
import type { Bench } from "./bench.js";
import { concurrently } from "./concurrently.js";
import { createAll, drainFresh } from "./drain.js";
import { type PickupReport, pickupStage } from "./pickup.js";
import { concurrentCallers } from "./sizes.js";
import type { Stage, StagedSystem } from "./stage.js";
import { now, ratePerSecond } from "./statistics.js";
import { settleStore, withStage } from "./stores.js";

/** Runs one round and gives a rate per second. */
export type Round = (bench: Bench) => Promise<number>;

/** What a system can be measured in. */
export interface Rounds {
  readonly drain: Round;
  /** The same with two worker processes. */
  readonly drainByTwo?: Round;
  readonly createConcurrent: Round;
  readonly createSequential: Round;
  readonly createMany: Round;
  readonly pickup?: (bench: Bench) => Promise<PickupReport>;
}

/** The rounds of a system with worker processes. */
export function stagedRounds<Job>(system: StagedSystem<Job>): Required<Rounds> {
  return {
    drain: (bench) => drain(bench, system, 1),
    drainByTwo: (bench) => drain(bench, system, 2),
    createConcurrent: (bench) =>
      create(bench, system, {
        warmUp: bench.sizes.warmUpJobs,
        jobs: system.amounts(bench.sizes).concurrentJobs,
        by: (stage, count) => createBy(concurrentCallers, stage, count),
      }),
    createSequential: (bench) =>
      create(bench, system, {
        warmUp: bench.sizes.warmUpSequentialJobs,
        jobs: system.amounts(bench.sizes).sequentialJobs,
        by: (stage, count) => createBy(1, stage, count),
      }),
    createMany: (bench) =>
      create(bench, system, {
        warmUp: bench.sizes.warmUpJobs,
        jobs: bench.sizes.createManyJobs,
        by: (stage, jobs) => createAll(stage, { jobs }),
      }),
    pickup: (bench) => withStage(bench, system, (stage) => pickupStage(bench, system, stage)),
  };
}

async function drain<Job>(bench: Bench, system: StagedSystem<Job>, processes: number) {
  const report = await drainFresh(bench, system, { jobs: bench.sizes.drainJobs, processes });
  return report.jobsPerSecond;
}

/** How to create, how many untimed, and how many timed. */
interface CreateWay<Job> {
  readonly warmUp: number;
  readonly jobs: number;
  by(stage: Stage<Job>, count: number): Promise<readonly Job[]>;
}

function create<Job>(bench: Bench, system: StagedSystem<Job>, way: CreateWay<Job>) {
  return withStage(bench, system, async (stage) => {
    await way.by(stage, way.warmUp);
    await settleStore(bench, stage.url);
    const start = now();
    const jobs = await way.by(stage, way.jobs);
    const rate = ratePerSecond(way.jobs, start);
    await stage.verify(jobs, "waiting");
    return rate;
  });
}

async function createBy<Job>(callers: number, stage: Stage<Job>, count: number): Promise<Job[]> {
  const jobs: Job[] = [];
  await concurrently(count, callers, async (number) => {
    jobs.push(await stage.create(number, "plain"));
  });
  return jobs;
}
