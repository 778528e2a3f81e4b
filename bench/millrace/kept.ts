// Makes the store that keeps many finished jobs, once per run, by creating and running them.
import type { Bench } from "../bench.js";
import { drainOnce } from "../drain.js";
import type { Stage } from "../stage.js";
import { keptStore } from "../stores.js";
import { millrace } from "./stage.js";
import type { BenchJob } from "./verify.js";

/** Nobody counts these jobs: of so many one is verified. */
const jobsPerLook = 100;

const stages = new WeakMap<Bench, Promise<Stage<BenchJob>>>();

/** A store with as many finished jobs as the run's sizes say. */
export function keptStage(bench: Bench): Promise<Stage<BenchJob>> {
  const known = stages.get(bench);
  if (known) return known;
  const making = makeKeptStage(bench);
  stages.set(bench, making);
  return making;
}

async function makeKeptStage(bench: Bench): Promise<Stage<BenchJob>> {
  const jobs = bench.sizes.keptJobs;
  const stage = await millrace.open(await keptStore(bench));
  bench.workspace.undoAtEnd(() => stage.close());
  bench.progress(`making a store with ${jobs.toLocaleString("en-US")} finished jobs`);
  await drainOnce(bench, millrace, stage, { jobs, jobsPerLook });
  return stage;
}
