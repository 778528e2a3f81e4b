// Drains under limits, each beside as many jobs without: a backlog spread over many concurrency keys of which each runs one job at
// a time, and one under a cluster-wide cap that is never reached. Nobody else in the table has either.
import { type Bench, engineNames, type Measure } from "../bench.js";
import { drainFresh } from "../drain.js";
import type { JobType } from "../millrace/contract.js";
import { millrace } from "../millrace/stage.js";
import { clusterCap, keyCount, type Sizes } from "../sizes.js";
import { besideMeasure } from "./beside.js";

/** Measures what limits cost. */
export const drainLimitedMeasures: readonly Measure[] = [
  limitedMeasure({
    name: "drain-keyed",
    shows: `backlog under ${keyCount} keys`,
    type: "keyed",
    jobs: (sizes) => sizes.drainKeyedJobs,
    atLeast: 0.3,
  }),
  limitedMeasure({
    name: "drain-capped",
    shows: `backlog under a cap of ${clusterCap}, not reached`,
    type: "capped",
    jobs: (sizes) => sizes.drainJobs,
    atLeast: 0.8,
  }),
];

function limitedMeasure(kind: {
  readonly name: string;
  readonly shows: string;
  readonly type: JobType;
  readonly atLeast: number;
  jobs(sizes: Sizes): number;
}): Measure {
  const { name, shows, atLeast } = kind;
  const drain = (type: JobType) => async (bench: Bench) =>
    (await drainFresh(bench, millrace, { type, jobs: kind.jobs(bench.sizes) })).jobsPerSecond;
  return besideMeasure({
    name,
    engines: engineNames,
    scale: { unit: "jobs/s", better: "higher" },
    shows,
    atLeast,
    aimedAt: ["postgres"],
    other: { suffix: "plain", shows: "as many beside it, without the limit" },
    measured: drain(kind.type),
    otherMeasured: drain("plain"),
  });
}
