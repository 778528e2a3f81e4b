// A store of Millrace with a connected service, and the few calls that measures make on it.
import { join } from "node:path";
import { connect } from "millrace";
import type { Bench } from "../bench.js";
import { payloadOf, payloadsBetween } from "../payload.js";
import { createBatchSize } from "../sizes.js";
import { benchService, type JobType } from "./contract.js";

/** A service that is connected to an engine and has not been started. */
export type BenchService = Awaited<ReturnType<typeof openService>>;

/** A job that was created on a stage. */
export type BenchJob = Awaited<ReturnType<typeof createJob>>;

/** A store and this process's connection to it. */
export interface Stage {
  readonly url: string;
  readonly service: BenchService;
}

/** Connects to an engine. */
export function openService(url: string) {
  return connect(benchService, { url });
}

/** Connects to a store of the run's engine; a folder holds its file. */
export async function openStage(bench: Bench, folder: string): Promise<Stage> {
  const url = bench.engine === "file" ? `file:${join(folder, "jobs.db")}` : "memory:";
  return { url, service: await openService(url) };
}

/** Does something on an empty store, which is removed afterwards. */
export function withStage<Value>(
  bench: Bench,
  work: (stage: Stage) => Promise<Value>,
): Promise<Value> {
  return bench.workspace.inFreshFolder(async (folder) => {
    const stage = await openStage(bench, folder);
    try {
      return await work(stage);
    } finally {
      await stage.service.stop();
    }
  });
}

/** Creates one job, which is durable when the promise resolves. */
export function createJob({ service }: Stage, type: JobType, number: number) {
  return service.jobs[type].create(payloadOf(number)).orThrow();
}

/** Creates many jobs in batches, one after the other. */
export async function createJobs(stage: Stage, type: JobType, count: number): Promise<BenchJob[]> {
  const jobs: BenchJob[] = [];
  for (let from = 0; from < count; from += createBatchSize) {
    const payloads = payloadsBetween(from, Math.min(from + createBatchSize, count));
    const batch = payloads.map((payload) => ({ payload }));
    const results = await stage.service.jobs[type].createMany(batch).orThrow();
    for (const result of results) jobs.push(result.unwrap());
  }
  return jobs;
}

/** How many jobs that a worker handles have not ended. */
export async function openJobs(service: BenchService): Promise<number> {
  const counts = await service.reads.counts({ state: ["pending", "active", "retry"] }).orThrow();
  const handled = counts.filter(({ type }) => type !== "unhandled");
  return handled.reduce((sum, { count }) => sum + count, 0);
}
