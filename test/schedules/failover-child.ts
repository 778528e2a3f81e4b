// A process of the failover test: `failover-child.ts URL INSTANCE`. It fires schedules while it leads, runs their jobs,
// and says which; it may be killed or paused at any moment.
import { connect } from "millrace";
import { beats } from "./beats.js";

const [, , url = "", instance = ""] = process.argv;
const keeper = { ttlMs: 1_000, renewMs: 300, tickMs: 250 };
const service = await connect(beats, { url, instance, keeper, graceMs: 500 });
service.handle({
  kept: async () => {},
  gone: async (job) => console.log(`${job.id} ${job.tries}`),
});
await service.start();
console.log("ready");
await service.wait();
