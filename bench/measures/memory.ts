// Memory: the most that a worker process holds while it drains a backlog.
import type { Measure } from "../bench.js";
import { drainFresh } from "../drain.js";
import { millrace } from "../millrace/stage.js";
import { amountRow, below, contender, storedEngines } from "./contenders.js";

const name = "memory";

/** Measures the memory of a worker process with all its threads. */
export const memoryMeasure: Measure = {
  name,
  engines: storedEngines,
  rounds: 1,
  rows: [amountRow(name, "MB", "most of a worker process in a drain", { file: [below(200)] })],
  contenders: [
    contender("millrace", name, async (bench) => {
      const { usages } = await drainFresh(bench, millrace, { jobs: bench.sizes.drainJobs });
      return Math.max(...usages.map(({ memoryMaxMb }) => memoryMaxMb));
    }),
  ],
};
