/**
 * What time brings: jobs that become claimable, and slots of ended jobs that come free. Many in few statements,
 * and nothing that another transaction has locked is waited for.
 */
import { keyOfScope, slimColumns } from "../sql/slim.js";
import { arrays, type Step } from "../sql/statement.js";
import { promoteKeys } from "./keys.js";
import { array, list } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** The most jobs that one claim makes claimable because their time has come, and the most slots that it sweeps. */
const promoteMax = 2_000;
const sweepMax = 500;

const due = (
  condition: string,
) => `SELECT n FROM waiting WHERE lane = ANY(${array("int")}) AND cause = 'due'
  AND run_at <= ? AND ${condition} ORDER BY run_at LIMIT ? FOR UPDATE SKIP LOCKED`;

const promoteUnkeyed = `WITH moved AS (DELETE FROM waiting WHERE n IN (${due("key IS NULL")}) RETURNING ${slimColumns})
  INSERT INTO ready (${slimColumns}) SELECT ${slimColumns} FROM moved RETURNING n`;

const markKeyed = `UPDATE waiting SET cause = 'key' WHERE n IN (${due("key IS NOT NULL")}) RETURNING key`;

/** Makes the jobs of lanes claimable whose time has come. A keyed one competes for a slot with all others of its key. */
export function* promoteDue(tx: PostgresTransaction, lanes: readonly number[]): Step<void> {
  const values = [list(lanes), tx.now, promoteMax];
  const moved = yield { sql: promoteUnkeyed, values, raw: true };
  if (moved.length > 0) tx.woke.ready = true;
  const keyed = arrays<[string]>(yield { sql: markKeyed, values, raw: true });
  if (keyed.length > 0) yield* promoteKeys(tx, [...new Set(keyed.map(([key]) => key))]);
}

const sweep = `DELETE FROM slots WHERE ctid = ANY(ARRAY(
  SELECT ctid FROM slots WHERE until IS NOT NULL AND until <= ? LIMIT ? FOR UPDATE SKIP LOCKED)) RETURNING scope`;

/** Frees the slots of ended jobs whose worker never confirmed and whose lease has lapsed. */
export function* sweepSlots(tx: PostgresTransaction): Step<void> {
  const rows = arrays<[string]>(yield { sql: sweep, values: [tx.now, sweepMax], raw: true });
  if (rows.length === 0) return;
  tx.woke.ready = true;
  const keys = rows.map(([scope]) => keyOfScope(scope)).filter((key) => key !== null);
  if (keys.length > 0) yield* promoteKeys(tx, [...new Set(keys)]);
}
