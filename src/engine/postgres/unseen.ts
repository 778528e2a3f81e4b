/**
 * What a transaction of the caller's does not see because it came after its snapshot. At REPEATABLE READ and SERIALIZABLE a
 * job that somebody has created since is missing there, and would be found by the same transaction if it was begun anew.
 */
import type { Blocker } from "../../core/job.js";
import type { AppendOutcome, Change } from "../engine.js";
import { TransactionConflict } from "../errors.js";
import { type Step, text } from "../sql/statement.js";
import type { Database } from "./driver.js";
import { run, type Session } from "./session.js";

/**
 * Fails, as a conflict of transactions, where a blocker that was not found is there for others. Looks only where one was not found
 * by a transaction that keeps its snapshot.
 */
export async function refuseUnseenBlockers(
  changes: readonly Change[],
  outcomes: readonly AppendOutcome[],
  session: Session,
  database: Database,
): Promise<void> {
  for (const [index, answer] of outcomes.entries()) {
    if (answer.outcome !== "bad_blocker" || answer.reason !== "missing") continue;
    if (!(await run(session, keepsSnapshot()))) return;
    const { blockerId: id } = answer;
    const blockers = blockersOf(changes[index]).filter(({ jobId }) => jobId === id);
    if (!(await isFound(database, blockers))) continue;
    const message = `The transaction does not see "${id}", which a job is to wait for, because it was created after the transaction had begun. Roll it back and run it again.`;
    throw new TransactionConflict({ message });
  }
}

/** Whether others see some blockers. A fault of this look is the store's and not that of the caller's client. */
async function isFound(database: Database, blockers: readonly Blocker[]): Promise<boolean> {
  try {
    return await database.run(areThere(blockers));
  } catch (error) {
    throw await database.faultOf(error);
  }
}

/** What the jobs wait for that a change creates. */
function blockersOf(change: Change | undefined): readonly Blocker[] {
  if (change === undefined) return [];
  const own = change.event.name === "created" ? change.event.blockers : [];
  return [...own, ...(change.follow ?? []).flatMap(blockersOf)];
}

/** Whether a transaction sees the database as it was at its first statement, and not as it is at each. */
function* keepsSnapshot(): Step<boolean> {
  const sql = "SELECT current_setting('transaction_isolation') AS isolation";
  const [row] = yield { sql, values: [] };
  return row !== undefined && !/^read (un)?committed$/.test(text(row, "isolation"));
}

/** Whether all of some blockers are known. */
function* areThere(blockers: readonly Blocker[]): Step<boolean> {
  for (const { jobId, chain } of blockers) {
    const sql = `SELECT 1 AS found FROM jobs WHERE ${chain ? "chain_id" : "id"} = ? LIMIT 1`;
    const rows = yield { sql, values: [jobId] };
    if (rows.length === 0) return false;
  }
  return true;
}
