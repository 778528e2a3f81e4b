// Loop delay: whether Millrace leaves the event loops of its users alone while a backlog drains: that of
// the process that runs the jobs, and that of another that creates jobs one after the other meanwhile.
import type { Bench, Measure, Readings } from "../bench.js";
import { drainStage } from "../drain.js";
import { millrace } from "../millrace/stage.js";
import { shortRounds } from "../sizes.js";
import type { Stage } from "../stage.js";
import { withStage } from "../stores.js";
import { watchLoopDelay } from "../worker/loop-delay.js";
import { amountRow, below, storedEngines } from "./contenders.js";

const name = "loop-delay";
const callerName = "loop-delay-caller";
const limits = { file: [below(20)] } as const;

/** Measures the event loop's delay, in both processes. */
export const loopDelayMeasure: Measure = {
  name,
  engines: storedEngines,
  rounds: shortRounds,
  rows: [
    amountRow(name, "ms", "p99 in the worker process in a drain", limits),
    amountRow(callerName, "ms", "p99 in a process that creates meanwhile", limits),
  ],
  contenders: [{ system: "millrace", run }],
};

function run(bench: Bench): Promise<Readings> {
  return withStage(bench, millrace, async (stage) => {
    let callerMs = 0;
    async function meanwhile(drained: Promise<void>): Promise<void> {
      const loopDelayMs = watchLoopDelay();
      await createUntil(stage, drained);
      callerMs = loopDelayMs();
    }
    const backlog = { jobs: bench.sizes.drainJobs, meanwhile };
    const report = await drainStage(bench, millrace, stage, backlog);
    const workerMs = Math.max(...report.usages.map(({ loopDelayMs }) => loopDelayMs));
    return { [name]: workerMs, [callerName]: callerMs };
  });
}

/** Nobody handles these jobs, so that they do not count in the drain. */
async function createUntil(stage: Stage, drained: Promise<void>): Promise<void> {
  let isDrained = false;
  const settled = drained.finally(() => {
    isDrained = true;
  });
  for (let number = 0; !isDrained; number += 1) await stage.create(number, "unhandled");
  await settled;
}
