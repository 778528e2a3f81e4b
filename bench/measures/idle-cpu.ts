// Idle processor time: what a worker process costs that has nothing to do.
import { setTimeout as sleep } from "node:timers/promises";
import type { Bench, Measure } from "../bench.js";
import { millrace } from "../millrace/stage.js";
import { millisecondsBetween, now } from "../statistics.js";
import { withStage } from "../stores.js";
import { type Workers, withWorkers } from "../worker/workers.js";
import { amountRow, below, contender, storedEngines } from "./contenders.js";

const name = "idle-cpu";
/** What a process does to start is not part of being idle. */
const settleMs = 2_000;

/** Measures the share of one core that an idle worker process uses, keeper included. */
export const idleCpuMeasure: Measure = {
  name,
  engines: storedEngines,
  rounds: 1,
  rows: [amountRow(name, "% of a core", "idle worker process", { file: [below(1)] })],
  contenders: [contender("millrace", name, run)],
};

function run(bench: Bench): Promise<number> {
  const wish = { processes: 1, watch: "count" } as const;
  return withStage(bench, millrace, (stage) =>
    withWorkers(bench, millrace, stage, wish, async (workers) => {
      await workers.open();
      await workers.start();
      await sleep(settleMs);
      const start = now();
      const usedBefore = await processorMs(workers);
      await sleep(bench.sizes.idleMs);
      const used = (await processorMs(workers)) - usedBefore;
      const share = used / millisecondsBetween(start, now());
      await workers.stop();
      return 100 * share;
    }),
  );
}

async function processorMs(workers: Workers): Promise<number> {
  const usages = await workers.usage();
  return usages.reduce((sum, usage) => sum + usage.processorMs, 0);
}
