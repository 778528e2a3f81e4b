// Bare node-postgres: one connection, prepared statements, batches as arrays, one table and the one index
// that a plain claim needs. It keeps no history, checks no version, holds no lease and runs no handler.
import { Client } from "pg";
import { type Bench, verify } from "../bench.js";
import { payloadOf, payloadsBetween } from "../payload.js";
import { bareClaimBatchSize, createBatchSize } from "../sizes.js";
import { now, ratePerSecond } from "../statistics.js";
import { inFreshStore, settleStore } from "../stores.js";
import type { BareScript } from "./script.js";

const claimBatchSize = bareClaimBatchSize.postgres;
const schema = `
  CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    state text NOT NULL,
    run_at timestamptz NOT NULL,
    payload text NOT NULL,
    token int NOT NULL DEFAULT 0,
    ended_at timestamptz
  );
  CREATE INDEX jobs_ready ON jobs (queue, run_at) WHERE state = 'pending';
`;
const insertOne = {
  name: "insert-one",
  text: "INSERT INTO jobs (queue, state, run_at, payload) VALUES ('bench', 'pending', now(), $1)",
};
const insertBatch = {
  name: "insert-batch",
  text: "INSERT INTO jobs (queue, state, run_at, payload) SELECT 'bench', 'pending', now(), unnest($1::text[])",
};
const claim = {
  name: "claim",
  text: `
    UPDATE jobs SET state = 'active', token = token + 1
    WHERE id = ANY (ARRAY(
      SELECT id FROM jobs WHERE queue = 'bench' AND state = 'pending' AND run_at <= now()
      ORDER BY run_at LIMIT ${claimBatchSize} FOR UPDATE SKIP LOCKED
    ))
    RETURNING id, payload
  `,
};
const complete = {
  name: "complete",
  text: "UPDATE jobs SET state = 'completed', ended_at = now() WHERE id = ANY ($1::bigint[]) AND state = 'active'",
};

/** The bare script of PostgreSQL. */
export const barePostgres: BareScript = {
  settings: `node-postgres, one connection, prepared statements, one table, one index; drain: claim and complete in batches of ${claimBatchSize}, a commit each; no history`,
  createSequential: (bench) =>
    createRound(bench, bench.sizes.warmUpSequentialJobs, bench.sizes.bareSingleRows, insertEach),
  createMany: (bench) =>
    createRound(bench, bench.sizes.warmUpJobs, bench.sizes.bareBatchedRows, insertAll),
  drain: (bench) =>
    withClient(bench, async (client, settle) => {
      const { warmUpJobs, bareClaimJobs } = bench.sizes;
      await insertAll(client, warmUpJobs);
      await drainAll(client, warmUpJobs);
      await insertAll(client, bareClaimJobs);
      await settle();
      const start = now();
      await drainAll(client, bareClaimJobs);
      const rate = ratePerSecond(bareClaimJobs, start);
      await verifyCount(client, "completed", warmUpJobs + bareClaimJobs);
      return rate;
    }),
};

function createRound(
  bench: Bench,
  warmUp: number,
  rows: number,
  insertRows: (client: Client, rows: number) => Promise<void>,
): Promise<number> {
  return withClient(bench, async (client, settle) => {
    await insertRows(client, warmUp);
    await settle();
    const start = now();
    await insertRows(client, rows);
    const rate = ratePerSecond(rows, start);
    await verifyCount(client, "pending", warmUp + rows);
    return rate;
  });
}

function withClient(
  bench: Bench,
  work: (client: Client, settle: () => Promise<void>) => Promise<number>,
): Promise<number> {
  return inFreshStore(bench, async (url) => {
    const client = new Client({ connectionString: url });
    await client.connect();
    try {
      await client.query(schema);
      return await work(client, () => settleStore(bench, url));
    } finally {
      await client.end();
    }
  });
}

async function insertEach(client: Client, rows: number): Promise<void> {
  for (let number = 0; number < rows; number += 1) {
    await client.query({ ...insertOne, values: [JSON.stringify(payloadOf(number))] });
  }
}

async function insertAll(client: Client, rows: number): Promise<void> {
  for (let from = 0; from < rows; from += createBatchSize) {
    const payloads = payloadsBetween(from, Math.min(from + createBatchSize, rows));
    const texts = payloads.map((payload) => JSON.stringify(payload));
    await client.query({ ...insertBatch, values: [texts] });
  }
}

async function drainAll(client: Client, rows: number): Promise<void> {
  for (let completed = 0; completed < rows; completed += claimBatchSize) {
    const jobs = (await client.query<{ id: string; payload: string }>(claim)).rows;
    for (const { payload } of jobs) JSON.parse(payload);
    await client.query({ ...complete, values: [jobs.map(({ id }) => id)] });
  }
}

async function verifyCount(client: Client, state: string, expected: number): Promise<void> {
  const text = "SELECT count(*)::int AS count FROM jobs WHERE state = $1";
  const found = (await client.query<{ count: number }>(text, [state])).rows[0]?.count;
  verify(found === expected, () => `bare: ${found} of ${expected} rows are ${state}`);
}
