// Bare better-sqlite3, the yardstick: what SQLite itself gives to one fixed and fair script. Prepared
// statements, WAL, synchronous=FULL, one table and the one index that a plain claim needs. It keeps no
// history, checks no version, holds no lease and runs no handler.
import { join } from "node:path";
import Database from "better-sqlite3";
import { type Bench, verify } from "./bench.js";
import { payloadOf } from "./payload.js";
import { bareClaimBatchSize, createBatchSize } from "./sizes.js";
import { now, ratePerSecond } from "./statistics.js";

const schema = `
  CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    run_at INTEGER NOT NULL,
    payload TEXT NOT NULL,
    token INTEGER NOT NULL DEFAULT 0,
    ended_at INTEGER
  ) STRICT;
  CREATE INDEX jobs_ready ON jobs (queue, run_at) WHERE state = 'pending';
`;
const insert = "INSERT INTO jobs (queue, state, run_at, payload) VALUES ('bench', 'pending', ?, ?)";
const claim = `
  UPDATE jobs SET state = 'active', token = token + 1
  WHERE id IN (
    SELECT id FROM jobs WHERE queue = 'bench' AND state = 'pending' AND run_at <= ?
    ORDER BY run_at LIMIT ${bareClaimBatchSize}
  )
  RETURNING id, payload
`;
const complete =
  "UPDATE jobs SET state = 'completed', ended_at = ? WHERE id = ? AND state = 'active'";

/** What the settings are called in the table's notes. */
export const bareSettings = `better-sqlite3, prepared statements, WAL, synchronous=FULL, one table, one index; drain: claim and complete in batches of ${bareClaimBatchSize}, a commit each; no history`;

/** Single-row durable commits per second, one after the other. */
export function bareCreateSequential(bench: Bench): Promise<number> {
  const rows = bench.sizes.bareSingleRows;
  return withDatabase(bench, (database) => {
    const statement = database.prepare(insert);
    const start = now();
    for (let number = 0; number < rows; number += 1) statement.run(Date.now(), payloadText(number));
    const rate = ratePerSecond(rows, start);
    verifyCount(database, "pending", rows);
    return rate;
  });
}

/** Rows per second, inserted in durable batches. */
export function bareCreateMany(bench: Bench): Promise<number> {
  const rows = bench.sizes.bareBatchedRows;
  return withDatabase(bench, (database) => {
    const start = now();
    insertAll(database, rows);
    const rate = ratePerSecond(rows, start);
    verifyCount(database, "pending", rows);
    return rate;
  });
}

/** Rows per second, claimed and completed in durable batches. */
export function bareDrain(bench: Bench): Promise<number> {
  const rows = bench.sizes.bareClaimJobs;
  return withDatabase(bench, (database) => {
    insertAll(database, rows);
    const claimBatch = database.prepare<[number], { id: number; payload: string }>(claim);
    const completeOne = database.prepare(complete);
    const completeBatch = database.transaction((jobs: readonly { id: number }[]) => {
      for (const { id } of jobs) completeOne.run(Date.now(), id);
    });
    const start = now();
    for (let completed = 0; completed < rows; completed += bareClaimBatchSize) {
      const jobs = claimBatch.all(Date.now());
      for (const { payload } of jobs) JSON.parse(payload);
      completeBatch.immediate(jobs);
    }
    const rate = ratePerSecond(rows, start);
    verifyCount(database, "completed", rows);
    return rate;
  });
}

function withDatabase(bench: Bench, work: (database: Database.Database) => number) {
  return bench.workspace.inFreshFolder(async (folder) => {
    const database = new Database(join(folder, "bare.db"));
    try {
      database.pragma("journal_mode = WAL");
      database.pragma("synchronous = FULL");
      database.exec(schema);
      return work(database);
    } finally {
      database.close();
    }
  });
}

function insertAll(database: Database.Database, rows: number): void {
  const statement = database.prepare(insert);
  const insertBatch = database.transaction((from: number, to: number) => {
    for (let number = from; number < to; number += 1) {
      statement.run(Date.now(), payloadText(number));
    }
  });
  for (let from = 0; from < rows; from += createBatchSize) {
    insertBatch.immediate(from, Math.min(from + createBatchSize, rows));
  }
}

function payloadText(number: number): string {
  return JSON.stringify(payloadOf(number));
}

function verifyCount(database: Database.Database, state: string, expected: number): void {
  const count = database.prepare("SELECT count(*) FROM jobs WHERE state = ?").pluck();
  const found = count.get(state);
  verify(found === expected, () => `bare: ${found} of ${expected} rows are ${state}`);
}
