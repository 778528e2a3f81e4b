// Isolated jobs: how fast handlers that do nothing run when each try has a process of its own, and what that costs over
// a handler in the worker.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Bench, Measure } from "../bench.js";
import type { IsolatedReadings } from "../isolated/process.js";
import { inFreshStore } from "../stores.js";
import { compiledFile } from "../worker/compile.js";
import { above, amountRow, plainRateRow, storedEngines } from "./contenders.js";

const burstName = "isolated-burst";
const backlogName = "isolated-backlog";
const overheadName = "isolated-overhead";

/** How many jobs a burst has, and processes wait for it. */
const burstJobs = 50;

/** Measures jobs in processes of their own. */
export const isolatedMeasure: Measure = {
  name: "isolated",
  engines: storedEngines,
  rounds: 3,
  rows: [
    plainRateRow(burstName, `${burstJobs} isolated jobs, a process ready for each`, {
      file: [above(100)],
      postgres: [above(100)],
      nats: [above(100)],
      "nats-always": [above(100)],
    }),
    plainRateRow(backlogName, "isolated jobs whose processes have to be started", {}),
    amountRow(overheadName, "ms", "what an isolated job takes longer than one in the worker", {}),
  ],
  contenders: [
    {
      system: "millrace",
      async run(bench) {
        const { burst, backlog, isolatedMs, plainMs } = await readings(bench);
        return {
          [burstName]: burst,
          [backlogName]: backlog,
          [overheadName]: isolatedMs - plainMs,
        };
      },
    },
  ],
};

function readings(bench: Bench): Promise<IsolatedReadings> {
  return inFreshStore(bench, async (url) => {
    const script = await compiledFile(bench.workspace, "isolated/process");
    const words = [script, url, String(burstJobs), String(bench.sizes.isolatedBacklogJobs)];
    const { stdout } = await promisify(execFile)(process.execPath, words);
    return JSON.parse(stdout) as IsolatedReadings;
  });
}
