/**
 * Locks a job that has not ended: its slim row, wherever that is. Claims and everything that time brings pass a locked
 * row over, and commands from outside are refused as busy. Notes share a lease with whoever locks it, until it is changed.
 */
import { arrays, type Step } from "../sql/statement.js";
import type { Place, Transaction } from "../sql/transaction.js";

/** The row `r` of a claimable job, found by its wide row `j`. */
export const inReady =
  "r.lane = j.lane AND r.rank = -j.priority AND r.run_at = j.run_at AND r.id = j.id";
const lockWaiting =
  "SELECT w.n FROM jobs j JOIN waiting w ON w.n = j.n WHERE j.id = ? FOR UPDATE OF w";
const lockReady = `SELECT r.n FROM jobs j JOIN ready r ON ${inReady} WHERE j.id = ? FOR UPDATE OF r`;
const lockLease = "SELECT n FROM leases WHERE id = ? FOR NO KEY UPDATE NOWAIT";

/**
 * Locks the slim row of a job, in the order in which jobs move. Gives whether it was found: a job that moves on meanwhile,
 * or shares its lease, is not. A claim or another caller's completion is waited for, but not a handler's transaction.
 */
export function* lockJob({ woke }: Pick<Transaction, "woke">, id: string): Step<boolean> {
  const values = [id];
  if ((yield { sql: lockWaiting, values }).length > 0) return true;
  if ((yield { sql: lockReady, values }).length > 0) {
    // Claims pass it over until the transaction ends, which may leave it as it is.
    woke.ready = true;
    return true;
  }
  return (yield { sql: lockLease, values }).length > 0;
}

const refuse = `WITH l AS (SELECT n FROM leases WHERE id = ? FOR NO KEY UPDATE NOWAIT),
    w AS (SELECT n FROM waiting WHERE n = ? FOR UPDATE NOWAIT),
    r AS (SELECT n FROM ready WHERE lane = ? AND rank = ? AND run_at = ? AND id = ? FOR UPDATE NOWAIT)
  SELECT (SELECT count(*) FROM l) AS leases, (SELECT count(*) FROM w) AS waiting, (SELECT count(*) FROM r) AS ready`;

const keepFromNotes = "SELECT n FROM leases WHERE id = ? FOR UPDATE";

/**
 * Fails at once where another transaction has locked the job. Notes that are on their way to the log are waited for. Gives
 * whether a lease was locked: one that is shared, or was a moment ago, is not.
 */
export function* refuseLocked({ n, id, lane, rank, runAt }: Place): Step<boolean> {
  const values = [id, n, lane, rank, runAt, id];
  const [found] = arrays<readonly [leases: number]>(yield { sql: refuse, values, raw: true });
  const hasLease = found !== undefined && Number(found[0]) > 0;
  if (hasLease) yield { sql: keepFromNotes, values: [id], silent: true };
  return hasLease;
}
