/**
 * How PostgreSQL is written to: many transactions at once, so that positions come from a sequence
 * and whoever looks for a place of a key or at a record locks it first.
 */
import { recordId } from "../record.js";
import { insertJobAs } from "../sql/create.js";
import { Overtaken } from "../sql/overtaken.js";
import { eventColumns } from "../sql/rows.js";
import type { Dialect } from "../sql/transaction.js";
import { refuseLocked } from "./job-lock.js";
import { readLaterOf } from "./read.js";
import { keepRoundsOfEnd, keepRoundsOfLease } from "./rounds.js";
import { insertKeys, keyRemoved } from "./stand-in.js";

const insertEvent = `INSERT INTO events (job, ${eventColumns}) VALUES (?,?,?,?,?,?,?,?,?,?,?)`;

const insertKey = insertKeys("(VALUES (?::text))");
/** A change instead of a lock, so that a transaction of the caller's that sees less than what was stored before it fails. */
const lockKey = "UPDATE keys SET takeovers = takeovers WHERE hash = ? RETURNING hash";

// A record that is not there cannot be locked, so one that has run out stands in for it.
const insertRecord = `INSERT INTO records (id, version, body, expires_at) VALUES (?, 0, 'null', 0)
  ON CONFLICT (id) DO NOTHING`;
const lockRecord = "SELECT id FROM records WHERE id = ? FOR UPDATE";
const recordRemoved = "A record was removed while it was to be locked.";

/** How often a key or a record is made anew that was removed before it could be locked. */
const lockTriesMax = 3;

const insertJob = `${insertJobAs("nextval('events_seq')")} RETURNING n`;

/** The dialect of PostgreSQL. What removes a log belongs to the transaction, which does some of it at its end. */
export const postgresDialect: Omit<Dialect, "removeLog"> = {
  *appendEvent(_, n, values) {
    yield { sql: insertEvent, values: [n, ...values], silent: true };
  },
  *insertJob(_, values) {
    const [row] = yield { sql: insertJob, values, planned: true };
    return Number(row?.n);
  },
  *readLater(n) {
    return (yield* readLaterOf([n])).get(n) ?? [];
  },
  keepLogOfLease: keepRoundsOfLease,
  keepLogOfEnd: keepRoundsOfEnd,
  forUpdate: "FOR UPDATE SKIP LOCKED",
  forUpdateAtOnce: "FOR UPDATE NOWAIT",
  forKeyShare: "FOR KEY SHARE",
  refuseLocked,
  *lockKey(hash) {
    for (let tries = 1; tries <= lockTriesMax; tries++) {
      yield { sql: insertKey, values: [hash], planned: true, silent: true };
      const [locked] = yield { sql: lockKey, values: [hash], planned: true };
      if (locked) return;
    }
    throw new Overtaken(keyRemoved);
  },
  *lockCircles() {
    // An update instead of a lock, so that a transaction of the caller's that sees less than what was stored before it fails.
    yield {
      sql: `INSERT INTO records (id, version, body) VALUES (?, 1, 'null')
        ON CONFLICT (id) DO UPDATE SET body = excluded.body`,
      values: [recordId.circles],
    };
  },
  *lockRecord(id) {
    for (let tries = 1; tries <= lockTriesMax; tries++) {
      yield { sql: insertRecord, values: [id], silent: true };
      const [locked] = yield { sql: lockRecord, values: [id] };
      if (locked) return;
    }
    throw new Overtaken(recordRemoved);
  },
};
