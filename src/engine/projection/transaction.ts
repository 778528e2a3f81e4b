/**
 * A transaction of a projection. The log has decided where each event stands and when it happened, so that
 * positions are given instead of counted, and time is the log's own. One transaction writes at a time.
 */
import { insertJob } from "../sql/create.js";
import { ownRows } from "../sql/log.js";
import { bodyIndex, eventColumns } from "../sql/rows.js";
import type { Dialect, Transaction } from "../sql/transaction.js";
import { leftToLog } from "./entry.js";
import { Memory } from "./known.js";

/** What the operations of one transaction share. */
export interface ProjectionTransaction extends Transaction {
  /** The time of the event that is applied. */
  now: number;
  /** The earliest time at which a job of the projection becomes due or a slot of an ended one lapses. */
  nextAt: number;
  /** Ends the SELECT of the one row that everybody who writes locks. */
  readonly lock: string;
  /** How a table is emptied, up to its name. */
  readonly empty: string;
  readonly memory: Memory;
}

/** Appends an event at its position. */
export const insertEvent = `INSERT INTO events (seq, job, ${eventColumns}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)`;

/**
 * Events keep the positions of the log, and most are left to it. Nothing has to be
 * locked: whoever writes has locked the projection's own row.
 */
export const projectionDialect: Dialect = {
  *appendEvent(tx, n, values) {
    if (values[bodyIndex] === leftToLog) return;
    yield { sql: insertEvent, values: [tx.seq, n, ...values] };
  },
  *insertJob(tx, values) {
    yield { sql: insertJob, values: [tx.seq, ...values] };
    return tx.seq;
  },
  ...ownRows,
  forUpdate: "",
  forUpdateAtOnce: "",
  forKeyShare: "",
  // biome-ignore lint/correctness/useYield: who writes is alone, and has every lease.
  *refuseLocked() {
    return true;
  },
  *lockKey() {},
  *lockCircles() {},
  *lockRecord() {},
};

/** A transaction of a projection in SQLite, which has one writer and locks nothing. */
export function onSqlite(
  tx: Omit<Transaction, "dialect" | "lanes">,
  memory = new Memory(),
): ProjectionTransaction {
  return {
    ...tx,
    dialect: projectionDialect,
    memory,
    lanes: memory.lanes,
    lock: "",
    empty: "DELETE FROM",
    nextAt: Number.POSITIVE_INFINITY,
  };
}
