// Schedules: what a service starts by itself, declared in its contract or made at run time.
import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";

const shop = defineService(
  "shop",
  {
    report: defineJob({ payload: z.object({ kind: z.string() }) }),
    poll: defineJob({ payload: z.object({ inbox: z.string() }) }),
  },
  {
    schedules: {
      // By the wall clock of a zone.
      nightly: {
        type: "report",
        payload: { kind: "sales" },
        cron: "30 2 * * *",
        timeZone: "Europe/Berlin",
        catchUp: "last",
      },
    },
  },
);

const service = await connect(shop, { url: "memory:", keeper: { tickMs: 50 } });
let polls = 0;
let onThird = () => {};
const third = new Promise<void>((resolve) => {
  onThird = resolve;
});
service.handle({
  report: ({ payload }) => console.log(`the ${payload.kind} report`),
  poll: ({ payload }) => {
    polls += 1;
    if (polls <= 3) console.log(`poll ${polls} of ${payload.inbox}`);
    if (polls === 3) onThird();
  },
});
await service.start();
// Keeps the process alive until the service is stopped.
const stopped = service.wait();

// One that is made at run time, and skips an instant while the last job has not ended.
const spec = { type: "poll", payload: { inbox: "orders" }, everyMs: 100, overlap: "skip" } as const;
await service.schedules.create("poll", spec).orThrow();
await third;
await service.schedules.pause("poll").orThrow();

for (const { name, origin, enabled } of await service.schedules.list().orThrow())
  console.log(`${name}: made by the ${origin}, ${enabled ? "enabled" : "paused"}`);
const [next = 0] = await service.schedules.next("nightly").orThrow();
const clock = { timeZone: "Europe/Berlin", timeStyle: "short" } as const;
console.log(`nightly fires at ${new Intl.DateTimeFormat("en-GB", clock).format(next)}`);

// Nobody has to wait for the night.
const job = await service.schedules.run("nightly").orThrow();
await job.wait().orThrow();

const wrong = await service.schedules.create("typo", { ...spec, type: "poll", everyMs: 1 });
if (wrong.isErr()) console.log(wrong.error.message);
await service.stop();
await stopped;
