// A process that applies a log to a projection, a few events at a time, and prints each position: `applier.ts URL JOBS`.
import { openProjection } from "#millrace/engine/projection/open.js";
import { busyLog } from "./log.js";

const batchSize = 5;
const [, , url = "", jobs = "0"] = process.argv;
const { entries, clock } = busyLog(Number(jobs));
const projection = await openProjection(url, { identity: "test", origin: "first", clock });
let position = await projection.position();
while (position < entries.length) {
  position = await projection.apply(position, entries.slice(position, position + batchSize));
  console.log(position);
}
await projection.close();
