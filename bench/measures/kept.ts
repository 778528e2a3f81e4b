// Drain and pickup in a store that holds many other jobs, each beside the same in an empty store: a
// million that have finished, or a backlog that waits in another queue.
import type { Bench, Measure, Row } from "../bench.js";
import { createAll, drainFresh, drainStage } from "../drain.js";
import { keptStage } from "../millrace/kept.js";
import { millrace } from "../millrace/stage.js";
import { pickupStage } from "../pickup.js";
import { shortRounds } from "../sizes.js";
import { withStage } from "../stores.js";
import { ofMillrace, storedEngines } from "./contenders.js";

const share = 0.8;
const rateScale = { unit: "jobs/s", better: "higher" } as const;
const timeScale = { unit: "ms", better: "lower" } as const;

/** Measures what a full store costs. */
export const keptMeasures: readonly Measure[] = [
  besideEmpty("drain-1m", rateScale, "many finished jobs kept", async (bench) => {
    const jobs = bench.sizes.drainJobs;
    const kept = await drainStage(bench, millrace, await keptStage(bench), { jobs });
    const empty = await drainFresh(bench, millrace, { jobs });
    return [kept.jobsPerSecond, empty.jobsPerSecond];
  }),
  besideEmpty("pickup-1m", timeScale, "many finished jobs kept", async (bench) => {
    const kept = await pickupStage(bench, millrace, await keptStage(bench));
    const empty = await withStage(bench, millrace, (stage) => pickupStage(bench, millrace, stage));
    return [kept.medianMs, empty.medianMs];
  }),
  besideEmpty("drain-waiting", rateScale, "many jobs wait in another queue", async (bench) => {
    const jobs = bench.sizes.drainJobs;
    const full = await withStage(bench, millrace, async (stage) => {
      await createAll(stage, { jobs: bench.sizes.waitingJobs, type: "unhandled" });
      return drainStage(bench, millrace, stage, { jobs });
    });
    const empty = await drainFresh(bench, millrace, { jobs });
    return [full.jobsPerSecond, empty.jobsPerSecond];
  }),
];

function besideEmpty(
  name: string,
  scale: Pick<Row, "unit" | "better">,
  shows: string,
  round: (bench: Bench) => Promise<readonly [full: number, empty: number]>,
): Measure {
  const emptyName = `${name}-empty`;
  const target = ofMillrace(emptyName, share);
  const base = { system: "millrace", row: emptyName } as const;
  return {
    name,
    engines: storedEngines,
    rounds: shortRounds,
    rows: [
      { ...scale, name, shows, base, targets: { file: [target], postgres: [target] } },
      { ...scale, name: emptyName, shows: "the same beside it, in an empty store", targets: {} },
    ],
    contenders: [
      {
        system: "millrace",
        async run(bench) {
          const [full, empty] = await round(bench);
          return { [name]: full, [emptyName]: empty };
        },
      },
    ],
  };
}
