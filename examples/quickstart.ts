import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";

// A service and its job types. Schemas come from any Standard Schema library.
const shop = defineService("shop", {
  sendReceipt: defineJob({
    payload: z.object({ orderId: z.string(), to: z.string() }),
    result: z.object({ messageId: z.string() }),
  }),
});

// One SQLite file, made if there is none. Any number of processes may share it.
const service = await connect(shop, { url: "file:jobs.db" });

// What is done with a job. Payload and result are typed by their schemas.
service.jobs.sendReceipt.handle(async (job) => {
  await job.progress({ step: "rendering", current: 1, total: 2 });
  return { messageId: `message-for-${job.payload.orderId}` };
});
await service.start();

// Once the create has resolved, the job is on disk and will run, whatever happens to this process.
const created = await service.jobs.sendReceipt.create({ orderId: "o-1", to: "anna@shop.example" });
if (created.isErr()) throw created.error;

const receipt = await created.value.wait({ timeoutMs: 10_000 });
console.log(receipt.isOk() ? receipt.value.messageId : receipt.error.message);

for (const event of await created.value.events().orThrow()) {
  console.log(`${event.name}: ${event.previousState ?? "nothing"} → ${event.state}`);
}
await service.stop();
