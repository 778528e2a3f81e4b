/**
 * Storing jobs that their keys have let in: wide rows, places in line, slots and what the keys' rows tell, in one statement.
 */
import type { EventOf } from "../../core/event.js";
import type { JobKeyPolicy, PolicyOutcome } from "../../core/job.js";
import { contextText, createdBody } from "../sql/rows.js";
import type { SqlValue, Statement } from "../sql/statement.js";
import { list, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

type Creation = EventOf<"created"> & { readonly key: JobKeyPolicy };

/** A job to store, and where: claimable, or waiting for its time or its key. */
export interface KeyedJob {
  readonly event: Creation;
  readonly policy: PolicyOutcome;
  readonly place: "ready" | "due" | "key";
}

/** What a key's row tells: the last create that was decided under it, and what became of that. */
export interface KeyRecord {
  readonly event: Creation;
  readonly policy: PolicyOutcome;
}

/** The columns of `jobs` that are given, with their types. */
const jobTypes = {
  id: "text",
  lane: "int",
  priority: "int",
  run_at: "bigint",
  created_at: "bigint",
  deadline: "bigint",
  max_tries: "int",
  key: "text",
  key_hash: "text",
  key_max: "int",
  tags: "text",
  parent_id: "text",
  chain_id: "text",
  agent: "text",
  created_id: "text",
  created_by: "text",
  context: "text",
  created_body: "text",
} as const;

const given = Object.keys(jobTypes).join(", ");

const keyTypes = {
  hash: "text",
  service: "text",
  type: "text",
  key: "text",
  max_active: "int",
  max_queued: "int",
  when_full: "text",
  outcome: "text",
} as const;

const keyColumns = Object.keys(keyTypes).join(", ");
const keyUpdates = Object.keys(keyTypes)
  .slice(1)
  .map((column) => `${column} = excluded.${column}`)
  .join(", ");

const slim =
  "n, id, lane, rank, run_at, state, version, run, tries, token, deadline, updated_at, key, key_max, noted";
const slimOfInput =
  "n, id, lane, -priority, run_at, 'pending', 1, 1, 0, 0, deadline, created_at, key_hash, key_max, 0";

/** Numbers the jobs in their order. Without joins it is planned once for any number of them. */
const store = `WITH input AS MATERIALIZED (
    SELECT nextval('events_seq') AS n, i.* FROM ${table("i", { ...jobTypes, place: "text" })}
  ),
  stored AS (INSERT INTO jobs (n, ${given}, created_state) SELECT n, ${given}, 'pending' FROM input),
  tagged AS (
    INSERT INTO tags (tag, n) SELECT DISTINCT t.tag, input.n
    FROM input CROSS JOIN LATERAL json_array_elements_text(input.tags::json) AS t (tag)
  ),
  lined AS (INSERT INTO ready (${slim}) SELECT ${slimOfInput} FROM input WHERE place = 'ready'),
  held AS (
    INSERT INTO slots (scope, job, token, until) SELECT 'k:' || key_hash, id, 1, NULL FROM input WHERE place = 'ready'
    ON CONFLICT (scope, job, token) DO UPDATE SET until = NULL
  ),
  kept AS (INSERT INTO waiting (${slim}, cause) SELECT ${slimOfInput}, place FROM input WHERE place <> 'ready')
  INSERT INTO keys (${keyColumns}, takeovers, outcome_at)
  SELECT ${keyColumns}, 0, ?::bigint FROM ${table("k", keyTypes)}
  ON CONFLICT (hash) DO UPDATE SET ${keyUpdates}, outcome_at = excluded.outcome_at`;

/** The statement that stores jobs in their order, and what became of the last create of each key. */
export function storeKeyed(
  tx: PostgresTransaction,
  jobs: readonly KeyedJob[],
  records: readonly KeyRecord[],
): Statement {
  const ofJobs = jobs.map((job) => jobValues(tx, job));
  const ofKeys = records.map(keyValues);
  return {
    sql: store,
    values: [...columnsOf(ofJobs, jobWidth), tx.now, ...columnsOf(ofKeys, keyWidth)],
    planned: true,
    counted: true,
    silent: true,
  };
}

const jobWidth = Object.keys(jobTypes).length + 1;
const keyWidth = Object.keys(keyTypes).length;

/** Rows as lists, one for each column. */
function columnsOf(rows: readonly (readonly SqlValue[])[], width: number): readonly string[] {
  return Array.from({ length: width }, (_, column) =>
    list(rows.map((row) => row[column] as SqlValue)),
  );
}

function jobValues(tx: PostgresTransaction, { event, policy, place }: KeyedJob) {
  return [
    event.jobId,
    laneOf(tx, event),
    event.priority,
    event.runAt,
    event.at,
    event.deadline ?? null,
    event.maxTries,
    event.key.key,
    event.key.hash,
    event.key.maxActive,
    event.tags.length > 0 ? JSON.stringify(event.tags) : null,
    event.parentId ?? null,
    event.chainId ?? null,
    event.agent ?? null,
    event.id,
    event.actor,
    contextText(event.context),
    bodyWith(event, policy),
    place,
  ] as const;
}

/** What the key's policy did becomes known only here, and stands at the end of the event's text. */
function bodyWith(event: Creation, policy: PolicyOutcome): string {
  return `${createdBody(event).slice(0, -1)},"policy":${JSON.stringify(policy)}}`;
}

function keyValues({ event, policy }: KeyRecord) {
  const { key, service, type } = event;
  return [
    key.hash,
    service,
    type,
    key.key,
    key.maxActive,
    key.maxQueued,
    key.whenFull,
    JSON.stringify(policy),
  ] as const;
}

/** The number of a job's lane, which is known before anything is stored. */
function laneOf(tx: PostgresTransaction, event: Creation): number {
  const { service, queue, type, typeVersion } = event;
  const lane = tx.lanes.get(`${service}/${queue}/${type}@${typeVersion}`);
  if (lane === undefined) throw new Error(`The lane of job ${event.jobId} is not stored.`);
  return lane;
}
