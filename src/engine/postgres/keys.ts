/**
 * Letting the next jobs of many keys in at once. A key that another transaction has locked is not waited for:
 * it is remembered, and promoted in a transaction of its own afterwards.
 */
import { slimColumns } from "../sql/slim.js";
import { arrays, type Step } from "../sql/statement.js";
import { array, joined, list, separator, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** The keys that a query gives as `key`, each once, of which nobody else has locked the row. They are locked from then on. */
export function lockedKeys(keys: string): string {
  return `SELECT k.* FROM (SELECT DISTINCT key FROM ${keys} WHERE key IS NOT NULL) AS g,
    LATERAL (SELECT hash, max_active FROM keys WHERE hash = g.key FOR UPDATE SKIP LOCKED) AS k`;
}

const lockKeys = lockedKeys(table("given", { key: "text" }));

const selectKeys = `SELECT hash FROM keys WHERE hash = ANY(${array("text")})`;

/** Which of some keys nobody has locked, and which somebody has. Of a key that somebody is about to make nothing is known. */
export function* lookAtLocks(hashes: readonly string[]): Step<{
  readonly free: ReadonlySet<string>;
  readonly locked: ReadonlySet<string>;
}> {
  const values = [list(hashes)];
  const lockable = arrays<LockedKey>(yield { sql: lockKeys, values, raw: true, planned: true });
  const free = new Set(lockable.map(([hash]) => hash));
  const there = arrays<[hash: string]>(yield { sql: selectKeys, values, raw: true, planned: true });
  const locked = there.flatMap(([hash]) => (free.has(hash) ? [] : hash));
  return { free, locked: new Set(locked) };
}

/** A locked key, and how many of it may be active. */
type LockedKey = readonly [hash: string, maxActive: number];

/** The most jobs of one key that one look lets in. More follow when these have ended. */
const promoteMax = 20;

/** Who waits for a slot of a key, also whose time has come unnoticed. */
const isWaiting = "(cause = 'key' OR (cause = 'due' AND run_at <= ?::bigint))";

/** Puts jobs that were taken out of `waiting` as `moved` where they can be claimed, each with a slot. */
export const letMovedIn = `lined AS (INSERT INTO ready (${slimColumns}) SELECT ${slimColumns} FROM moved),
  held AS (
    INSERT INTO slots (scope, job, token, until) SELECT 'k:' || key, id, token + 1, NULL FROM moved
    ON CONFLICT (scope, job, token) DO UPDATE SET until = NULL
  )`;

/**
 * The first in line of each key go where they can be claimed, as many as there are free slots for. Jobs of one key may have
 * been created under different limits; each goes by its own, and nobody overtakes one that has to wait. A job that somebody else
 * is about to change is not waited for, because whoever ends it waits for the key. Its key is told, to be looked at again. Keys that
 * give slots are changed, so that a transaction of the caller's that does not see these slots fails.
 */
const promote = `WITH given AS MATERIALIZED (
    SELECT k.*, (SELECT count(*) FROM slots WHERE scope = 'k:' || k.hash AND (until IS NULL OR until > ?::bigint)) AS taken
    FROM ${table("k", { hash: "text", most: "int" })}
  ),
  line AS (
    SELECT k.hash, w.lies, coalesce(w.key_max, 1) - k.taken AS most,
      row_number() OVER (PARTITION BY k.hash ORDER BY w.rank, w.run_at, w.id) AS place
    FROM given k, LATERAL (
      SELECT ctid AS lies, rank, run_at, id, key_max FROM waiting WHERE key = k.hash AND ${isWaiting}
      ORDER BY rank, run_at, id LIMIT k.most FOR UPDATE SKIP LOCKED
    ) AS w
  ),
  next AS (SELECT lies, min(most - place) OVER (PARTITION BY hash ORDER BY place) AS spare FROM line),
  moved AS (
    DELETE FROM waiting WHERE ctid = ANY(ARRAY(SELECT lies FROM next WHERE spare >= 0)) RETURNING ${slimColumns}
  ),
  changed AS (UPDATE keys SET takeovers = takeovers WHERE hash = ANY(ARRAY(SELECT key FROM moved))),
  ${letMovedIn}
  SELECT (SELECT count(*) FROM moved), (
    SELECT ${joined("g.hash")} FROM given g WHERE g.taken < g.most AND g.hash NOT IN (SELECT key FROM moved)
      AND (SELECT true FROM waiting WHERE key = g.hash AND ${isWaiting} LIMIT 1))`;

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
  const rows = yield {
    sql: promote,
    values: [
      tx.now,
      list(locked.map(([hash]) => hash)),
      list(locked.map(([, maxActive]) => Math.min(Math.max(maxActive, 1), promoteMax))),
      tx.now,
      tx.now,
    ],
    raw: true,
    planned: true,
    ...(last && { last }),
  };
  const [row] = arrays<readonly [moved: number, passedOver: string | null]>(rows);
  const [moved = 0, passedOver = null] = row ?? [];
  if (moved > 0) tx.woke.ready = true;
  for (const hash of passedOver?.split(separator) ?? []) tx.late.add(hash);
}

/** The keys that have jobs waiting, in order from one on, and which of them have a free slot beside a job that waits for one. */
const lookAtKeys = `WITH RECURSIVE seen AS (
    (SELECT key, 1 AS place FROM waiting WHERE key > ?::text ORDER BY key LIMIT 1)
    UNION ALL SELECT n.key, s.place + 1 FROM seen s,
      LATERAL (SELECT key FROM waiting WHERE key > s.key ORDER BY key LIMIT 1) AS n WHERE s.place < ?::int
  )
  SELECT max(key), count(*)::int, ${joined("key")} FILTER (WHERE (
      SELECT count(*) FROM slots WHERE scope = 'k:' || seen.key AND (until IS NULL OR until > ?::bigint)
    ) < (
      SELECT coalesce(key_max, 1) FROM waiting w WHERE w.key = seen.key AND cause = 'key' ORDER BY rank, run_at, id LIMIT 1
    )) FROM seen`;

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
