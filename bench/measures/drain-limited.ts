// Drains under limits: a backlog spread over many concurrency keys of which each runs one job at a time,
// and one under a cluster-wide cap that is never reached. Nobody else in the table has either.
import { engineNames, type Measure, type Targets } from "../bench.js";
import { drainFresh } from "../drain.js";
import type { JobType } from "../millrace/contract.js";
import { millrace } from "../millrace/stage.js";
import { clusterCap, keyCount, type Sizes, shortRounds } from "../sizes.js";
import { contender, ofMillrace } from "./contenders.js";

/** Measures what limits cost. */
export const drainLimitedMeasures: readonly Measure[] = [
  limitedMeasure({
    name: "drain-keyed",
    shows: `backlog under ${keyCount} keys`,
    type: "keyed",
    jobs: (sizes) => sizes.drainKeyedJobs,
    targets: { postgres: [ofMillrace("drain", 0.3)] },
  }),
  limitedMeasure({
    name: "drain-capped",
    shows: `backlog under a cap of ${clusterCap}, not reached`,
    type: "capped",
    jobs: (sizes) => sizes.drainJobs,
    targets: { postgres: [ofMillrace("drain", 0.8)] },
  }),
];

function limitedMeasure(kind: {
  readonly name: string;
  readonly shows: string;
  readonly type: JobType;
  readonly targets: Targets;
  jobs(sizes: Sizes): number;
}): Measure {
  const { name, shows, type, targets } = kind;
  const base = { system: "millrace", row: "drain" } as const;
  return {
    name,
    engines: engineNames,
    rounds: shortRounds,
    rows: [{ name, unit: "jobs/s", better: "higher", shows, base, targets }],
    contenders: [
      contender("millrace", name, async (bench) => {
        const report = await drainFresh(bench, millrace, { type, jobs: kind.jobs(bench.sizes) });
        return report.jobsPerSecond;
      }),
    ],
  };
}
