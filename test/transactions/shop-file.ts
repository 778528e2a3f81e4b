// A shop whose own tables stand in the file of its jobs, with a connection of its own to that file.
import Database from "better-sqlite3";
import { type ConnectOptions, type Result, TransactionRefused } from "millrace";
import { expect, onTestFinished } from "vitest";
import { shop } from "../client/shop.js";
import { openService, stores } from "../support/stores.js";

/** A fresh file for jobs. */
export async function sqliteStore(): Promise<{ readonly url: string; readonly path: string }> {
  const store = stores.find(({ name }) => name === "sqlite");
  if (store === undefined) throw new Error("There is no SQLite store.");
  const url = await store.freshUrl();
  return { url, path: url.slice("file:".length) };
}

/**
 * What a connection calls with each of its statements, to show that it reads jobs only when nobody else may write: else it would
 * lose the right to write when somebody does.
 */
export function lookOfWriter(path: string) {
  const other = new Database(path, { timeout: 0 });
  onTestFinished(() => void other.close());
  let looks = 0;
  const look = (sql?: unknown) => {
    if (!/^SELECT[\s\S]*FROM jobs/.test(String(sql))) return;
    looks += 1;
    expect(() => other.exec("BEGIN IMMEDIATE")).toThrow("database is locked");
  };
  return { look, isLooked: () => looks > 0 };
}

/** A service on a fresh file with a table `orders`, and the shop's own connection to it. */
export async function openShop(options: ConnectOptions = {}) {
  const { url, path } = await sqliteStore();
  const service = await openService({ name: "sqlite", freshUrl: async () => url }, shop, options);
  const db = new Database(path);
  onTestFinished(() => void db.close());
  db.exec("CREATE TABLE orders (id TEXT PRIMARY KEY)");
  return { service, db, path };
}

/** Why a transaction was refused. */
export function refusalOf(result: Result<unknown, Error>): TransactionRefused {
  if (result.isOk()) throw new Error("The transaction was accepted.");
  if (!(result.error instanceof TransactionRefused)) throw result.error;
  return result.error;
}
