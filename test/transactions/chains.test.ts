// Chains in transactions of the caller's: started and completed there, they commit and roll back with its data.
import Database from "better-sqlite3";
import {
  type AsyncTransactionSource,
  connect,
  defineJob,
  defineService,
  pgTransactions,
  type TransactionClient,
} from "millrace";
import { Pool } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshSchema } from "../support/postgres.js";
import { sqliteStore } from "./shop-file.js";

const order = z.object({ orderId: z.string() });

const contract = defineService("shop", {
  awaitPayment: defineJob({
    payload: order,
    result: z.object({ paid: z.boolean() }),
    continuations: ["ship"],
  }),
  ship: defineJob({ payload: order, result: z.object({ shipped: z.boolean() }) }),
});

const payload = { orderId: "o-1" };

async function onSqlite() {
  const { url, path } = await sqliteStore();
  const service = await connect(contract, { url });
  onTestFinished(() => service.stop());
  const db = new Database(path);
  onTestFinished(() => void db.close());
  const run = async <Value>(work: (tx: TransactionClient) => Promise<Value>): Promise<Value> => {
    db.exec("BEGIN IMMEDIATE");
    try {
      const value = await work(db);
      db.exec("COMMIT");
      return value;
    } catch (error) {
      db.exec("ROLLBACK");
      throw error;
    }
  };
  return { service, run };
}

async function onPostgres() {
  const { url, schema } = await freshSchema();
  const own = new URL(url);
  own.searchParams.set("schema", schema);
  const service = await connect(contract, { url: own.href });
  onTestFinished(() => service.stop());
  const pool = new Pool({ connectionString: url });
  onTestFinished(() => pool.end());
  const source: AsyncTransactionSource<TransactionClient> = pgTransactions(pool);
  return { service, run: source.run };
}

describe.for([
  { name: "sqlite", open: onSqlite },
  { name: "postgres", open: onPostgres },
])("a chain in a transaction on $name", ({ open }) => {
  it("starts with the commit", async () => {
    const { service, run } = await open();
    const { chains } = service;
    const undone = run(async (tx) => {
      await chains.start("awaitPayment", payload, { tx, id: "undone" }).orThrow();
      throw new Error("no stock");
    });
    await expect(undone).rejects.toThrow("no stock");
    const chain = await run((tx) => chains.start("awaitPayment", payload, { tx }).orThrow());
    expect(await chains.get("undone")).toMatchObject({ error: { _tag: "JobNotFound" } });
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
  });

  it("is completed with the commit, several steps at once", async () => {
    const { service, run } = await open();
    const { chains } = service;
    const chain = await chains.start("awaitPayment", payload).orThrow();
    const complete = (tx: TransactionClient) =>
      chains
        .complete(
          chain,
          async ({ job, complete }) => {
            if (job.type !== "awaitPayment") throw new Error(`It has come to ${job.type}.`);
            const next = await complete(job, ({ continueWith }) => continueWith("ship", payload));
            await complete(next, () => ({ shipped: true }));
          },
          { tx },
        )
        .orThrow();
    const undone = run(async (tx) => {
      expect(await complete(tx)).toMatchObject({ state: "completed", output: { shipped: true } });
      throw new Error("no stock");
    });
    await expect(undone).rejects.toThrow("no stock");
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
    await run(complete);
    expect(await chains.wait(chain).orThrow()).toEqual({ shipped: true });
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "completed", count: 2 });
  });

  it("is completed in the transaction that started it, and only once", async () => {
    const { service, run } = await open();
    const { chains } = service;
    const chain = await run(async (tx) => {
      const started = await chains.start("awaitPayment", payload, { tx }).orThrow();
      const pay = () =>
        chains.complete(
          started,
          async ({ job, complete }) => void (await complete(job, () => ({ paid: true }) as never)),
          { tx },
        );
      expect((await pay().orThrow()).state).toBe("completed");
      expect(await pay()).toMatchObject({ error: { _tag: "JobAlreadyCompleted" } });
      return started;
    });
    expect((await chains.get(chain).orThrow()).state).toBe("completed");
  });

  it("refuses what is no transaction", async () => {
    const { service } = await open();
    const chain = await service.chains.start("awaitPayment", payload).orThrow();
    const refused = await service.chains.complete(chain, () => {}, { tx: {} as never });
    expect(refused).toMatchObject({ error: { _tag: "InvalidOption", field: "tx" } });
  });
});
