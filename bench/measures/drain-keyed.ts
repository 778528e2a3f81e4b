// Keyed drain: a backlog spread over many concurrency keys of which each runs one job at a time.
import { engineNames, type Measure } from "../bench.js";
import { drainFresh } from "../millrace/drain.js";
import { shortRounds } from "../sizes.js";
import { contender } from "./contenders.js";

const name = "drain-keyed";

/** Measures the keyed drain. Nobody else in the table has keys. */
export const drainKeyedMeasure: Measure = {
  name,
  engines: engineNames,
  rounds: shortRounds,
  rows: [{ name, unit: "jobs/s", better: "higher", shows: "backlog under keys", targets: [] }],
  contenders: [
    contender("millrace", name, async (bench) => {
      const report = await drainFresh(bench, "keyed", bench.sizes.drainKeyedJobs);
      return report.jobsPerSecond;
    }),
  ],
};
