// Small programs for tests that need a process of its own: `serve URL` and `ask URL`.
import { connect } from "millrace";
import { shop } from "../client/shop.js";

const [, , role, url = ""] = process.argv;
const service = await connect(shop, { url, graceMs: 5_000 });

if (role === "serve") {
  service.jobs.greet.handle(async (job) => {
    console.log(`started ${job.payload.name}`);
    if (job.payload.name === "slow") {
      await new Promise((_, reject) =>
        job.signal.addEventListener("abort", () => reject(job.signal.reason)),
      );
    }
    return { text: `Hello ${job.payload.name}` };
  });
  await service.start();
  console.log("ready");
  await service.wait();
  console.log("stopped");
} else {
  // Nothing but the waiting keeps this process alive.
  const greeting = await service.jobs.greet.run({ name: "Ada" }).orThrow();
  console.log(greeting.text);
  await service.stop();
}
