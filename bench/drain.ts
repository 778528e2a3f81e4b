// Drains backlogs with worker processes, first an untimed one, and verifies what became of every job
// of the timed one.
import { setTimeout as sleep } from "node:timers/promises";
import type { Bench } from "./bench.js";
import type { JobType } from "./millrace/contract.js";
import { createBatchSize } from "./sizes.js";
import type { Stage, StagedSystem } from "./stage.js";
import { now, ratePerSecond } from "./statistics.js";
import { settleStore, withStage } from "./stores.js";
import type { Usage } from "./worker/calls.js";
import { type Workers, type WorkersWish, withWorkers } from "./worker/workers.js";

/** How long to wait between two looks at whether the last jobs have been recorded as ended. */
const lookPauseMs = 2;

/** What to drain. */
export interface Backlog {
  readonly jobs: number;
  readonly type?: JobType;
  /** How many worker processes drain it; one by default. */
  readonly processes?: number;
  /** Of how many jobs one is looked at afterwards; each of them by default. */
  readonly jobsPerLook?: number;
  /** What this process does until every handler has been entered. */
  meanwhile?(drained: Promise<void>): Promise<unknown>;
}

/** How a drain went. */
export interface DrainReport {
  readonly jobsPerSecond: number;
  readonly usages: readonly Usage[];
}

/** Drains a backlog on an empty store, after a warm-up in the same processes. */
export async function drainFresh<Job>(
  bench: Bench,
  system: StagedSystem<Job>,
  backlog: Backlog,
): Promise<DrainReport> {
  if (bench.engine !== "memory") {
    return withStage(bench, system, (stage) => drainStage(bench, system, stage, backlog));
  }
  // A store in memory ends with its worker, so that the warm-up has a store of its own.
  await withStage(bench, system, (stage) =>
    drainOnce(bench, system, stage, warmUp(bench, backlog)),
  );
  return withStage(bench, system, (stage) => drainOnce(bench, system, stage, backlog));
}

/** Drains a backlog beside whatever a store keeps already, after a warm-up in the same processes. */
export function drainStage<Job>(
  bench: Bench,
  system: StagedSystem<Job>,
  stage: Stage<Job>,
  backlog: Backlog,
): Promise<DrainReport> {
  return withWorkers(bench, system, stage, wish(backlog), async (workers) => {
    await timeDrain(bench, stage, workers, warmUp(bench, backlog));
    const [report, jobs] = await timeDrain(bench, stage, workers, backlog);
    await stage.verify(jobs, "ended");
    return report;
  });
}

/** Drains a backlog without a warm-up. */
export function drainOnce<Job>(
  bench: Bench,
  system: StagedSystem<Job>,
  stage: Stage<Job>,
  backlog: Backlog,
): Promise<DrainReport> {
  return withWorkers(bench, system, stage, wish(backlog), async (workers) => {
    const [report, jobs] = await timeDrain(bench, stage, workers, backlog);
    const { jobsPerLook = 1 } = backlog;
    const looked = jobs.filter((_, index) => index % jobsPerLook === 0);
    await stage.verify(looked, "ended");
    return report;
  });
}

/** Creates the jobs of a backlog in batches, one after the other. */
export async function createAll<Job>(stage: Stage<Job>, { jobs, type }: Backlog): Promise<Job[]> {
  const created: Job[] = [];
  for (let from = 0; from < jobs; from += createBatchSize) {
    const to = Math.min(from + createBatchSize, jobs);
    for (const job of await stage.createBatch(from, to, type ?? "plain")) created.push(job);
  }
  return created;
}

/** From the start of workers that are connected until every job is recorded as ended. */
async function timeDrain<Job>(
  bench: Bench,
  stage: Stage<Job>,
  workers: Workers,
  backlog: Backlog,
): Promise<readonly [DrainReport, readonly Job[]]> {
  const created = await createAll(stage, backlog);
  await settleStore(bench, stage.url);
  await workers.open();
  const allEntered = workers.entered(backlog.jobs);
  const start = now();
  await Promise.all([workers.start(), allEntered, backlog.meanwhile?.(allEntered)]);
  while ((await stage.unfinished(backlog.type ?? "plain")) > 0) await sleep(lookPauseMs);
  const jobsPerSecond = ratePerSecond(backlog.jobs, start);
  const usages = await workers.usage();
  await workers.stop();
  return [{ jobsPerSecond, usages }, created];
}

function wish({ processes = 1 }: Backlog): WorkersWish {
  return { processes, watch: "count" };
}

function warmUp({ sizes }: Bench, { jobs, ...backlog }: Backlog): Backlog {
  return { ...backlog, jobs: Math.min(sizes.warmUpJobs, jobs) };
}
