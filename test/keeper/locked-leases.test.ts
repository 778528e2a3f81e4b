// Leases that transactions have locked, as atomic handlers do, on PostgreSQL: the keeper takes them as held, and they hide no
// lease that has lapsed.
import { connect, defineJob, defineService } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { dutyBatchMax } from "#millrace/keeper/duty.js";
import { freshSchema } from "../support/postgres.js";
import { openTransaction } from "../support/postgres-locks.js";

const shop = defineService("shop", { print: defineJob({ payload: z.object({}) }) });

it("a lapsed lease is found behind more locked ones than the keeper takes at once", async () => {
  const { url, schema, storeUrl } = await freshSchema();
  const service = await connect(shop, { url: storeUrl, keeper: { tickMs: 50 } });
  onTestFinished(() => service.stop());
  const count = dutyBatchMax + 10;
  const payloads = Array.from({ length: count }, () => ({ payload: {} }));
  const created = await service.jobs.print.createMany(payloads).orThrow();
  const ids = created.map((job) => job.unwrap().id).sort();
  const names = { service: "shop", queue: "print", type: "print", lane: "shop/print/print@1" };
  const lanes = [{ ...names, free: count, leaseMs: 1 }];
  const claimed = await service.engine.claim({ worker: "lost", lanes, limit: count });
  expect(claimed.jobs.length).toBe(count);
  // A request to stop gives each job a lease of its own, which can be locked.
  const [first = "", last = ""] = [ids[0], ids.at(-1)];
  await service.ref(first).cancel("not needed").orThrow();
  const client = await openTransaction(url);
  const locked = await client.query(
    `SELECT id FROM ${schema}.leases WHERE id <> '${last}' FOR NO KEY UPDATE`,
  );
  expect(locked.rowCount).toBe(count - 1);
  service.jobs.print.handle(() => undefined);
  await service.start();
  // Its lease is taken from the worker that says nothing, and it runs again.
  await service.ref(last).wait().orThrow();
  const { entries } = await service.reads.jobs({ state: ["active"], limit: 1 }).orThrow();
  expect(entries.length).toBe(1);
});
