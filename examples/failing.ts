// Failing in all ways: tried again, not worth trying again, put off, skipped, and dead.
import { connect, defineJob, defineService, skip, snooze, terminate } from "millrace";
import { z } from "zod";

const bank = defineService("bank", {
  charge: defineJob({
    payload: z.object({ card: z.enum(["flaky", "stolen", "busy", "paid", "broken"]) }),
    retry: { maxTries: 3, backoff: [10, 20] },
  }),
});

const service = await connect(bank, { url: "memory:" });
let isBusy = true;
let isBroken = true;
service.jobs.charge.handle(({ payload, tries }) => {
  switch (payload.card) {
    case "flaky":
      if (tries < 3) throw new Error("no answer"); // Thrown: tried again after the backoff.
      return "charged";
    case "stolen":
      return terminate("the card was stolen"); // Failed at once: retrying cannot help.
    case "busy":
      if (!isBusy) return "charged";
      isBusy = false;
      return snooze(10, "the bank is closed"); // Put off; costs no try.
    case "paid":
      return skip("paid already"); // Nothing to do, and no failure.
    case "broken":
      if (isBroken) throw new Error("no such bank"); // Dead after the last try.
      return "charged";
  }
});
await service.start();

for (const card of ["flaky", "stolen", "busy", "paid", "broken"] as const) {
  const ref = await service.jobs.charge.create({ card }).orThrow();
  await ref.wait();
  const job = await ref.get().orThrow();
  const history = (await ref.events().orThrow()).map(({ name }) => name).join(" ");
  console.log(`${card}: ${job.state} after ${job.tries} tries (${history})`);
}

// A dead job waits for a person. Once the cause is gone, it is run again under the same id.
isBroken = false;
const { entries: dead } = await service.reads.jobs({ state: ["dead"] }).orThrow();
for (const { id } of dead) {
  await service.ref(id).replay().orThrow();
  await service.ref(id).wait();
  const job = await service.ref(id).get().orThrow();
  console.log(`replayed: ${job.state} in run ${job.run}`);
}
await service.stop();
