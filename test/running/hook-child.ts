// A process that is killed between the end of a job and its hook: `hook-child.ts STORE`. It prints the job's id first.
import { connect } from "millrace";
import { hookedShop, keeper } from "./hooked-shop.js";

const [, , url = ""] = process.argv;

const service = await connect(
  hookedShop(() => process.kill(process.pid, "SIGKILL")),
  { url, keeper },
);
service.jobs.mail.handle(() => null);
await service.start();
// Its place in the feed is before the job, which is kept back until somebody has read its id.
const job = await service.jobs.mail.create({}, { id: "hooked", delayMs: 50 }).orThrow();
console.log(job.id);
await service.wait();
