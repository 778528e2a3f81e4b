// Calls that wait for somebody's open transaction on PostgreSQL, and calls that do not: the ones never hold up the others.
import { connect, defineJob, defineService, type Job } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { changeOf, failureOf } from "../support/changes.js";
import { freshSchema } from "../support/postgres.js";
import { isWaitedFor, openTransaction, waiters } from "../support/postgres-locks.js";

const order = z.object({ orderId: z.string() });
const contract = defineService("shop", {
  ship: defineJob({ payload: order }),
  charge: defineJob({
    payload: order,
    keyConcurrency: { key: ["/orderId"], maxActive: 1 },
    queue: { maxQueuedPerKey: 5 },
  }),
});
const payload = { orderId: "o-1" };

/** A service, and a transaction of the caller's that is open. */
async function openShop() {
  const { url, schema, storeUrl } = await freshSchema();
  const service = await connect(contract, { url: storeUrl });
  onTestFinished(() => service.stop());
  const client = await openTransaction(url);
  const { ship, charge } = service.jobs;
  return { service, ship, charge, client, schema };
}

it("a create that waits for an idempotency key holds up no create of another kind, and no command", async () => {
  const { ship, client } = await openShop();
  const delayed = await ship.create(payload, { delayMs: 60_000 }).orThrow();
  await ship.submit(payload, { id: "first", tx: client, idempotencyKey: "k" }).orThrow();
  const answered: string[] = [];
  const waiting = ship.submit(payload, { idempotencyKey: "k" }).then((submitted) => {
    answered.push("waiting");
    return submitted;
  });
  await isWaitedFor(client);

  await ship.create(payload, { delayMs: 60_000 }).orThrow();
  await ship.create(payload, { tags: ["vip"] }).orThrow();
  await ship.create(payload, { blockers: [delayed] }).orThrow();
  await delayed.cancel().orThrow();
  expect(answered).toEqual([]);
  await client.query("COMMIT");
  expect((await waiting).unwrap()).toMatchObject({ outcome: "existing", job: { id: "first" } });
});

it("a command that waits for a key holds up none of a job without one", async () => {
  const { ship, charge, client, schema } = await openShop();
  const keyed = await charge.create(payload).orThrow();
  const [first, second, third] = await Promise.all(
    Array.from({ length: 3 }, () => ship.create(payload, { delayMs: 60_000 }).orThrow()),
  );
  await client.query(`SELECT hash FROM ${schema}.keys FOR UPDATE`);
  const cancelled = keyed.cancel();
  const waiting = await isWaitedFor(client);

  await first?.cancel().orThrow();
  await second?.cancel().orThrow();
  await second?.retry().orThrow();
  await third?.delete({ force: true }).orThrow();
  // It has not given up meanwhile, and waits as it did.
  expect(await waiters(client)).toEqual(waiting);
  await client.query("COMMIT");
  expect(await cancelled.orThrow()).toMatchObject({ outcome: "cancelled" });
});

it("commands of one call, of which one waits for a key, do not wait for it", async () => {
  const { service, ship, charge, client, schema } = await openShop();
  const keyed = await charge.create(payload).orThrow();
  const plain = await ship.create(payload, { delayMs: 60_000 }).orThrow();
  await client.query(`SELECT hash FROM ${schema}.keys FOR UPDATE`);
  const jobs = await service.engine.load([keyed.id, plain.id]);
  const changes = jobs.flatMap((loaded) => (loaded ? [changeOf(loaded.job, "cancel", {})] : []));
  const appended = service.engine.append(changes);
  await isWaitedFor(client);
  while ((await plain.get().orThrow()).state !== "cancelled");
  await client.query("COMMIT");
  expect(await appended).toEqual([{ outcome: "appended" }, { outcome: "appended" }]);
});

it("a try that failed and waits for a key holds up no other that failed", async () => {
  const { service, ship, charge, client, schema } = await openShop();
  await charge.create(payload).orThrow();
  await ship.create(payload).orThrow();
  const claim = async (type: string) => {
    const names = { service: "shop", queue: type, type, lane: `shop/${type}/${type}@1` };
    const lanes = [{ ...names, free: 1, leaseMs: 60_000 }];
    const { jobs } = await service.engine.claim({ worker: "w", lanes, limit: 1 });
    const [job] = jobs.map((claimed) => claimed.job);
    if (!job) throw new Error(`There is no job of ${type}.`);
    return job;
  };
  const [keyed, plain] = [await claim("charge"), await claim("ship")];
  const failed = (job: Job) => service.engine.settle([failureOf(job)]);
  await client.query(`SELECT hash FROM ${schema}.keys FOR UPDATE`);
  const settled = failed(keyed);
  const waiting = await isWaitedFor(client);
  expect(await failed(plain)).toEqual([{ outcome: "appended" }]);
  expect(await waiters(client)).toEqual(waiting);
  await client.query("COMMIT");
  expect(await settled).toEqual([{ outcome: "appended" }]);
});
