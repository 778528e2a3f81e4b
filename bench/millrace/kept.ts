// Makes the store that keeps many finished jobs, once per run, by creating and running them.
import type { Bench } from "../bench.js";
import { drainOnce } from "../drain.js";
import type { Stage } from "../stage.js";
import { keptStore, openedStage } from "../stores.js";
import { millrace } from "./stage.js";
import type { BenchJob } from "./verify.js";

/** Nobody counts these jobs: of so many one is verified. */
const jobsPerLook = 100;

const stores = new WeakMap<Bench, Promise<string>>();

/**
 * Does something on a store with as many finished jobs as the run's sizes say. It is opened for each time, as an empty one
 * is: a process that has verified jobs on JetStream goes on applying the log to its view, beside what is measured.
 */
export async function onKeptStage<Value>(
  bench: Bench,
  work: (stage: Stage<BenchJob>) => Promise<Value>,
): Promise<Value> {
  const known = stores.get(bench) ?? makeKeptStore(bench);
  stores.set(bench, known);
  return openedStage(millrace, await known, work);
}

async function makeKeptStore(bench: Bench): Promise<string> {
  const jobs = bench.sizes.keptJobs;
  const url = await keptStore(bench);
  bench.progress(`making a store with ${jobs.toLocaleString("en-US")} finished jobs`);
  await openedStage(millrace, url, (stage) =>
    drainOnce(bench, millrace, stage, { jobs, jobsPerLook }),
  );
  return url;
}
