// Idle processor time: what a worker process costs that has nothing to do.
import { setTimeout as sleep } from "node:timers/promises";
import type { Bench, Measure } from "../bench.js";
import { withStage } from "../millrace/stage.js";
import { withWorker } from "../millrace/worker.js";
import { millisecondsBetween, now } from "../statistics.js";
import { contender, limitRow } from "./contenders.js";

const name = "idle-cpu";
const limitPercent = 1;
/** What a process does to start is not part of being idle. */
const settleMs = 2_000;

/** Measures the share of one core that an idle worker process uses, keeper included. */
export const idleCpuMeasure: Measure = {
  name,
  engines: ["file"],
  rounds: 1,
  rows: [limitRow(name, "% of a core", "idle worker process", limitPercent)],
  contenders: [contender("millrace", name, run)],
};

function run(bench: Bench): Promise<number> {
  return withStage(bench, (stage) =>
    withWorker(bench, stage, async (worker) => {
      await worker.listen();
      await sleep(settleMs);
      const start = now();
      const usedBefore = await worker.processorMs();
      await sleep(bench.sizes.idleMs);
      const used = (await worker.processorMs()) - usedBefore;
      return (100 * used) / millisecondsBetween(start, now());
    }),
  );
}
