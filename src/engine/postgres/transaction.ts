/**
 * A transaction of the PostgreSQL store.
 */
import type { Transaction } from "../sql/transaction.js";
import { postgresDialect } from "./dialect.js";

/** What operations of one transaction share, and what is left to do after it. */
export interface PostgresTransaction extends Transaction {
  /** Keys that another transaction had locked: their next jobs are let in afterwards. */
  readonly late: Set<string>;
}

/** What a transaction needs from the engine that begins it. */
export interface TransactionParts {
  readonly now: number;
  readonly eventId: () => string;
  readonly lanes: Map<string, number>;
}

/** The beginning of a transaction. Positions come from a sequence, so that none is counted here. */
export function newTransaction(parts: TransactionParts): PostgresTransaction {
  const woke = { ready: false, ended: false, cancel: false };
  return { ...parts, dialect: postgresDialect, seq: 0, woke, late: new Set() };
}
