// Delays, deadlines, priorities and idempotency keys: options of a create.
import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";

const mail = defineService("mail", {
  send: defineJob({ payload: z.object({ to: z.string() }), concurrency: 1 }),
});

const service = await connect(mail, { url: "memory:" });
service.jobs.send.handle(({ payload }) => console.log(`sent to ${payload.to}`));
const { send } = service.jobs;

// Higher goes first.
await send.create({ to: "a customer" }).orThrow();
await send.create({ to: "an important customer" }, { priority: 10 }).orThrow();

// Runs no earlier than in 100 ms.
const later = await send.create({ to: "a patient customer" }, { delayMs: 100 }).orThrow();
console.log((await later.why().orThrow()).reason);

// Expires if it has not ended by then.
const deadline = Date.now() + 50;
const tooLate = await send.create({ to: "nobody" }, { delayMs: 60_000, deadline }).orThrow();

// Creating it again under the same key gives the job that is there.
const once = await send.create({ to: "a customer, once" }, { idempotencyKey: "o-1" }).orThrow();
const again = await send.create({ to: "a customer, once" }, { idempotencyKey: "o-1" }).orThrow();
console.log(`the same job: ${once.id === again.id}, existing: ${again.existing}`);

await service.start();
await later.wait();
const ended = await tooLate.wait();
if (ended.isErr())
  console.log(ended.error._tag === "JobEnded" ? ended.error.state : ended.error._tag);
await service.stop();
