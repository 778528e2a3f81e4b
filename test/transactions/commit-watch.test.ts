// A commit right before a process stops: others hear of it all the same, and need not look by themselves.
import { connect, defineJob, defineService, openEngine } from "millrace";
import { Client } from "pg";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { callerTransaction } from "#millrace/client/transactions/recognise.js";
import { CommitWatch } from "#millrace/engine/postgres/commit-watch.js";
import { openPostgresOutbox } from "#millrace/engine/postgres/outbox.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { freshSchema } from "../support/postgres.js";
import { gate } from "../worker/workshop.js";

const contract = defineService("shop", {
  ship: defineJob({ payload: z.object({ orderId: z.string() }) }),
});
const payload = { orderId: "o-1" };

async function begin(url: string): Promise<Client> {
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query("BEGIN");
  return client;
}

/** Listens, and gives what opens when it is told something. The first call says that somebody listens. */
async function listen(wake: (on: () => void) => () => void) {
  const [listening, told] = [gate(), gate()];
  let calls = 0;
  onTestFinished(wake(() => (++calls === 1 ? listening : told).open()));
  await listening.opened;
  return told;
}

it("is told when a service stops, of what has committed", async () => {
  const { url, storeUrl } = await freshSchema();
  const listener = await openEngine(storeUrl);
  onTestFinished(() => listener.close());
  // Its clock stands still, so that it asks for nothing before it stops.
  const service = await connect(contract, { url: storeUrl, clock: new FakeClock() });
  onTestFinished(() => service.stop());
  const client = await begin(url);
  const told = await listen((on) => listener.wake("ready", on));
  await service.jobs.ship.create(payload, { tx: client }).orThrow();
  await client.query("COMMIT");
  await service.stop();
  await told.opened;
});

it("is told when an outbox closes, of what has committed", async () => {
  const { url, storeUrl } = await freshSchema();
  const [listener, outbox] = [
    await openPostgresOutbox(storeUrl),
    await openPostgresOutbox(storeUrl, { clock: new FakeClock() }),
  ];
  onTestFinished(() => listener.close());
  onTestFinished(() => outbox.close());
  await outbox.provision();
  const client = await begin(url);
  const told = await listen((on) => listener.wake(on));
  const tx = callerTransaction(client);
  if (tx instanceof Error) throw tx;
  await outbox.put([{ service: "shop", body: "{}" }], tx);
  await client.query("COMMIT");
  await outbox.close();
  await told.opened;
});

it("is not waited for when the server does not answer, or refuses", async () => {
  for (const run of [() => gate().opened as Promise<never>, () => Promise.reject(new Error())]) {
    const watch = new CommitWatch({ clock: new FakeClock(), run });
    watch.add("1", () => expect.unreachable());
    await watch.close();
    watch.add("2", () => expect.unreachable());
  }
});
