// Drain and pickup under a burden, each beside the same in an empty store: a million jobs that have
// finished, a backlog that waits in another queue, or a transaction that somebody left open.
import type { Bench, Measure } from "../bench.js";
import { createAll, drainFresh, drainStage } from "../drain.js";
import { onKeptStage } from "../millrace/kept.js";
import { millrace } from "../millrace/stage.js";
import { pickupStage } from "../pickup.js";
import { holdTransaction, withStage } from "../stores.js";
import { type Beside, besideMeasure } from "./beside.js";
import { storedEngines } from "./contenders.js";

/** What each is measured beside. */
const other = { suffix: "empty", shows: "the same beside it, in an empty store" } as const;

const drained = {
  scale: { unit: "jobs/s", better: "higher" },
  other,
  async otherMeasured(bench: Bench) {
    return (await drainFresh(bench, millrace, { jobs: bench.sizes.drainJobs })).jobsPerSecond;
  },
} as const;

const burdens: readonly Beside[] = [
  {
    ...drained,
    name: "drain-1m",
    engines: storedEngines,
    shows: "many finished jobs kept",
    atLeast: 0.8,
    measured: (bench) =>
      onKeptStage(bench, async (stage) => {
        const report = await drainStage(bench, millrace, stage, { jobs: bench.sizes.drainJobs });
        return report.jobsPerSecond;
      }),
  },
  {
    name: "pickup-1m",
    engines: storedEngines,
    scale: { unit: "ms", better: "lower" },
    shows: "many finished jobs kept",
    atLeast: 0.8,
    measured: (bench) =>
      onKeptStage(bench, async (stage) => (await pickupStage(bench, millrace, stage)).medianMs),
    other,
    otherMeasured: (bench) =>
      withStage(
        bench,
        millrace,
        async (stage) => (await pickupStage(bench, millrace, stage)).medianMs,
      ),
  },
  {
    ...drained,
    name: "drain-waiting",
    engines: storedEngines,
    shows: "many jobs wait in another queue",
    atLeast: 0.8,
    measured: (bench) =>
      withStage(bench, millrace, async (stage) => {
        await createAll(stage, { jobs: bench.sizes.waitingJobs, type: "unhandled" });
        const report = await drainStage(bench, millrace, stage, { jobs: bench.sizes.drainJobs });
        return report.jobsPerSecond;
      }),
  },
  {
    ...drained,
    name: "drain-held",
    engines: ["postgres"],
    shows: "a transaction stays open from before the first create",
    atLeast: 0.5,
    measured: (bench) =>
      withStage(bench, millrace, async (stage) => {
        const end = await holdTransaction(stage.url);
        try {
          const report = await drainStage(bench, millrace, stage, { jobs: bench.sizes.drainJobs });
          return report.jobsPerSecond;
        } finally {
          await end();
        }
      }),
  },
];

/** Measures what a burden costs. */
export const burdenedMeasures: readonly Measure[] = burdens.map(besideMeasure);
