/**
 * How SQLite is written to. One transaction writes at a time, so that positions are counted in the process
 * and nothing has to be locked.
 */
import { insertJob } from "../sql/create.js";
import { ownRows } from "../sql/log.js";
import { eventColumns } from "../sql/rows.js";
import type { Dialect } from "../sql/transaction.js";

/** Inserts an event: its position, its job's number, and its values. */
export const insertEvent = `INSERT INTO events (seq, job, ${eventColumns}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)`;

/** The dialect of SQLite. */
export const sqliteDialect: Dialect = {
  *appendEvent(tx, n, values) {
    tx.seq += 1;
    yield { sql: insertEvent, values: [tx.seq, n, ...values] };
  },
  *insertJob(tx, values) {
    tx.seq += 1;
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
