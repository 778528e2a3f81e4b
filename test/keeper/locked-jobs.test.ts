// Jobs that transactions have locked, on PostgreSQL: the keeper takes their leases as held, and they hide no other job that it
// has to see to.
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

it("a job that may go on is found behind more locked ones than the keeper takes at once", async () => {
  const { url, schema, storeUrl } = await freshSchema();
  const service = await connect(shop, { url: storeUrl, keeper: { tickMs: 50 } });
  onTestFinished(() => service.stop());
  const first = await service.jobs.print.create({}, { delayMs: 3_600_000 }).orThrow();
  const payloads = Array.from({ length: dutyBatchMax + 10 }, () => ({
    payload: {},
    blockers: [first.id],
  }));
  const created = await service.jobs.print.createMany(payloads).orThrow();
  const last = created.map((job) => job.unwrap()).at(-1);
  const client = await openTransaction(url);
  const locked = await client.query(
    `SELECT id FROM ${schema}.waiting WHERE cause = 'blocked' AND id <> '${last?.id}' FOR UPDATE`,
  );
  expect(locked.rowCount).toBe(payloads.length - 1);
  await first.complete(undefined).orThrow();
  service.jobs.print.handle(() => undefined);
  await service.start();
  await last?.wait().orThrow();
  const { count } = await service.reads.jobs({ state: ["blocked"] }).orThrow();
  expect(count).toBe(payloads.length - 1);
});
