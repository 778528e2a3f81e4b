// A worker that runs isolated jobs until it is killed. It prints the process ids of its handlers.
import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";

const [, , url = "", module = ""] = process.argv;
const contract = defineService("doomed", {
  act: defineJob({ payload: z.looseObject({ act: z.string() }), isolate: true, concurrency: 4 }),
});
const service = await connect(contract, { url });
service.jobs.act.handle({ module: new URL(module), warm: 2 });
await service.start();
const acts = ["loop", "ignore", "leaveAndStay"];
for (const act of acts) await service.jobs.act.create({ act }).orThrow();
let told = 0;
for await (const { event } of service.engine.tail(null, new AbortController().signal)) {
  if (event.name !== "emitted") continue;
  console.log(JSON.stringify(event.data));
  if (++told === acts.length) break;
}
