// Bare better-sqlite3, the yardstick: what SQLite itself gives to one fixed and fair script. Prepared
// statements, WAL, synchronous=FULL, one table and the one index that a plain claim needs. It keeps no
// history, checks no version, holds no lease and runs no handler.
import { join } from "node:path";
import Database from "better-sqlite3";
import { type Bench, verify } from "../bench.js";
import { payloadOf } from "../payload.js";
import { bareClaimBatchSize, createBatchSize } from "../sizes.js";
import { now, ratePerSecond } from "../statistics.js";
import type { BareScript } from "./script.js";

const claimBatchSize = bareClaimBatchSize.sqlite;
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
    ORDER BY run_at LIMIT ${claimBatchSize}
  )
  RETURNING id, payload
`;
const complete =
  "UPDATE jobs SET state = 'completed', ended_at = ? WHERE id = ? AND state = 'active'";

/** The bare script of SQLite. */
export const bareSqlite: BareScript = {
  settings: `better-sqlite3, prepared statements, WAL, synchronous=FULL, one table, one index; drain: claim and complete in batches of ${claimBatchSize}, a commit each; no history`,
  createSequential: (bench) =>
    createRound(bench, bench.sizes.warmUpSequentialJobs, bench.sizes.bareSingleRows, insertEach),
  createMany: (bench) =>
    createRound(bench, bench.sizes.warmUpJobs, bench.sizes.bareBatchedRows, insertAll),
  drain: (bench) =>
    withDatabase(bench, (database) => {
      const { warmUpJobs, bareClaimJobs } = bench.sizes;
      insertAll(database, warmUpJobs);
      drainAll(database, warmUpJobs);
      insertAll(database, bareClaimJobs);
      const start = now();
      drainAll(database, bareClaimJobs);
      const rate = ratePerSecond(bareClaimJobs, start);
      verifyCount(database, "completed", warmUpJobs + bareClaimJobs);
      return rate;
    }),
};

function createRound(
  bench: Bench,
  warmUp: number,
  rows: number,
  insertRows: (database: Database.Database, rows: number) => void,
): Promise<number> {
  return withDatabase(bench, (database) => {
    insertRows(database, warmUp);
    const start = now();
    insertRows(database, rows);
    const rate = ratePerSecond(rows, start);
    verifyCount(database, "pending", warmUp + rows);
    return rate;
  });
}

function drainAll(database: Database.Database, rows: number): void {
  const claimBatch = database.prepare<[number], { id: number; payload: string }>(claim);
  const completeOne = database.prepare(complete);
  const completeBatch = database.transaction((jobs: readonly { id: number }[]) => {
    for (const { id } of jobs) completeOne.run(Date.now(), id);
  });
  for (let completed = 0; completed < rows; completed += claimBatchSize) {
    const jobs = claimBatch.all(Date.now());
    for (const { payload } of jobs) JSON.parse(payload);
    completeBatch.immediate(jobs);
  }
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

function insertEach(database: Database.Database, rows: number): void {
  const statement = database.prepare(insert);
  for (let number = 0; number < rows; number += 1) statement.run(Date.now(), payloadText(number));
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
