// A source of transactions that does not fit the store is told when the service connects or starts, and not by jobs that die.
// One that cannot be tried just then keeps nobody from starting.
import Database from "better-sqlite3";
import {
  type AsyncTransactionSource,
  betterSqliteTransactions,
  type ConnectOptions,
  connect,
  pgTransactions,
} from "millrace";
import { Pool, type PoolConfig } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { freshDatabase, freshSchema } from "../support/postgres.js";
import { gate } from "../worker/workshop.js";
import { contract, payload } from "./charging-shop.js";
import { sqliteStore } from "./shop-file.js";

/** A service with a handler that works without a transaction, and what its log says. */
async function openService<Tx>(options: ConnectOptions<Tx>) {
  const log: string[] = [];
  const note = (_fields: object, message: string) => void log.push(message);
  const logger = { info: () => {}, warn: note, error: note };
  const service = await connect(contract, { logger, ...options });
  onTestFinished(() => service.stop());
  service.jobs.charge.handle(async () => ({ paid: true }));
  return { service, log };
}

function poolOf(connectionString: string, config: PoolConfig = {}): Pool {
  const pool = new Pool({ connectionString, ...config });
  onTestFinished(() => pool.end());
  return pool;
}

function openDatabase(path: string): Database.Database {
  const db = new Database(path);
  onTestFinished(() => void db.close());
  return db;
}

/** A source whose first answer comes after the start, which the time that it waits is given. */
function slowSource(executeSql: () => Promise<readonly object[]>) {
  const clock = new FakeClock();
  const [asked, answering] = [gate(), gate()];
  const transactions: AsyncTransactionSource<object> = {
    kind: "async",
    run: async (work) => {
      asked.open();
      await answering.opened;
      return work({ executeSql });
    },
  };
  const start = async (service: { start(): Promise<void> }) => {
    const starting = service.start();
    await asked.opened;
    await clock.advance(3_000);
    await starting;
  };
  return { source: { clock, transactions }, start, answering };
}

/** Expects that the service does not start, and that no job is touched. */
async function expectRefused(
  { service }: Awaited<ReturnType<typeof openService>>,
  refusal: object,
): Promise<void> {
  const ref = await service.jobs.charge.create(payload).orThrow();
  await expect(service.start()).rejects.toMatchObject(refusal);
  expect((await ref.events().orThrow()).map(({ name }) => name)).toEqual(["created"]);
}

describe("at connect", () => {
  it("a source that answers at once is refused by PostgreSQL, with the remedy", async () => {
    const { storeUrl } = await freshSchema();
    const transactions = betterSqliteTransactions(openDatabase(":memory:"));
    await expect(connect(contract, { url: storeUrl, transactions })).rejects.toMatchObject({
      _tag: "InvalidOption",
      field: "transactions",
      message: expect.stringMatching(/cannot take part .* such as pgTransactions\(pool\)/),
    });
  });

  it("what is no source is refused", async () => {
    const { url } = await sqliteStore();
    const transactions = { run: () => {} } as never;
    await expect(connect(contract, { url, transactions })).rejects.toMatchObject({
      _tag: "InvalidOption",
      field: "transactions",
    });
  });

  it("no transaction is begun, nor by who starts without handlers", async () => {
    const { url } = await sqliteStore();
    const run = () => Promise.reject(new Error("A transaction was begun."));
    const service = await connect(contract, { url, transactions: { kind: "async", run } });
    onTestFinished(() => service.stop());
    await service.jobs.charge.create(payload).orThrow();
    await service.start();
  });
});

describe("at the start", () => {
  it("a pool of another database is refused, with the remedy", async () => {
    const { storeUrl } = await freshSchema();
    const pool = poolOf(await freshDatabase());
    const opened = await openService({ url: storeUrl, transactions: pgTransactions(pool) });
    await expectRefused(opened, {
      _tag: "TransactionRefused",
      reason: "another_store",
      message: expect.stringContaining("begin it on a client of that database"),
    });
    // Nothing of the trial is left.
    expect([pool.totalCount, pool.idleCount]).toEqual([1, 1]);
  });

  it("a pool of PostgreSQL is refused by SQLite", async () => {
    const { url } = await sqliteStore();
    const transactions = pgTransactions(poolOf((await freshSchema()).url));
    await expectRefused(await openService({ url, transactions }), { reason: "another_store" });
  });

  it("a connection to another file is refused", async () => {
    const { url } = await sqliteStore();
    const db = openDatabase((await sqliteStore()).path);
    const opened = await openService({ url, transactions: betterSqliteTransactions(db) });
    await expectRefused(opened, { reason: "another_store" });
    expect(db.inTransaction).toBe(false);
    db.exec("CREATE TABLE orders (id TEXT)");
  });

  it("a source that gives no transaction is refused", async () => {
    const { url, storeUrl } = await freshSchema();
    const pool = poolOf(url);
    const transactions = {
      kind: "async",
      run: (work) => work(pool),
    } as AsyncTransactionSource<Pool>;
    await expectRefused(await openService({ url: storeUrl, transactions }), { reason: "not_open" });
  });

  it("one that fits is rolled back and used later", async () => {
    const { url, storeUrl } = await freshSchema();
    const pool = poolOf(url, { max: 1 });
    const opened = await openService({ url: storeUrl, transactions: pgTransactions(pool) });
    opened.service.jobs.ship.handle(({ complete }) =>
      complete(async ({ tx }) => void (await tx.query("SELECT 1"))),
    );
    await opened.service.start();
    await opened.service.jobs.ship.run(payload).orThrow();
    expect(opened.log).toEqual([]);
  });

  it("a connection that has a transaction open is let be", async () => {
    const { url, path } = await sqliteStore();
    const db = openDatabase(path);
    const opened = await openService({ url, transactions: betterSqliteTransactions(db) });
    db.exec("BEGIN");
    await opened.service.start();
    expect(opened.log).toEqual([expect.stringContaining("could be tried")]);
    expect(db.inTransaction).toBe(true);
    db.exec("CREATE TABLE orders (id TEXT); COMMIT");
  });

  it("a database that is away keeps nobody from starting", async () => {
    const { storeUrl } = await freshSchema();
    const transactions = pgTransactions(poolOf("postgres://postgres:none@127.0.0.1:1/postgres"));
    const { service, log } = await openService({ url: storeUrl, transactions });
    await service.start();
    expect(log).toEqual([expect.stringContaining("could be tried")]);
    expect(await service.jobs.charge.run(payload).orThrow()).toEqual({ paid: true });
  });

  it("a source that does not answer is not waited for, and one that turns out not to fit stops the worker", async () => {
    const { url } = await sqliteStore();
    const [working, aborted] = [gate(), gate<unknown>()];
    const { source, start, answering } = slowSource(async () => []);
    const errors: string[] = [];
    const error = (_: object, message: string) => void errors.push(message);
    const logger = { info: () => {}, warn: () => {}, error };
    const { service } = await openService({ url, ...source, logger });
    service.jobs.ship.handle(async ({ signal }) => {
      signal.addEventListener("abort", () => aborted.open(signal.reason));
      working.open();
      throw await aborted.opened;
    });
    await start(service);
    const running = await service.jobs.ship.create(payload).orThrow();
    await working.opened;
    answering.open();
    expect(await aborted.opened).toMatchObject({ reason: "shutdown" });
    expect(errors).toEqual([
      expect.stringMatching(/cannot be used: The transaction .*\. The worker stops\.$/),
    ]);
    const later = await service.jobs.ship.create(payload).orThrow();
    await service.stop();
    const again = await connect(contract, { url });
    onTestFinished(() => again.stop());
    const names = async ({ id }: { readonly id: string }) =>
      (await again.ref(id).events().orThrow()).map(({ name }) => name);
    expect(await names(running)).toEqual(["created", "started", "released"]);
    expect(await names(later)).toEqual(["created"]);
  });

  it("a server that answers late, and is about to take over, stops no worker", async () => {
    const { storeUrl } = await freshSchema();
    const told = gate<string>();
    const { source, start, answering } = slowSource(() =>
      Promise.reject(Object.assign(new Error("during recovery"), { code: "25006" })),
    );
    const tell = (_: object, message: string) => told.open(message);
    const logger = { info: () => {}, warn: tell, error: tell };
    const { service } = await openService({ url: storeUrl, ...source, logger });
    await start(service);
    answering.open();
    expect(await told.opened).toContain("could be tried");
    expect(await service.jobs.charge.run(payload).orThrow()).toEqual({ paid: true });
  });
});
