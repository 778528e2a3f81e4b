// Makes the file that keeps many finished jobs, once per run, by creating and running them.
import type { Bench } from "../bench.js";
import { createJobs, openStage, type Stage } from "./stage.js";
import { withWorker } from "./worker.js";

const stages = new WeakMap<Bench, Promise<Stage>>();

/** A store with as many finished jobs as the run's sizes say. */
export function keptStage(bench: Bench): Promise<Stage> {
  const known = stages.get(bench);
  if (known) return known;
  const making = makeKeptStage(bench);
  stages.set(bench, making);
  return making;
}

async function makeKeptStage(bench: Bench): Promise<Stage> {
  const jobs = bench.sizes.keptJobs;
  const stage = await openStage(bench, bench.workspace.keptFolder());
  bench.workspace.undoAtEnd(() => stage.service.stop());
  bench.progress(`making a file with ${jobs.toLocaleString("en-US")} finished jobs: creating`);
  await createJobs(stage, "plain", jobs);
  bench.progress("making that file: running");
  await withWorker(bench, stage, (worker) => worker.drain(jobs));
  return stage;
}
