// Calls that wait for somebody's open transaction on PostgreSQL, and calls that do not: the ones never hold up the others.
import { connect, defineJob, defineService, type Job } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { lockTimeoutMs } from "#millrace/engine/postgres/settings.js";
import { changeOf, failureOf } from "../support/changes.js";
import { freshSchema } from "../support/postgres.js";
import { connected, isWaitedFor, openTransaction, waiters } from "../support/postgres-locks.js";

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
  return { service, ship, charge, client, schema, url };
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

it("a create whose id somebody is about to store holds up no other create", async () => {
  const { ship, client } = await openShop();
  await ship.create(payload, { id: "plain", tx: client }).orThrow();
  await ship.create(payload, { id: "tagged", tx: client }).orThrow();
  const answered: string[] = [];
  const create = async (id: string, tags: readonly string[] = []) => {
    const created = await ship.create(payload, { id, tags: [...tags] });
    answered.push(id);
    return created;
  };
  const waiting = [create("plain"), create("tagged", ["vip"])];
  while ((await waiters(client)).length < waiting.length);

  const fresh = Array.from({ length: 20 }, () => ship.create(payload).orThrow());
  await Promise.all(fresh);
  // All at once: the time in which those who wait are answered is that of few commits.
  await Promise.all([
    ship.create(payload).orThrow(),
    ship.create(payload, { tags: ["vip"] }).orThrow(),
    ship.create(payload, { delayMs: 60_000 }).orThrow(),
    create("another"),
    ship.createMany([{ payload, id: "one" }, { payload }, { payload, id: "two" }]).orThrow(),
  ]);
  expect(answered).toEqual(["another"]);
  await client.query("COMMIT");
  for (const created of await Promise.all(waiting))
    expect(created).toMatchObject({ error: { _tag: "JobExists" } });
});

it("creates whose ids others do not commit in time are told so, each in its own time, and store nothing", async () => {
  const { service, ship, client } = await openShop();
  const ids = ["a", "b", "c"];
  for (const id of ids) await ship.create(payload, { id, tx: client }).orThrow();
  const [many, ...single] = await Promise.all([
    ship.createMany([...ids, "free"].map((id) => ({ payload, id }))).orThrow(),
    ...ids.map((id) => ship.create(payload, { id })),
  ]);
  const told = many.map((each) => (each.isOk() ? each.value.id : each.error._tag));
  expect(told).toEqual(["StoreBusy", "StoreBusy", "StoreBusy", "free"]);
  for (const created of single) expect(created).toMatchObject({ error: { _tag: "StoreBusy" } });
  await client.query("ROLLBACK");
  for (const id of ids) {
    expect(await service.ref(id).get()).toMatchObject({ error: { _tag: "JobNotFound" } });
    await ship.create(payload, { id }).orThrow();
  }
}, 20_000);

describe("creates under a key that somebody has locked", () => {
  it("hold up none under another key, also where somebody is about to make it", async () => {
    const { charge, client, schema } = await openShop();
    const create = (orderId: string) => charge.create({ orderId }).orThrow();
    const answered: string[] = [];
    const wait = async (orderId: string) => {
      const created = await charge.create({ orderId });
      answered.push(orderId);
      return created;
    };
    await Promise.all(["held", "free"].map(create));
    await client.query(`SELECT hash FROM ${schema}.keys WHERE key LIKE '%held%' FOR UPDATE`);
    await charge.create({ orderId: "made" }, { tx: client }).orThrow();
    const waiting = ["held", "made", "held"].map(wait);
    const begunAt = performance.now();
    await Promise.all(["free", "new", "newer"].map(create));
    expect(performance.now() - begunAt).toBeLessThan(lockTimeoutMs);
    await isWaitedFor(client);
    const many = ["free", "newest"].map((orderId) => ({ payload: { orderId } }));
    const [created] = await Promise.all([
      charge.createMany(many).orThrow(),
      ...["free", "new", "newest"].map(create),
    ]);
    for (const each of created) expect(each.isOk()).toBe(true);
    expect(answered).toEqual([]);
    await client.query("COMMIT");
    for (const each of await Promise.all(waiting)) expect(each.isOk()).toBe(true);
    expect(answered.sort()).toEqual(["held", "held", "made"]);
  }, 20_000);

  it("get it in their turn, where others lock it one after the other, again and again", async () => {
    const { charge, schema, url } = await openShop();
    await charge.create(payload).orThrow();
    let isOver = false;
    // Who waits for them does so for longer than a moment and far shorter than a turn, also where the disk is slow: they do not
    // wait for it.
    const others = Array.from({ length: 3 }, async () => {
      const other = await connected(url);
      await other.query("SET synchronous_commit TO off");
      while (!isOver) {
        await other.query("BEGIN");
        await other.query(`SELECT hash FROM ${schema}.keys FOR UPDATE`);
        await other.query("SELECT pg_sleep(0.15)");
        await other.query("COMMIT");
      }
    });
    const created = [];
    for (let turn = 0; turn < 3; turn++) created.push(await charge.create(payload));
    isOver = true;
    await Promise.all(others);
    for (const each of created) expect(each.isOk()).toBe(true);
  }, 30_000);

  it("are told so in their own time, however many there are", async () => {
    const { charge, client, schema } = await openShop();
    const ids = ["a", "b", "c", "d"];
    for (const orderId of ids) await charge.create({ orderId }).orThrow();
    await client.query(`SELECT hash FROM ${schema}.keys FOR UPDATE`);
    const told = await Promise.all([...ids, ...ids].map((orderId) => charge.create({ orderId })));
    for (const created of told) expect(created).toMatchObject({ error: { _tag: "StoreBusy" } });
    await client.query("ROLLBACK");
    for (const orderId of ids) await charge.create({ orderId }).orThrow();
  }, 20_000);
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
