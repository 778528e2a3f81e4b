/**
 * Locks what the changes of a batch will need, in one order that all processes keep,
 * so that batches wait for each other and never in a circle.
 */
import type { Change } from "../engine.js";
import { arrays, type Step } from "../sql/statement.js";
import { array, list } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

const selectKeys = `SELECT DISTINCT key_hash FROM jobs WHERE id = ANY(${array("text")}) AND key_hash IS NOT NULL`;

// What is not there cannot be locked, so stand-ins are made as for a single change.
const insertRecords = `INSERT INTO records (id, version, body, expires_at)
  SELECT id, 0, 'null', 0 FROM unnest(${array("text")}) AS i (id) ON CONFLICT (id) DO NOTHING`;
const lockRecords = `SELECT id FROM records WHERE id = ANY(${array("text")}) ORDER BY id FOR UPDATE`;
const insertKeys = `INSERT INTO keys (hash, service, type, key, max_active, max_queued, when_full, takeovers)
  SELECT hash, '', '', '', 0, 0, '', 0 FROM unnest(${array("text")}) AS i (hash) ON CONFLICT (hash) DO NOTHING`;
const lockKeys = `SELECT hash FROM keys WHERE hash = ANY(${array("text")}) ORDER BY hash FOR UPDATE`;

/** Whether a change lets a continuation wait for others, so that it will look for a circle. */
export function looksForCircle({ follow = [] }: Change): boolean {
  return follow.some(({ event }) => event.name === "created" && event.blockers.length > 0);
}

/** Locks what circles are looked for under, then records, then keys, each in the order of their names. */
export function* lockInOrder(tx: PostgresTransaction, changes: readonly Change[]): Step<void> {
  if (changes.some(looksForCircle)) yield* tx.dialect.lockCircles();
  const records = new Set<string>();
  const keys = new Set<string>();
  const jobs: string[] = [];
  for (const { job, event, records: writes } of changes) {
    for (const { id } of [...(writes?.before ?? []), ...(writes?.after ?? [])]) records.add(id);
    if (event.name !== "created") jobs.push(job.id);
    else if (event.key !== undefined) keys.add(event.key.hash);
  }
  if (jobs.length > 0) {
    const rows = yield { sql: selectKeys, values: [list(jobs)], raw: true };
    for (const [hash] of arrays<[string]>(rows)) keys.add(hash);
  }
  if (records.size > 0) yield* makeAndLock(insertRecords, lockRecords, records);
  if (keys.size > 0) yield* makeAndLock(insertKeys, lockKeys, keys);
  for (const key of keys) tx.locked.add(key);
}

function* makeAndLock(insert: string, lock: string, names: ReadonlySet<string>): Step<void> {
  const values = [list([...names].sort())];
  yield { sql: insert, values, planned: true, counted: true, silent: true };
  yield { sql: lock, values, planned: true, counted: true, silent: true };
}
