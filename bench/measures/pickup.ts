// Pickup: how soon a job starts in another process that has nothing to do.
import { type Bench, engineNames, type Measure } from "../bench.js";
import { pickupStage } from "../millrace/pickup.js";
import { withStage } from "../millrace/stage.js";
import { shortRounds } from "../sizes.js";
import { limitRow } from "./contenders.js";

const medianName = "pickup-p50";
const percentile99Name = "pickup-p99";
const medianLimitMs = 2;
const percentile99LimitMs = 10;

/** Measures the time from just before a create to the entry of the handler. */
export const pickupMeasure: Measure = {
  name: "pickup",
  engines: engineNames,
  rounds: shortRounds,
  rows: [
    limitRow(medianName, "ms", "call of create to handler, idle worker process", medianLimitMs),
    limitRow(percentile99Name, "ms", "the same", percentile99LimitMs),
  ],
  contenders: [{ system: "millrace", run }],
};

async function run(bench: Bench) {
  const report = await withStage(bench, (stage) => pickupStage(bench, stage));
  return { [medianName]: report.medianMs, [percentile99Name]: report.percentile99Ms };
}
