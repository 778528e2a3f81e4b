// Memory: the most that a worker process holds while it drains a backlog.
import type { Measure } from "../bench.js";
import { drainFresh } from "../millrace/drain.js";
import { contender, limitRow } from "./contenders.js";

const name = "memory";
const limitMb = 200;

/** Measures the memory of a worker process with all its threads. */
export const memoryMeasure: Measure = {
  name,
  engines: ["file"],
  rounds: 1,
  rows: [limitRow(name, "MB", "most of a worker process in a drain", limitMb)],
  contenders: [
    contender("millrace", name, async (bench) => {
      const report = await drainFresh(bench, "plain", bench.sizes.drainJobs);
      return report.memoryMaxMb;
    }),
  ],
};
