// What a PostgreSQL store holds of keyed jobs that are claimed and end in numbers, and what it finds of a key that nobody
// looks after. The conformance suite says what keys do.
import { connect, defineJob, defineService } from "millrace";
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { openPostgres } from "#millrace/engine/postgres/engine.js";
import { execute, freshSchema } from "../support/postgres.js";
import { openTransaction, waiters } from "../support/postgres-locks.js";
import { gate } from "../worker/workshop.js";

const shop = defineService("shop", {
  sync: defineJob({
    payload: z.object({ tenant: z.string(), number: z.number() }),
    concurrency: 200,
    keyConcurrency: { key: ["/tenant"], maxActive: 1 },
    queue: { maxQueuedPerKey: 1, whenFull: "coalesce" },
  }),
});

const keyCount = 40;

/** A service with two jobs for each of many keys; the handlers of the first ones have begun and wait for the gate. */
async function syncingShop() {
  const { url, schema, storeUrl } = await freshSchema();
  const service = await connect(shop, { url: storeUrl, instance: "mill-1" });
  const [end, allBegun] = [gate(), gate()];
  onTestFinished(async () => {
    end.open();
    await service.stop();
  });
  const payloads = [0, 1].flatMap((number) =>
    Array.from({ length: keyCount }, (_, key) => ({ payload: { tenant: `t${key}`, number } })),
  );
  const created = (await service.jobs.sync.createMany(payloads).orThrow()).map((job) =>
    job.unwrap(),
  );
  const running = new Set<string>();
  const ran: string[] = [];
  service.jobs.sync.handle(async ({ payload: { tenant, number } }) => {
    if (running.has(tenant)) throw new Error(`Two jobs of ${tenant} ran at once.`);
    running.add(tenant);
    ran.push(`${tenant}/${number}`);
    if (ran.length === keyCount) allBegun.open();
    await end.opened;
    running.delete(tenant);
  });
  await service.start();
  await allBegun.opened;
  const counts = async () => {
    const count = (table: string) => `(SELECT count(*) FROM ${schema}.${table})::int AS ${table}`;
    const tables = ["leases", "shared_leases", "held", "slots", "waiting"].map(count).join(", ");
    return (await execute(url, `SELECT ${tables}`))[0];
  };
  return { service, created, ran, end, counts };
}

const over = { leases: 0, shared_leases: 0, held: 0, slots: 0, waiting: 0 };
const ofAllKeys = { held: keyCount, slots: keyCount, waiting: keyCount };

describe("jobs of many keys that were claimed together", () => {
  it("have one lease, and when they end the next of each key run", async () => {
    const { created, ran, end, counts } = await syncingShop();
    expect(await counts()).toEqual({ ...ofAllKeys, leases: 0, shared_leases: 1 });
    end.open();
    for (const job of created) await job.wait().orThrow();
    expect(ran.slice(0, keyCount).every((name) => name.endsWith("/0"))).toBe(true);
    expect(new Set(ran).size).toBe(2 * keyCount);
    expect(await counts()).toEqual(over);
  });

  it("are told as the holders of their keys, also to a create that has no room", async () => {
    const { service, created } = await syncingShop();
    const [holder, waiter] = [created[7]?.id, created[keyCount + 7]?.id];
    const { hash } = (await service.reads.job(holder ?? "").orThrow()).key ?? {};
    const key = await service.reads.key({ hash: hash ?? "" }).orThrow();
    expect(key).toMatchObject({ active: [{ jobId: holder, worker: "mill-1" }], queued: [waiter] });
    await service
      .ref(waiter ?? "")
      .cancel("not needed")
      .orThrow();
    const full = defineService("shop", {
      sync: defineJob({
        payload: z.object({ tenant: z.string(), number: z.number() }),
        keyConcurrency: { key: ["/tenant"], maxActive: 1 },
        queue: { maxQueuedPerKey: 0, whenFull: "coalesce" },
      }),
    });
    const other = await connect(full, { engine: service.engine });
    const submitted = await other.jobs.sync.submit({ tenant: "t7", number: 2 }).orThrow();
    expect(submitted).toMatchObject({ outcome: "coalesced", job: { id: holder } });
  });

  it("keep their keys when they get leases of their own", async () => {
    const { service, created, end, counts } = await syncingShop();
    // Its handler does not heed the request, and completes.
    await service
      .ref(created[0]?.id ?? "")
      .cancel("not needed")
      .orThrow();
    expect(await counts()).toEqual({ ...ofAllKeys, leases: keyCount, shared_leases: 0 });
    end.open();
    for (const job of created) await job.wait().orThrow();
    expect(await counts()).toEqual(over);
  });
});

/** More keys than one look of a worker takes in. */
const manyKeys = 1_100;

it("a worker finds a key whose next job was not let in, behind many others that are in order", async () => {
  const { url, schema, storeUrl } = await freshSchema();
  const service = await connect(shop, { url: storeUrl });
  onTestFinished(() => service.stop());
  const first = await service.jobs.sync.create({ tenant: "acme", number: 0 }).orThrow();
  const next = await service.jobs.sync.create({ tenant: "acme", number: 1 }).orThrow();
  // The first has ended, and whoever ended it died before it could let the next one in.
  const at = (table: string) => `${schema}.${table}`;
  const names =
    "n, run_at, deadline, updated_at, started_at, lane, rank, version, run, tries, token, key_max, noted";
  await execute(
    url,
    `DELETE FROM ${at("slots")} WHERE job = '${first.id}'`,
    `DELETE FROM ${at("ready")} WHERE id = '${first.id}'`,
    // All others have their slots taken, and stand before it.
    `INSERT INTO ${at("waiting")} (${names}, id, state, detail, key, cause)
      SELECT ${names.replace("n,", "-i,")}, id || i, state, detail, '!' || i, cause
      FROM ${at("waiting")}, generate_series(1, ${manyKeys}) AS i`,
    `INSERT INTO ${at("keys")} SELECT '!' || i, service, type, '!' || i, max_active, max_queued, when_full, takeovers
      FROM ${at("keys")}, generate_series(1, ${manyKeys}) AS i`,
    `INSERT INTO ${at("slots")} SELECT 'k:!' || i, 'other' || i, 1, NULL FROM generate_series(1, ${manyKeys}) AS i`,
  );
  service.jobs.sync.handle(() => undefined);
  await service.start();
  await next.wait().orThrow();
  expect(await execute(url, `SELECT count(*)::int FROM ${at("waiting")}`)).toEqual([
    { count: manyKeys },
  ]);
}, 60_000);

describe("while a transaction of the caller's has locked many keys whose jobs end", () => {
  const lockedCount = 20;
  const contract = defineService("shop", {
    print: defineJob({ payload: z.object({}) }),
    sync: defineJob({
      payload: z.object({ tenant: z.number() }),
      concurrency: lockedCount,
      keyConcurrency: { key: ["/tenant"], maxActive: 1 },
      queue: { maxQueuedPerKey: 1 },
    }),
  });

  /** A process with few connections that has ended the first job of each key, one by one, while somebody had locked the keys. */
  async function lockedShop() {
    const { url, schema, storeUrl } = await freshSchema();
    const small = new URL(storeUrl);
    small.searchParams.set("poolMax", "3");
    const open = async () => {
      const service = await connect(contract, { url: small.href });
      onTestFinished(() => service.stop());
      return service;
    };
    const service = await open();
    const gates = Array.from({ length: lockedCount }, () => gate());
    onTestFinished(() => {
      for (const each of gates) each.open();
    });
    const create = (tenant: number) => service.jobs.sync.create({ tenant }).orThrow();
    const [first, second] = [
      await Promise.all(gates.map((_, tenant) => create(tenant))),
      await Promise.all(gates.map((_, tenant) => create(tenant))),
    ];
    const allBegun = gate();
    let begun = 0;
    service.jobs.sync.handle(async ({ payload }) => {
      begun += 1;
      if (begun === lockedCount) allBegun.open();
      await gates[payload.tenant]?.opened;
    });
    service.jobs.print.handle(() => undefined);
    await service.start();
    await allBegun.opened;
    const client = await openTransaction(url);
    await client.query(`SELECT hash FROM ${schema}.keys FOR UPDATE`);
    for (const [tenant, each] of gates.entries()) {
      each.open();
      await first[tenant]?.wait().orThrow();
    }
    return { service, open, client, second };
  }

  const areEnded = async (refs: readonly { wait: () => { orThrow(): Promise<unknown> } }[]) => {
    for (const ref of refs) await ref.wait().orThrow();
  };

  it("creates, claims, renewals and ends of others go on, and what was left is done after its commit", async () => {
    const { service, client, second } = await lockedShop();
    for (let count = 0; count < 10; count++) {
      await service.jobs.print.run({}).orThrow();
      const job = { service: "shop", type: "sync", id: second[0]?.id ?? "" };
      const [renewed] = await service.engine.renew([{ job, token: 1, leaseMs: 1_000 }]);
      expect(renewed).toEqual({ outcome: "lost", state: "pending" });
    }
    expect(await waiters(client)).toEqual([]);
    await client.query("COMMIT");
    await areEnded(second);
  }, 25_000);

  it("its process stops without waiting, and another one does what was left", async () => {
    const { service, open, client, second } = await lockedShop();
    await service.stop();
    const other = await open();
    await client.query("COMMIT");
    other.jobs.sync.handle(() => undefined);
    await other.start();
    await areEnded(second.map(({ id }) => other.ref(id)));
  }, 25_000);
});

it("a worker that always has more jobs than places looks at keys now and then", async () => {
  const { schema, storeUrl, url } = await freshSchema();
  const clock = new MovableClock();
  const engine = await openPostgres(storeUrl, { clock });
  onTestFinished(() => engine.close());
  const env = new Environment(engine, clock, () => openPostgres(storeUrl, { clock }));
  await env.create({ id: "first", key: env.key("k", { maxQueued: 1 }) });
  await env.claimOne();
  await env.create({ id: "next", key: env.key("k", { maxQueued: 1 }) });
  // A process died before it let the next one in.
  await execute(url, `DELETE FROM ${schema}.slots`);
  await env.createMany(3, { type: "other" });
  const lined = () => execute(url, `SELECT id FROM ${schema}.ready WHERE id = 'next'`);
  await env.claimOne({ type: "other" });
  expect(await lined()).toEqual([]);
  const before = performance.now.bind(performance);
  const later = vi.spyOn(performance, "now").mockImplementation(() => before() + 31_000);
  onTestFinished(() => later.mockRestore());
  await env.claimOne({ type: "other" });
  expect(await lined()).toEqual([{ id: "next" }]);
});
