/**
 * Where the transactions of handlers come from: configured once at `connect`, so that `prepare` and `complete`
 * hand out the caller's own client.
 */
import type { CallerTransaction } from "../../engine/transaction.js";

/**
 * Runs work in a transaction of a database client: commits when the work has succeeded, rolls back when it has failed.
 * Made by `pgTransactions(pool)` and its like.
 */
export type TransactionSource<Client> =
  | AsyncTransactionSource<Client>
  | SyncTransactionSource<Client>;

/** What the work of a transaction fails with when its handler was abandoned, and may still use the client. */
export const abandonedTransaction = new Error(
  "The handler was abandoned, and its transaction is rolled back.",
);

/** A source whose client answers later, as every client of PostgreSQL does. */
export interface AsyncTransactionSource<Client> {
  readonly kind: "async";
  run<Value>(work: (client: Client) => Promise<Value>): Promise<Value>;
  /** How the store uses the client; by its structure if left out. */
  enlist?(client: Client): CallerTransaction;
}

/** A source of synchronous transactions, as better-sqlite3's are. */
export interface SyncTransactionSource<Client> {
  readonly kind: "sync";
  run<Value>(work: (client: Client) => Value): Value;
  /** Runs work that only reads; a write fails. */
  read<Value>(work: (client: Client) => Value): Value;
  enlist?(client: Client): CallerTransaction;
}
