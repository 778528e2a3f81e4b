// Drain and pickup in a file that keeps a million finished jobs, each beside the same in an empty file.
import type { Bench, Measure, Row } from "../bench.js";
import { drainFresh, drainStage } from "../millrace/drain.js";
import { keptStage } from "../millrace/kept.js";
import { pickupStage } from "../millrace/pickup.js";
import { withStage } from "../millrace/stage.js";
import { shortRounds } from "../sizes.js";

const keptShare = 0.8;

const drainRows = keptRows("drain-1m", { unit: "jobs/s", better: "higher" });
const pickupRows = keptRows("pickup-1m", { unit: "ms", better: "lower" });

/** Measures what a long memory costs. */
export const keptMeasures: readonly Measure[] = [
  keptMeasure("drain-1m", drainRows, async (bench) => {
    const jobs = bench.sizes.drainJobs;
    const kept = await drainStage(bench, await keptStage(bench), "plain", jobs);
    const empty = await drainFresh(bench, "plain", jobs);
    return [kept.jobsPerSecond, empty.jobsPerSecond];
  }),
  keptMeasure("pickup-1m", pickupRows, async (bench) => {
    const kept = await pickupStage(bench, await keptStage(bench));
    const empty = await withStage(bench, (stage) => pickupStage(bench, stage));
    return [kept.medianMs, empty.medianMs];
  }),
];

function keptMeasure(
  name: string,
  rows: readonly [Row, Row],
  round: (bench: Bench) => Promise<readonly [kept: number, empty: number]>,
): Measure {
  const [keptRow, emptyRow] = rows;
  return {
    name,
    engines: ["file"],
    rounds: shortRounds,
    rows,
    contenders: [
      {
        system: "millrace",
        async run(bench) {
          const [kept, empty] = await round(bench);
          return { [keptRow.name]: kept, [emptyRow.name]: empty };
        },
      },
    ],
  };
}

function keptRows(name: string, scale: Pick<Row, "unit" | "better">): readonly [Row, Row] {
  const base = { system: "millrace", row: `${name}-empty` } as const;
  return [
    {
      ...scale,
      name,
      shows: "many finished jobs kept",
      base,
      targets: [{ kind: "share", of: base, atLeast: keptShare }],
    },
    { ...scale, name: base.row, shows: "the same beside it, none kept", targets: [] },
  ];
}
