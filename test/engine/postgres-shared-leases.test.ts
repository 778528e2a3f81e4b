// Jobs that one claim started share a lease in a PostgreSQL store until something happens to one of them. The conformance
// suite says that nobody can tell; here is what the store holds meanwhile, and whom a transaction holds up.
import { connect, defineJob, defineService } from "millrace";
import { Client } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { execute, freshDatabase, freshSchema } from "../support/postgres.js";
import { gate } from "../worker/workshop.js";

const shop = defineService("shop", {
  print: defineJob({ payload: z.object({ number: z.number() }), concurrency: 200 }),
});

const jobCount = 40;

/** Waits until a service listens to others. A worker that claimed before asks then whether its jobs were cancelled meanwhile. */
async function untilListening(url: string): Promise<void> {
  const listening = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
    AND application_name = 'millrace-listener' AND state = 'idle' AND query LIKE 'SHOW%'`;
  while ((await execute(url, listening)).length === 0);
}

/** A service with chains of one job each, all of which were claimed together, and whose handlers wait for the gate. */
async function printingShop() {
  const url = await freshDatabase();
  const service = await connect(shop, { url });
  const [end, allBegun] = [gate(), gate()];
  onTestFinished(async () => {
    end.open();
    await service.stop();
  });
  const start = (number: number) => service.chains.start("print", { number }).orThrow();
  const chains = await Promise.all(Array.from({ length: jobCount }, (_, number) => start(number)));
  // Whoever waits for a chain listens.
  void Promise.all(chains.map((chain) => service.chains.wait(chain)));
  await untilListening(url);
  let begun = 0;
  service.jobs.print.handle(async () => {
    begun += 1;
    if (begun === jobCount) allBegun.open();
    await end.opened;
  });
  await service.start();
  await allBegun.opened;
  const counts = async () => {
    const [row] = await execute(
      url,
      `SELECT (SELECT count(*) FROM millrace.leases)::int AS own, (SELECT count(*) FROM millrace.shared_leases)::int AS shared,
        (SELECT count(*) FROM millrace.held)::int AS held`,
    );
    return row;
  };
  return { url, service, chains, end, counts };
}

describe("jobs that were claimed together", () => {
  it("have one lease, which goes when they end", async () => {
    const { service, chains, end, counts } = await printingShop();
    expect(await counts()).toEqual({ own: 0, shared: 1, held: jobCount });
    end.open();
    for (const chain of chains) await service.chains.wait(chain).orThrow();
    expect(await counts()).toEqual({ own: 0, shared: 0, held: 0 });
  });

  it("get leases of their own when something happens to one of them", async () => {
    const { service, chains, end, counts } = await printingShop();
    const { entries } = await service.reads.jobs({ state: ["active"], limit: 1 }).orThrow();
    await service
      .ref(entries[0]?.id ?? "")
      .cancel("not needed")
      .orThrow();
    expect(await counts()).toEqual({ own: jobCount, shared: 0, held: jobCount });
    end.open();
    for (const chain of chains) await service.chains.wait(chain);
    expect(await counts()).toEqual({ own: 0, shared: 0, held: 0 });
  });

  it("do not wait for a transaction of the caller's that is about one of them", async () => {
    const { url, service, chains, end } = await printingShop();
    const [chosen, ...others] = chains;
    if (!chosen) throw new Error("no chain");
    const tx = new Client({ connectionString: url });
    await tx.connect();
    onTestFinished(() => tx.end());
    await tx.query("BEGIN");
    const completed = await service.chains
      .complete(chosen, async ({ job, complete }) => void (await complete(job, () => undefined)), {
        tx,
      })
      .orThrow();
    expect(completed.state).toBe("completed");
    end.open();
    for (const chain of others) await service.chains.wait(chain).orThrow();
    await tx.query("ROLLBACK");
    await service.chains.wait(chosen).orThrow();
    expect((await service.reads.counts({}).orThrow())[0]).toMatchObject({ count: jobCount });
  });

  it("tell a transaction with an old snapshot to begin anew", async () => {
    const { url, service, chains } = await printingShop();
    const [chosen] = chains;
    if (!chosen) throw new Error("no chain");
    const tx = new Client({ connectionString: url });
    await tx.connect();
    onTestFinished(() => tx.end());
    const complete = () =>
      service.chains.complete(
        chosen,
        async ({ job, complete }) => void (await complete(job, () => undefined)),
        { tx },
      );
    await tx.query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    expect(await complete()).toMatchObject({ error: { _tag: "TransactionConflict" } });
    await tx.query("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ");
    expect((await complete().orThrow()).state).toBe("completed");
    await tx.query("COMMIT");
    expect((await service.chains.get(chosen).orThrow()).state).toBe("completed");
  });

  it("end together also where their results are long", async () => {
    const { storeUrl, url, schema } = await freshSchema();
    const long = "x".repeat(3_000);
    const letters = defineService("letters", {
      write: defineJob({
        payload: z.object({ number: z.number() }),
        result: z.string(),
        concurrency: 200,
      }),
    });
    const service = await connect(letters, { url: storeUrl });
    onTestFinished(() => service.stop());
    const payloads = Array.from({ length: jobCount }, (_, number) => ({ payload: { number } }));
    const created = await service.jobs.write.createMany(payloads).orThrow();
    service.jobs.write.handle(({ payload }) => `${payload.number} ${long}`);
    await service.start();
    for (const [number, result] of created.entries())
      expect(await result.unwrap().wait().orThrow()).toBe(`${number} ${long}`);
    const [row] = await execute(
      url,
      `SELECT (SELECT count(*) FROM ${schema}.held)::int AS held,
        (SELECT count(*) FROM ${schema}.events WHERE name = 'completed')::int AS apart`,
    );
    expect(row).toEqual({ held: 0, apart: jobCount });
  });
});
