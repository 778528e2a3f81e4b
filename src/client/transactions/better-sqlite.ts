/**
 * better-sqlite3: the connection itself is the transaction, because a connection has at most one.
 */
import { TransactionRefused } from "../../engine/errors.js";
import type { StatementRow, StatementValue, SyncTransaction } from "../../engine/transaction.js";
import type { SyncTransactionSource } from "./source.js";
import { hasMethod, type Members } from "./transaction-client.js";

interface PreparedStatement {
  readonly reader: boolean;
  safeIntegers(on: boolean): unknown;
  all(...values: readonly StatementValue[]): unknown[];
  run(...values: readonly StatementValue[]): unknown;
}

/** What is used of a better-sqlite3 connection. */
export interface BetterSqliteClient {
  readonly open: boolean;
  readonly readonly: boolean;
  readonly inTransaction: boolean;
  prepare(sql: string): unknown;
  exec(sql: string): unknown;
}

/** The statements that are prepared on each connection. */
const prepared = new WeakMap<object, Map<string, PreparedStatement>>();

/** Whether a client is a better-sqlite3 connection. */
export function isBetterSqlite(client: Members): client is Members & BetterSqliteClient {
  return (
    hasMethod(client, "prepare") &&
    hasMethod(client, "exec") &&
    typeof client.inTransaction === "boolean"
  );
}

/** The transaction that is open on a better-sqlite3 connection. */
export function betterSqliteTransaction(
  client: BetterSqliteClient,
): SyncTransaction | TransactionRefused {
  if (!client.open) {
    const message = "The better-sqlite3 connection is closed; give one that is open.";
    return new TransactionRefused({ reason: "closed", message });
  }
  if (client.readonly) {
    const message = "The better-sqlite3 connection is read-only; open the file without readonly.";
    return new TransactionRefused({ reason: "read_only", message });
  }
  return {
    kind: "sync",
    client,
    isOpen: () => client.open && client.inTransaction,
    execute: (sql, values) => execute(client, sql, values),
  };
}

function execute(
  client: BetterSqliteClient,
  sql: string,
  values: readonly StatementValue[],
): readonly StatementRow[] {
  let statements = prepared.get(client);
  if (statements === undefined) {
    statements = new Map();
    prepared.set(client, statements);
  }
  let statement = statements.get(sql);
  if (statement === undefined) {
    statement = client.prepare(sql) as PreparedStatement;
    // The connection may give all integers as bigints; the store's own are numbers.
    statement.safeIntegers(false);
    statements.set(sql, statement);
  }
  if (statement.reader) return statement.all(...values) as StatementRow[];
  statement.run(...values);
  return [];
}

/**
 * Handler transactions on a better-sqlite3 connection to the store's own file. They are synchronous: each begins with
 * `BEGIN IMMEDIATE` when `prepare` or `complete` calls back and ends when the callback returns. In atomic mode
 * `prepare` only reads, because a transaction that stays open would stop every other writer of the file.
 *
 * @example
 * const service = await connect(shop, { url: "file:shop.db", transactions: betterSqliteTransactions(db) });
 */
export function betterSqliteTransactions<Client extends BetterSqliteClient>(
  db: Client,
): SyncTransactionSource<Client> {
  return {
    kind: "sync",
    run: (work) => {
      db.exec("BEGIN IMMEDIATE");
      try {
        const value = work(db);
        db.exec("COMMIT");
        return value;
      } catch (error) {
        // SQLite ends some failed transactions by itself.
        if (db.inTransaction) db.exec("ROLLBACK");
        throw error;
      }
    },
    read: (work) => {
      db.exec("BEGIN");
      try {
        db.exec("PRAGMA query_only = 1");
        return work(db);
      } catch (error) {
        throw isWriteRefused(error) ? writesInComplete() : error;
      } finally {
        db.exec("ROLLBACK; PRAGMA query_only = 0");
      }
    },
  };
}

function isWriteRefused(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "SQLITE_READONLY";
}

function writesInComplete(): TransactionRefused {
  const message =
    'On SQLite an atomic prepare may only read, because it would stop every other writer of the file: write in complete, or prepare with { mode: "staged" }.';
  return new TransactionRefused({ reason: "read_only", message });
}
