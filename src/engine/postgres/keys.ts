/**
 * Letting the next jobs of many keys in at once. A key that another transaction has locked is not waited for:
 * it is remembered, and promoted in a transaction of its own afterwards.
 */
import { slimColumns } from "../sql/slim.js";
import { arrays, countOf, type Step } from "../sql/statement.js";
import { joined, list, separator, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** The keys that a query gives as `key`, each once, of which nobody else has locked the row. They are locked from then on. */
export function lockedKeys(keys: string): string {
  return `SELECT k.* FROM (SELECT DISTINCT key FROM ${keys} WHERE key IS NOT NULL) AS g,
    LATERAL (SELECT hash, max_active FROM keys WHERE hash = g.key FOR UPDATE SKIP LOCKED) AS k`;
}

const lockKeys = lockedKeys(table("given", { key: "text" }));

/** A locked key, and how many of it may be active. */
type LockedKey = readonly [hash: string, maxActive: number];

/** The most jobs of one key that one look lets in. More follow when these have ended. */
const promoteMax = 20;

/**
 * The first in line of each key go where they can be claimed, as many as there are free slots for. Jobs of one key may have
 * been created under different limits, and each goes by its own. One that somebody is about to end is passed over: whoever does so
 * waits for the key.
 */
const promote = `WITH next AS (
    SELECT w.lies, coalesce(w.key_max, 1) - s.taken AS free, row_number() OVER (PARTITION BY k.hash ORDER BY w.rank, w.run_at, w.id) AS place
    FROM ${table("k", { hash: "text", most: "int" })},
    LATERAL (SELECT count(*) AS taken FROM slots WHERE scope = 'k:' || k.hash AND (until IS NULL OR until > ?::bigint)) AS s,
    LATERAL (
      SELECT ctid AS lies, rank, run_at, id, key_max FROM waiting
      WHERE key = k.hash AND (cause = 'key' OR (cause = 'due' AND run_at <= ?::bigint))
      ORDER BY rank, run_at, id LIMIT k.most FOR UPDATE SKIP LOCKED
    ) AS w
  ),
  moved AS (
    DELETE FROM waiting WHERE ctid = ANY(ARRAY(SELECT lies FROM next WHERE place <= free)) RETURNING ${slimColumns}
  ),
  lined AS (INSERT INTO ready (${slimColumns}) SELECT ${slimColumns} FROM moved)
  INSERT INTO slots (scope, job, token, until) SELECT 'k:' || key, id, token + 1, NULL FROM moved
  ON CONFLICT (scope, job, token) DO UPDATE SET until = NULL`;

/** Lets waiting jobs of keys in, in the order of claims, while slots are free. */
export function* promoteKeys(tx: PostgresTransaction, hashes: readonly string[]): Step<void> {
  const rows = yield { sql: lockKeys, values: [list(hashes)], raw: true, planned: true };
  yield* promoteLocked(tx, hashes, arrays<LockedKey>(rows));
}

/** The same, where the keys that could be locked are already: what is seen now is what there is until the commit. */
export function* promoteLocked(
  tx: PostgresTransaction,
  hashes: Iterable<string>,
  locked: readonly LockedKey[],
  last?: true,
): Step<void> {
  const held = new Set(locked.map(([hash]) => hash));
  for (const hash of hashes) if (!held.has(hash)) tx.late.add(hash);
  if (locked.length === 0) return;
  const most = locked.map(([, maxActive]) => Math.min(Math.max(maxActive, 1), promoteMax));
  const rows = yield {
    sql: promote,
    values: [list([...held]), list(most), tx.now, tx.now],
    counted: true,
    planned: true,
    ...(last && { last }),
  };
  if (countOf(rows) > 0) tx.woke.ready = true;
}

/** The keys that have jobs waiting, in order from one on, and which of them have a free slot beside a job that waits for one. */
const lookAtKeys = `WITH RECURSIVE seen AS (
    (SELECT key, 1 AS place FROM waiting WHERE key > ?::text ORDER BY key LIMIT 1)
    UNION ALL SELECT n.key, s.place + 1 FROM seen s,
      LATERAL (SELECT key FROM waiting WHERE key > s.key ORDER BY key LIMIT 1) AS n WHERE s.place < ?::int
  )
  SELECT max(key), count(*)::int, ${joined("key")} FILTER (WHERE (
      SELECT count(*) FROM slots WHERE scope = 'k:' || seen.key AND (until IS NULL OR until > ?::bigint)
    ) < (SELECT max_active FROM keys WHERE hash = seen.key)
    AND (SELECT true FROM waiting w WHERE w.key = seen.key AND w.cause = 'key' LIMIT 1)) FROM seen`;

/** How many keys are looked at because the next job of one may not have been let in. */
const lookMax = 1_000;

/** A look at some of the keys. */
export interface KeysLook {
  /** Keys with a free slot whose next job was not let in, as when a process died in between. */
  readonly free: readonly string[];
  /** The key to go on behind. */
  readonly upTo: string;
}

/** Looks at the keys behind one, and after the last of them at the first again. Nothing is locked. */
export function* freeKeys(tx: PostgresTransaction, from: string): Step<KeysLook> {
  type Row = readonly [upTo: string | null, count: number, free: string | null];
  const values = [from, lookMax, tx.now];
  const [row] = arrays<Row>(yield { sql: lookAtKeys, values, raw: true, planned: true });
  const [upTo = null, count = 0, free = null] = row ?? [];
  return { free: free?.split(separator) ?? [], upTo: count < lookMax ? "" : (upTo ?? "") };
}
