// Floor: what the events of jobs cost on JetStream before anybody does anything with them, beside what BullMQ reaches.
// Where the floor is below a peer, no worker that keeps the same history can come up to it.
import { createFloor, drainFloor } from "../bare/nats-floor.js";
import type { Bench, Measure } from "../bench.js";
import { shortRounds } from "../sizes.js";
import { plainRateRow } from "./contenders.js";

const drainName = "floor-drain";
const createName = "floor-create-50";

/** Measures the floor. In `--json` its ratios are to BullMQ, if drain and create-50 are measured in the same run. */
export const floorMeasure: Measure = {
  name: "floor",
  engines: ["nats", "nats-always"],
  rounds: shortRounds,
  rows: [
    {
      ...plainRateRow(
        drainName,
        "tickets, starts, ends and acks alone: the most that a drain can reach",
        {},
      ),
      base: { system: "bullmq", row: "drain" },
    },
    {
      ...plainRateRow(
        createName,
        "50 compared creations at a time alone: the most that create-50 can",
        {},
      ),
      base: { system: "bullmq", row: "create-50" },
    },
  ],
  contenders: [{ system: "bare", run }],
};

async function run(bench: Bench) {
  return { [drainName]: await drainFloor(bench), [createName]: await createFloor(bench) };
}
