/**
 * Letting the next jobs of many keys in at once. A key that another transaction has locked is not waited for:
 * it is remembered, and promoted in a transaction of its own afterwards.
 */
import { mayTakeSlot } from "../../core/admission.js";
import { slimColumns } from "../sql/slim.js";
import { arrays, type Step } from "../sql/statement.js";
import { array, list } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

const lockKeys = `SELECT hash FROM keys WHERE hash = ANY(${array("text")}) ORDER BY hash FOR UPDATE SKIP LOCKED`;

/** The first in line of each key, as many as it may let in at once, beside the number of its taken slots. */
const candidates = `SELECT k.hash, w.n, w.key_max,
    (SELECT count(*) FROM slots s WHERE s.scope = 'k:' || k.hash AND (s.until IS NULL OR s.until > ?::bigint))
  FROM keys k JOIN LATERAL (
    SELECT n, key_max FROM waiting WHERE key = k.hash AND (cause = 'key' OR (cause = 'due' AND run_at <= ?::bigint))
    ORDER BY rank, run_at, id LIMIT least(greatest(k.max_active, 1), ?::int)
  ) AS w ON true WHERE k.hash = ANY(${array("text")})`;

type Candidate = readonly [hash: string, n: number, keyMax: number | null, taken: number];

/** The most jobs of one key that one look lets in. More follow when these have ended. */
const promoteMax = 20;

const promote = `WITH moved AS (DELETE FROM waiting WHERE n = ANY(${array("bigint")}) RETURNING ${slimColumns}),
  lined AS (INSERT INTO ready (${slimColumns}) SELECT ${slimColumns} FROM moved)
  INSERT INTO slots (scope, job, token, until) SELECT 'k:' || key, id, token + 1, NULL FROM moved
  ON CONFLICT (scope, job, token) DO UPDATE SET until = NULL`;

/** Lets waiting jobs of keys in, in the order of claims, while slots are free. */
export function* promoteKeys(tx: PostgresTransaction, hashes: readonly string[]): Step<void> {
  const rows = yield { sql: lockKeys, values: [list(hashes)], raw: true, planned: true };
  const locked = arrays<[string]>(rows).map(([hash]) => hash);
  if (locked.length < hashes.length) {
    const held = new Set(locked);
    for (const hash of hashes) if (!held.has(hash)) tx.late.add(hash);
  }
  if (locked.length === 0) return;
  const found = yield {
    sql: candidates,
    values: [tx.now, tx.now, promoteMax, list(locked)],
    raw: true,
    planned: true,
  };
  const taken = new Map<string, number>();
  const chosen: number[] = [];
  for (const [hash, n, keyMax, already] of arrays<Candidate>(found)) {
    const count = taken.get(hash) ?? Number(already);
    if (!mayTakeSlot(keyMax ?? 1, count)) continue;
    taken.set(hash, count + 1);
    chosen.push(n);
  }
  if (chosen.length === 0) return;
  yield { sql: promote, values: [list(chosen)], planned: true };
  tx.woke.ready = true;
}

/** Keys of some lanes that keep jobs waiting, a bounded number of them: a slot may have come free unnoticed. */
export function* waitingKeys(lanes: readonly number[], limit: number): Step<readonly string[]> {
  const rows = yield {
    sql: `SELECT DISTINCT key FROM waiting WHERE lane = ANY(${array("int")}) AND key IS NOT NULL AND cause = 'key' LIMIT ?`,
    values: [list(lanes), limit],
    raw: true,
  };
  return arrays<[string]>(rows).map(([key]) => key);
}
