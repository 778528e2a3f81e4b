// The testing kit on stores in SQL: handlers that work in transactions of their own client, driven by a test's clock.
import Database from "better-sqlite3";
import { betterSqliteTransactions, defineJob, defineService, pgTransactions } from "millrace";
import { testService } from "millrace/testing";
import { Pool } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshStoreUrl } from "./support/nats.js";
import { freshSchema } from "./support/postgres.js";
import { sqliteStore } from "./transactions/shop-file.js";

const minuteMs = 60_000;

const shop = defineService("shop", {
  charge: defineJob({
    payload: z.object({ orderId: z.string() }),
    retry: { maxTries: 3, backoff: [minuteMs] },
    continuations: ["ship"],
  }),
  ship: defineJob({ payload: z.object({ orderId: z.string() }) }),
});

describe("a test service on SQLite", () => {
  async function openShop() {
    const { url, path } = await sqliteStore();
    const db = new Database(path);
    onTestFinished(() => void db.close());
    const test = await testService(shop, { url, transactions: betterSqliteTransactions(db) });
    onTestFinished(() => test.stop());
    db.exec("CREATE TABLE charges (orderId TEXT, tries INTEGER)");
    const charges = () => db.prepare("SELECT orderId, tries FROM charges").raw().all();
    return { test, db, charges };
  }

  it("runs handlers whose writes commit with the outcome, through failures, as time is moved", async () => {
    const { test, db, charges } = await openShop();
    const { jobs } = test.service;
    jobs.charge.handle(({ payload, tries, complete }) =>
      complete(({ tx, continueWith }) => {
        tx.prepare("INSERT INTO charges VALUES (?, ?)").run(payload.orderId, tries);
        if (tries === 1) throw new Error("The bank does not answer.");
        return continueWith("ship", payload);
      }),
    );
    jobs.ship.handle(() => {});
    const create = db.transaction((orderId: string) =>
      jobs.charge.createSync({ orderId }, { tx: db }).unwrap(),
    );
    create("o-1");
    await test.drain();
    expect([await test.counts(), charges()]).toEqual([{ retry: 1 }, []]);
    await test.clock.advance(minuteMs);
    await test.drain();
    expect([await test.counts(), charges()]).toEqual([{ completed: 2 }, [["o-1", 2]]]);
    await test.assertCreated("ship", { payload: { orderId: "o-1" } });
    for (let order = 2; order <= 20; order++) create(`o-${order}`);
    await test.drain({ untilIdle: true });
    expect([await test.counts(), charges().length]).toEqual([{ completed: 40 }, 20]);
  });

  it("keeps the lease of a handler while time is moved", async () => {
    const { test } = await openShop();
    let release = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    test.service.jobs.ship.handle(() => released);
    const ref = await test.service.jobs.ship.create({ orderId: "o-1" }).orThrow();
    await test.service.start();
    await test.clock.advance(0);
    await expect.poll(async () => (await test.counts()).active).toBe(1);
    await test.clock.advance(5 * minuteMs);
    release();
    await test.drain();
    const names = (await test.events(ref.id)).map(({ name }) => name);
    expect(names).toEqual(["created", "started", "completed"]);
  });
});

describe("a test service on PostgreSQL", () => {
  it("runs handlers whose writes commit with the outcome", async () => {
    const { url, schema, storeUrl } = await freshSchema();
    const pool = new Pool({ connectionString: url });
    const test = await testService(shop, { url: storeUrl, transactions: pgTransactions(pool) });
    onTestFinished(async () => {
      await test.stop();
      await pool.end();
    });
    await pool.query(`CREATE TABLE ${schema}.charges (order_id text, tries int)`);
    const { jobs } = test.service;
    jobs.charge.handle(async ({ payload, tries, prepare, complete }) => {
      await prepare({ mode: "atomic" }, ({ tx }) =>
        tx.query(`INSERT INTO ${schema}.charges VALUES ($1, $2)`, [payload.orderId, tries]),
      );
      if (tries === 1) throw new Error("The bank does not answer.");
      return complete(({ continueWith }) => continueWith("ship", payload));
    });
    jobs.ship.handle(() => {});
    const client = await pool.connect();
    await client.query("BEGIN");
    await jobs.charge.create({ orderId: "o-1" }, { tx: client }).orThrow();
    await client.query("COMMIT");
    client.release();
    await test.drain();
    expect(await test.counts()).toEqual({ retry: 1 });
    await test.drain({ untilIdle: true });
    expect(await test.counts()).toEqual({ completed: 2 });
    const { rows } = await pool.query(`SELECT * FROM ${schema}.charges`);
    expect(rows).toEqual([{ order_id: "o-1", tries: 2 }]);
  });
});

describe("a test service is refused", () => {
  it("with transactions on a store that cannot take part in them", async () => {
    const { path } = await sqliteStore();
    const db = new Database(path);
    onTestFinished(() => void db.close());
    const transactions = betterSqliteTransactions(db);
    await expect(testService(shop, { transactions })).rejects.toMatchObject({
      _tag: "TransactionsNotSupported",
    });
  });

  it("on a store that neither is in memory nor takes part in transactions", async () => {
    await expect(testService(shop, { url: await freshStoreUrl() })).rejects.toMatchObject({
      _tag: "InvalidOption",
      field: "url",
    });
  });
});
