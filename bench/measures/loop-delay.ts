// Loop delay: whether Millrace leaves the event loops of its users alone while a backlog drains: that of
// the process that runs the jobs, and that of another that creates jobs one after the other meanwhile.
import type { Bench, Measure, Readings } from "../bench.js";
import { undisturbedHistory } from "../millrace/drain.js";
import { watchLoopDelay } from "../millrace/loop-delay.js";
import { createJob, createJobs, type Stage, withStage } from "../millrace/stage.js";
import { verifyHistories } from "../millrace/verify.js";
import { withWorker } from "../millrace/worker.js";
import { shortRounds } from "../sizes.js";
import { limitRow } from "./contenders.js";

const name = "loop-delay";
const callerName = "loop-delay-caller";
const limitMs = 20;

/** Measures the event loop's delay, in both processes. */
export const loopDelayMeasure: Measure = {
  name,
  engines: ["file"],
  rounds: shortRounds,
  rows: [
    limitRow(name, "ms", "p99 in the worker process in a drain", limitMs),
    limitRow(callerName, "ms", "p99 in a process that creates meanwhile", limitMs),
  ],
  contenders: [
    { system: "millrace", run: (bench) => withStage(bench, (stage) => run(bench, stage)) },
  ],
};

async function run(bench: Bench, stage: Stage): Promise<Readings> {
  const jobs = bench.sizes.drainJobs;
  const created = await createJobs(stage, "plain", jobs);
  const readings = await withWorker(bench, stage, async (worker) => {
    let isDraining = true;
    const delayMs = watchLoopDelay();
    const drained = worker.drain(jobs).finally(() => {
      isDraining = false;
    });
    const [report] = await Promise.all([drained, createWhile(stage, () => isDraining)]);
    return { [name]: report.loopDelayMs, [callerName]: delayMs() };
  });
  await verifyHistories(stage, created, undisturbedHistory);
  return readings;
}

/** Nobody handles these jobs, so that they do not count in the drain. */
async function createWhile(stage: Stage, goesOn: () => boolean): Promise<void> {
  for (let number = 0; goesOn(); number += 1) await createJob(stage, "unhandled", number);
}
