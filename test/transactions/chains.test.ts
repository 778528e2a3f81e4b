// Chains and blockers in transactions of the caller's: started, completed and waited for with the caller's own data.
import Database from "better-sqlite3";
import { connect } from "millrace";
import { Client } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { chainShop } from "../client/chain-shop.js";
import { freshSchema } from "../support/postgres.js";
import { sqliteStore } from "./shop-file.js";

const order = { orderId: "o-1" };

/** A service, and a client of the caller's own to the same store. */
async function onSqlite() {
  const { url, path } = await sqliteStore();
  const service = await connect(chainShop, { url });
  onTestFinished(() => service.stop());
  const db = new Database(path);
  onTestFinished(() => void db.close());
  const run = async (sql: string) => void db.exec(sql);
  return { service, tx: db, run, begin: "BEGIN IMMEDIATE" };
}

async function onPostgres() {
  const { url, schema } = await freshSchema();
  const own = new URL(url);
  own.searchParams.set("schema", schema);
  const service = await connect(chainShop, { url: own.href });
  onTestFinished(() => service.stop());
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  const run = async (sql: string) => void (await client.query(sql));
  return { service, tx: client, run, begin: "BEGIN" };
}

const places = [
  { name: "SQLite", open: onSqlite },
  { name: "PostgreSQL", open: onPostgres },
] as const;

describe.for(places)("in a transaction on $name", ({ open }) => {
  it("a chain is started and completed with the caller's data, or not at all", async () => {
    const { service, tx, run, begin } = await open();
    const { chains } = service;
    for (const end of ["ROLLBACK", "COMMIT"] as const) {
      await run(begin);
      const chain = await chains.start("approve", { requestId: end }, { tx, id: end }).orThrow();
      const done = await chains
        .complete(
          chain,
          async ({ job, complete }) => {
            if (job.type !== "approve") throw new Error("It has not moved.");
            const ship = await complete(job, ({ continueWith }) => continueWith("ship", order));
            await complete(ship, () => ({ parcel: "p-1" }));
          },
          { tx },
        )
        .orThrow();
      expect(done).toMatchObject({ state: "completed", output: { parcel: "p-1" } });
      expect((await chains.get(chain)).isErr()).toBe(true);
      await run(end);
    }
    expect((await chains.get("ROLLBACK")).isErr()).toBe(true);
    expect(await chains.wait("COMMIT").orThrow()).toEqual({ parcel: "p-1" });
    expect((await chains.get("COMMIT").orThrow()).count).toBe(2);
  });

  it("a completion that is rolled back leaves the chain where it was", async () => {
    const { service, tx, run, begin } = await open();
    const { chains } = service;
    const chain = await chains.start("approve", { requestId: "r" }).orThrow();
    await run(begin);
    await chains
      .complete(
        chain,
        async ({ job, complete }) => {
          if (job.type === "approve") await complete(job, () => ({ approved: true }));
        },
        { tx },
      )
      .orThrow();
    await run("ROLLBACK");
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
  });

  it("a job may wait for one that the same transaction creates", async () => {
    const { service, tx, run, begin } = await open();
    const { jobs } = service;
    await run(begin);
    const first = await jobs.refund.create(order, { tx }).orThrow();
    const second = await jobs.lone.create(order, { tx, blockers: [first] }).orThrow();
    const missing = await jobs.lone.create(order, { tx, blockers: ["nobody"] });
    expect(missing.isErr() && missing.error).toMatchObject({ _tag: "InvalidBlocker" });
    await run("COMMIT");
    expect((await second.why().orThrow()).sentence).toContain(`job ${first.id} (pending)`);
  });

  it("a chain runs to its end, and what waits for it follows", async () => {
    const { service } = await open();
    service.handle({
      charge: ({ payload, complete }) =>
        complete(({ continueWith }) => continueWith("ship", payload)),
      ship: () => ({ parcel: "p-2" }),
      lone: async ({ loadDependencies }) => (await loadDependencies()).length,
    });
    await service.start();
    const chain = await service.chains.start("charge", order).orThrow();
    const after = await service.jobs.lone.create(order, { blockers: [chain] }).orThrow();
    expect(await after.wait({ timeoutMs: 10_000 }).orThrow()).toBe(1);
    expect(await service.chains.wait(chain).orThrow()).toEqual({ parcel: "p-2" });
    const list = await service.chains.list({ state: ["completed"] }).orThrow();
    expect(list.entries).toMatchObject([{ id: chain.id, currentType: "ship" }]);
    expect(await service.chains.delete(chain).orThrow()).toBe(2);
  });
});

it("a store in memory takes part in no transaction", async () => {
  const service = await connect(chainShop, { url: "memory:" });
  onTestFinished(() => service.stop());
  const chain = await service.chains.start("lone", order).orThrow();
  const tx = new Database(":memory:");
  onTestFinished(() => void tx.close());
  const refused = await service.chains.complete(chain, () => {}, { tx });
  expect(refused.isErr() && refused.error._tag).toBe("TransactionsNotSupported");
});
