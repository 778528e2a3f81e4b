// The order in which transactions on PostgreSQL lock what others may wait for, so that they never wait in a circle. A
// circle is found by the server only after a second, in which everybody waits who needs one of its rows.
import { connect, defineJob, defineService, type Job, type JobEvent } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import type { Change } from "#millrace/engine/engine.js";
import { failureOf, outcomeOf } from "../support/changes.js";
import { freshSchema } from "../support/postgres.js";
import { connected, isWaitedFor, openTransaction } from "../support/postgres-locks.js";

const order = z.object({ orderId: z.string() });
const contract = defineService("shop", {
  ship: defineJob({ payload: order }),
  charge: defineJob({
    payload: order,
    keyConcurrency: { key: ["/orderId"], maxActive: 1 },
    queue: { maxQueuedPerKey: 5 },
  }),
});

/** A service, a transaction that locks rows, and a way to ask whether anybody has locked one. */
async function openShop() {
  const { url, schema, storeUrl } = await freshSchema();
  const service = await connect(contract, { url: storeUrl });
  onTestFinished(() => service.stop());
  const [client, other] = [await openTransaction(url), await connected(url)];
  const lock = (table: string, condition = "true") =>
    client.query(`SELECT 1 FROM ${schema}.${table} WHERE ${condition} FOR UPDATE`);
  const isFree = async (table: string, condition = "true") => {
    const sql = `SELECT 1 FROM ${schema}.${table} WHERE ${condition}`;
    expect((await other.query(sql)).rowCount).toBe(1);
    return (await other.query(`${sql} FOR UPDATE SKIP LOCKED`)).rowCount === 1;
  };
  /** Starts jobs for a worker that says nothing. */
  const claim = async (type: string, limit: number): Promise<readonly Job[]> => {
    const names = { service: "shop", queue: type, type, lane: `shop/${type}/${type}@1` };
    const lanes = [{ ...names, free: limit, leaseMs: 60_000 }];
    const { jobs } = await service.engine.claim({ worker: "w", lanes, limit });
    return jobs.map(({ job }) => job);
  };
  return { service, client, lock, isFree, claim };
}

it("a command that waits for a key has not locked its job: who has the key may be about to replace it", async () => {
  const { service, client, isFree, lock } = await openShop();
  const job = await service.jobs.charge.create({ orderId: "o-1" }, { delayMs: 60_000 }).orThrow();
  await lock("keys");
  const cancelled = job.cancel();
  await isWaitedFor(client);
  expect(await isFree("waiting", `id = '${job.id}'`)).toBe(true);
  await client.query("COMMIT");
  expect(await cancelled.orThrow()).toMatchObject({ outcome: "cancelled" });
});

it("an outcome that waits for its lease has not locked its key", async () => {
  const { service, client, isFree, lock, claim } = await openShop();
  await service.jobs.charge.create({ orderId: "o-1" }).orThrow();
  const changes = (await claim("charge", 1)).map(failureOf);
  await lock("leases");
  const settled = service.engine.settle(changes);
  await isWaitedFor(client);
  expect(await isFree("keys")).toBe(true);
  await client.query("COMMIT");
  expect(await settled).toEqual([{ outcome: "appended" }]);
});

it("outcomes of one batch lock the keys of their continuations in the order that all keep", async () => {
  const { service, client, isFree, lock, claim } = await openShop();
  const ids = ["o-1", "o-2"];
  for (const id of ids) {
    await service.jobs.charge.create({ orderId: id }, { id }).orThrow();
    await service.jobs.ship.create({ orderId: id }).orThrow();
  }
  // What continues the jobs is like what is there under two keys.
  const byKey = new Map<string, JobEvent>();
  for (const loaded of await service.engine.load(ids, { history: true }))
    byKey.set(loaded?.job.key?.hash ?? "", loaded?.events?.[0] as JobEvent);
  const [smaller = "", larger = ""] = [...byKey.keys()].sort();
  const changes = (await claim("ship", 2)).map((job, index): Change => {
    const id = `next-${index}`;
    const created = byKey.get(index === 0 ? larger : smaller) as JobEvent;
    const follow = [
      {
        job: { service: "shop", type: "charge", id },
        expect: { version: 0 },
        event: { ...created, id: `created-${id}`, jobId: id },
      },
    ];
    return { ...outcomeOf(job, "complete", { completedBy: "w" }), follow };
  });
  await lock("keys", `hash = '${smaller}'`);
  const settled = service.engine.settle(changes);
  await isWaitedFor(client);
  expect(await isFree("keys", `hash = '${larger}'`)).toBe(true);
  await client.query("COMMIT");
  expect(await settled).toEqual([{ outcome: "appended" }, { outcome: "appended" }]);
});
