// A shop whose tables are in a database of its own and whose jobs are elsewhere, in a store that cannot take part in
// its transactions.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "better-sqlite3";
import { type ConnectOptions, connect, type JobRef, type TransactionClient } from "millrace";
import { Client } from "pg";
import { onTestFinished } from "vitest";
import type { Engine } from "#millrace/engine/engine.js";
import { openMemory } from "#millrace/engine/memory/engine.js";
import { openOutbox } from "#millrace/engine/open.js";
import { freshSchema } from "../support/postgres.js";
import { shop } from "./shop-contract.js";

/** A database of the shop's own. */
export interface Home {
  /** What `connect` is given as the outbox. */
  readonly outbox: string;
  /** Runs work in a transaction that commits when it succeeds. `tx` is given to creates. */
  within<Value>(work: (tx: TransactionClient) => Promise<Value>): Promise<Value>;
  /** A transaction of its own, which the test ends. */
  begin(): Promise<{
    readonly tx: TransactionClient;
    end(statement: "COMMIT" | "ROLLBACK"): Promise<void>;
  }>;
  /** How many rows lie in the outbox. */
  rows(): Promise<number>;
}

export interface HomeKind {
  readonly name: string;
  fresh(): Promise<Home>;
}

export const homes: readonly HomeKind[] = [
  { name: "sqlite", fresh: sqliteHome },
  { name: "postgres", fresh: postgresHome },
];

async function sqliteHome(): Promise<Home> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-outbox-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const path = join(folder, "app.db");
  const db = new Database(path);
  onTestFinished(() => void db.close());
  db.exec("CREATE TABLE orders (id TEXT)");
  const begin = async () => {
    db.exec("BEGIN IMMEDIATE");
    return { tx: db, end: async (statement: "COMMIT" | "ROLLBACK") => void db.exec(statement) };
  };
  return {
    outbox: `file:${path}`,
    begin,
    within: (work) => within(begin, work),
    rows: async () => Number(db.prepare("SELECT count(*) FROM millrace_outbox").pluck().get()),
  };
}

async function postgresHome(): Promise<Home> {
  const { url, schema, storeUrl } = await freshSchema();
  const connected = async () => {
    const client = new Client({ connectionString: url });
    await client.connect();
    return client;
  };
  const reader = await connected();
  onTestFinished(() => reader.end());
  const begin = async () => {
    const client = await connected();
    await client.query("BEGIN");
    const end = async (statement: "COMMIT" | "ROLLBACK") => {
      await client.query(statement);
      await client.end();
    };
    return { tx: client, end };
  };
  return {
    outbox: storeUrl,
    begin,
    within: (work) => within(begin, work),
    rows: async () =>
      Number((await reader.query(`SELECT count(*) AS n FROM ${schema}.outbox`)).rows[0]?.n),
  };
}

async function within<Value>(
  begin: Home["begin"],
  work: (tx: TransactionClient) => Promise<Value>,
): Promise<Value> {
  const { tx, end } = await begin();
  try {
    const value = await work(tx);
    await end("COMMIT");
    return value;
  } catch (error) {
    await end("ROLLBACK");
    throw error;
  }
}

/** A store in memory that several services may share. */
export function sharedStore(options: Parameters<typeof openMemory>[0] = {}): Engine {
  const engine = openMemory(options);
  onTestFinished(() => engine.close());
  return engine;
}

/** A service of the shop, stopped after the test. */
export async function openShop(home: Home, options: ConnectOptions = {}) {
  const place = options.engine === undefined ? { engine: sharedStore() } : null;
  const service = await connect(shop, { ...place, outbox: home.outbox, ...options });
  onTestFinished(() => service.stop());
  return service;
}

/** Resolves when the outbox is empty, which it is looked at for. */
export async function emptied(home: Home): Promise<void> {
  const outbox = await openOutbox(home.outbox);
  try {
    while ((await outbox.take("shop", 0, 1)).length > 0);
  } finally {
    await outbox.close();
  }
}

/** Resolves when the store knows a job. */
export async function arrived(ref: Pick<JobRef, "get">): Promise<void> {
  while (!(await ref.get()).isOk()) await new Promise<void>((resolve) => setImmediate(resolve));
}
