// Drain and pickup under a burden, each beside the same in an empty store: a million jobs that have
// finished, a backlog that waits in another queue, or a transaction that somebody left open.
import type { Bench, EngineName, Measure, Row } from "../bench.js";
import { createAll, drainFresh, drainStage } from "../drain.js";
import { onKeptStage } from "../millrace/kept.js";
import { millrace } from "../millrace/stage.js";
import { pickupStage } from "../pickup.js";
import { shortRounds } from "../sizes.js";
import { holdTransaction, withStage } from "../stores.js";
import { ofMillrace, storedEngines } from "./contenders.js";

/** A measure under a burden. */
interface Burden {
  readonly name: string;
  readonly engines: readonly EngineName[];
  readonly scale: Pick<Row, "unit" | "better">;
  readonly shows: string;
  /** The share of the same in an empty store that must be left. */
  readonly atLeast: number;
  burdened(bench: Bench): Promise<number>;
  empty(bench: Bench): Promise<number>;
}

const drained = {
  scale: { unit: "jobs/s", better: "higher" },
  async empty(bench: Bench) {
    return (await drainFresh(bench, millrace, { jobs: bench.sizes.drainJobs })).jobsPerSecond;
  },
} as const;

const burdens: readonly Burden[] = [
  {
    ...drained,
    name: "drain-1m",
    engines: storedEngines,
    shows: "many finished jobs kept",
    atLeast: 0.8,
    burdened: (bench) =>
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
    burdened: (bench) =>
      onKeptStage(bench, async (stage) => (await pickupStage(bench, millrace, stage)).medianMs),
    empty: (bench) =>
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
    burdened: (bench) =>
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
    burdened: (bench) =>
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
export const burdenedMeasures: readonly Measure[] = burdens.map((burden) => {
  const { name, engines, scale, shows } = burden;
  const emptyName = `${name}-empty`;
  const base = { system: "millrace", row: emptyName } as const;
  const targets = [ofMillrace(emptyName, burden.atLeast)];
  return {
    name,
    engines,
    rounds: shortRounds,
    rows: [
      {
        ...scale,
        name,
        shows,
        base,
        targets: { file: targets, postgres: targets, nats: targets, "nats-always": targets },
      },
      { ...scale, name: emptyName, shows: "the same beside it, in an empty store", targets: {} },
    ],
    contenders: [
      {
        system: "millrace",
        run: async (bench) => ({
          [name]: await burden.burdened(bench),
          [emptyName]: await burden.empty(bench),
        }),
      },
    ],
  };
});
