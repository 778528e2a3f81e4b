/**
 * Appending events: the compare by version and token, and what the event does to the stored rows.
 */

import { endsAtOnce } from "../../core/chains.js";
import type { EventName } from "../../core/event.js";
import type { JobState } from "../../core/job.js";
import { transitions } from "../../core/transitions.js";
import type { AppendOutcome } from "../engine.js";
import { blockerRefusal, forgetBlockers } from "./blockers.js";
import type { FlatChange } from "./change.js";
import { createContinuation, createEnded, createJob, isTaken } from "./create.js";
import { moveOn } from "./place.js";
import { blockingRecord, writeRecord } from "./records.js";
import { keyOfScope, placeSlim, promoteKey, type Taken, takeLease, takeWaiting } from "./slim.js";
import { int, intOrNull, type SqlRow, type Step, text } from "./statement.js";
import type { Place, Transaction } from "./transaction.js";

const conflict: AppendOutcome = { outcome: "conflict" };
const appended: AppendOutcome = { outcome: "appended" };

/** Appends one change, all or nothing. Whatever refuses it does so before anything is written. */
export function* appendChange(tx: Transaction, change: FlatChange): Step<AppendOutcome> {
  for (const write of change.before ?? []) {
    const current = yield* blockingRecord(tx, write);
    if (current !== "free") return { outcome: "record_conflict", current };
  }
  for (const write of change.after ?? []) {
    const current = yield* blockingRecord(tx, write);
    if (current !== "free") return { outcome: "record_conflict", current };
  }
  const refusal = change.follow && (yield* followRefusal(tx, change.follow));
  if (refusal) return refusal;
  const outcome = change.create
    ? yield* createJob(tx, change, change.create)
    : yield* appendToJob(tx, change);
  if (outcome.outcome === "appended") {
    for (const write of change.before ?? []) yield* writeRecord(tx, write);
    for (const write of change.after ?? []) yield* writeRecord(tx, write);
    if (change.follow) yield* storeFollow(tx, change.follow);
  }
  return outcome;
}

/** What keeps the continuations of a change from being stored, so that it must not be stored either. */
function* followRefusal(
  tx: Transaction,
  follow: readonly FlatChange[],
): Step<AppendOutcome | null> {
  for (const { create, id } of follow) {
    if (!create) continue;
    if (yield* isTaken(tx, id)) return { outcome: "exists" };
    const refusal = create.blockers && (yield* blockerRefusal(tx, create, create.blockers));
    if (refusal) return refusal;
  }
  return null;
}

/** Stores what follows from a stored change. */
function* storeFollow(tx: Transaction, follow: readonly FlatChange[]): Step<void> {
  const events = follow.map(({ id, state }) => ({ jobId: id, state }));
  for (const change of follow) {
    if (!change.create) {
      const { outcome } = yield* appendToJob(tx, change);
      if (outcome !== "appended")
        throw new Error(`What follows on job ${change.id} met ${outcome}.`);
    } else if (endsAtOnce(events, change.id)) {
      yield* createEnded(tx, change, change.create);
    } else {
      yield* createContinuation(tx, change, change.create);
    }
  }
}

/** Settles an attempt: the outcome under its token ends the lease and frees its slots. */
export function* settleChange(tx: Transaction, change: FlatChange): Step<AppendOutcome> {
  if (change.before || change.after || change.expectToken === null)
    return yield* appendChange(tx, change);
  const refusal = change.follow && (yield* followRefusal(tx, change.follow));
  if (refusal) return refusal;
  const taken = yield* takeLease(tx, change.id, change.expectVersion, change.expectToken);
  if (!taken) return conflict;
  yield* tx.dialect.appendEvent(tx, taken.slim.n, change.values);
  yield* moveOn(tx, taken, change, true);
  if (change.follow) yield* storeFollow(tx, change.follow);
  return appended;
}

const selectJob = `SELECT j.n, j.id, j.lane, j.priority, j.run_at, d.state, d.token, d.started_at, j.key_hash, j.key_max, j.chain_id
  FROM jobs j LEFT JOIN ended d ON d.n = j.n WHERE j.id = ?`;

function* appendToJob(tx: Transaction, change: FlatChange): Step<AppendOutcome> {
  const [row] = yield { sql: selectJob, values: [change.id] };
  if (!row) return conflict;
  if (change.name === "deleted") return yield* deleteJob(tx, change, row);
  if (row.state !== null) return yield* changeEnded(tx, change, row);
  if (change.name === "cancelRequested" || change.name === "keyBlocked")
    return yield* markLease(tx, change, row);
  const at = placeOf(row);
  if (change.lapse && !(yield* hasLapsed(tx, change))) return conflict;
  const taken =
    change.expectToken === null
      ? yield* takeAnywhere(tx, at, change.expectVersion)
      : yield* takeLease(tx, change.id, change.expectVersion, change.expectToken);
  if (!taken) return conflict;
  yield* tx.dialect.appendEvent(tx, at.n, change.values);
  yield* moveOn(tx, taken, change, change.expectToken !== null && !change.lapse);
  if (taken.lease) tx.woke.cancel = true;
  return appended;
}

/** Takes the slim row of a job away, wherever it is, if it is at this version and nobody else has locked it. */
function* takeAnywhere(tx: Transaction, at: Place, version: number): Step<Taken | null> {
  const hasLease = yield* tx.dialect.refuseLocked(at);
  const waiting = yield* takeWaiting(at, version);
  if (waiting) return waiting;
  // A lease that came since is not touched: nobody has waited for the notes that share it.
  return hasLease ? yield* takeLease(tx, at.id, version, undefined) : null;
}

/** A lapse that the keeper saw may be over by now: the worker has renewed. */
function* hasLapsed(tx: Transaction, change: FlatChange): Step<boolean> {
  const [row] = yield {
    sql: `SELECT until, blocked FROM leases WHERE id = ? ${tx.dialect.forUpdate}`,
    values: [change.id],
  };
  return row !== undefined && int(row, "until") <= tx.now && int(row, "blocked") === 0;
}

/** Events that leave an active job active: a request to stop, a key that stays blocked. */
function* markLease(tx: Transaction, change: FlatChange, row: SqlRow): Step<AppendOutcome> {
  const isOurs = change.lapse
    ? yield* hasLapsed(tx, change)
    : yield* tx.dialect.refuseLocked(placeOf(row));
  if (!isOurs) return conflict;
  const mark = change.name === "keyBlocked" ? "blocked = 1" : "cancel = 1";
  const [marked] = yield {
    sql: `UPDATE leases SET version = ?, updated_at = ?, ${mark} WHERE id = ? AND version = ? RETURNING n`,
    values: [change.version, change.at, change.id, change.expectVersion],
  };
  if (!marked) return conflict;
  yield* tx.dialect.appendEvent(tx, int(row, "n"), change.values);
  tx.woke.cancel = true;
  return appended;
}

/** Events that an ended job can still meet: a retry by hand, a dismissal. */
function* changeEnded(tx: Transaction, change: FlatChange, row: SqlRow): Step<AppendOutcome> {
  if (change.expectToken !== null) return conflict;
  const n = int(row, "n");
  const key = row.key_hash as string | null;
  // A job that takes a place of its key again stands in the log where it took it: behind those who were let in before.
  if (change.name === "retried" && key !== null) yield* tx.dialect.lockKey(key);
  if (!(yield* changeEnd(tx, change, n))) return conflict;
  yield* tx.dialect.appendEvent(tx, n, change.values);
  if (change.name === "dismissed") {
    tx.woke.ended = true;
    return appended;
  }
  yield* placeSlim(tx, {
    n,
    id: change.id,
    lane: int(row, "lane"),
    rank: -int(row, "priority"),
    runAt: change.runAt,
    state: change.state,
    version: change.version,
    run: change.run,
    tries: change.tries,
    token: int(row, "token"),
    deadline: null,
    updatedAt: change.at,
    startedAt: intOrNull(row, "started_at"),
    detail: null,
    key,
    keyMax: intOrNull(row, "key_max"),
    noted: 1,
  });
  return appended;
}

/** Marks an ended job as dismissed, or opens it for another run, if it is at the expected version. Gives whether it was. */
export function* changeEnd(tx: Transaction, change: FlatChange, n: number): Step<boolean> {
  const { name, state, version, at, detail, runAt, expectVersion } = change;
  if (name === "dismissed") {
    const dismissed = yield {
      sql: `UPDATE ended SET state = ?, version = ?, updated_at = ?, detail = coalesce(?, detail)
        WHERE n = ? AND version = ? RETURNING n`,
      values: [state, version, at, detail, n, expectVersion],
    };
    return dismissed.length > 0;
  }
  yield* tx.dialect.keepLogOfEnd(n);
  const opened = yield {
    sql: "DELETE FROM ended WHERE n = ? AND version = ? RETURNING n",
    values: [n, expectVersion],
  };
  if (opened.length === 0) return false;
  yield { sql: "UPDATE jobs SET run_at = ?, deadline = NULL WHERE n = ?", values: [runAt, n] };
  return true;
}

/** Removes a job and its log. The `deleted` event stays for readers of the feed until it is pruned. */
function* deleteJob(tx: Transaction, change: FlatChange, row: SqlRow): Step<AppendOutcome> {
  const n = int(row, "n");
  let key: string | null = null;
  // Whoever is about to wait for this job has locked it, and is to be told how it ended.
  const [locked] = yield {
    sql: `SELECT n FROM jobs WHERE n = ? ${tx.dialect.forUpdateAtOnce}`,
    values: [n],
  };
  if (!locked) return conflict;
  if (row.state === null) {
    const taken = yield* takeAnywhere(tx, placeOf(row), change.expectVersion);
    if (!taken) return conflict;
    key = taken.slim.key;
    if (taken.lease) yield* moveOn(tx, taken, { ...change, state: "cancelled" }, false);
  } else {
    // It stays until those that wait are told: without it, the job would seem to be the one that its chain has come to.
    const [ended] = yield {
      sql: `SELECT n FROM ended WHERE n = ? AND version = ? ${tx.dialect.forUpdate}`,
      values: [n, change.expectVersion],
    };
    if (!ended) return conflict;
    yield* tx.dialect.keepLogOfEnd(n);
  }
  yield* tx.dialect.appendEvent(tx, n, change.values);
  yield* removeJob(tx, row);
  if (key !== null) yield* promoteKey(tx, key);
  tx.woke.ended = true;
  return appended;
}

/** Removes all rows of a job but its slim one and the `deleted` event. Those that wait for it are told how it ended. */
export function* removeJob(tx: Transaction, row: SqlRow): Step<void> {
  const n = int(row, "n");
  yield* forgetBlockers(row);
  yield { sql: "DELETE FROM ended WHERE n = ?", values: [n] };
  yield* tx.dialect.removeLog(n);
  yield { sql: "DELETE FROM tags WHERE n = ?", values: [n] };
  yield { sql: "DELETE FROM jobs WHERE n = ?", values: [n] };
}

/** Notes that only the holder of the lease may write. */
export const heldNotes: ReadonlySet<string> = new Set([
  "progress",
  "logged",
  "emitted",
  "heartbeat",
]);

/** Appends a note if the fold would accept it, and frees the slots that it confirms the end of. */
export function* noteChange(tx: Transaction, note: FlatChange): Step<boolean> {
  // The slots of a job that was deleted by force are still held by its worker, which confirms like this, too.
  if (note.name === "staleCompletionIgnored") yield* confirmEnd(tx, note.id, note.expectToken ?? 0);
  return yield* storeNote(tx, note);
}

/** Appends a note if the fold would accept it. */
export function* storeNote(tx: Transaction, note: FlatChange): Step<boolean> {
  if (heldNotes.has(note.name)) {
    const [lease] = yield {
      sql: "SELECT n FROM leases WHERE id = ? AND token = ?",
      values: [note.id, note.expectToken ?? 0],
    };
    if (!lease) return false;
    yield* tx.dialect.appendEvent(tx, int(lease, "n"), note.values);
    return true;
  }
  const [row] = yield { sql: selectJob, values: [note.id] };
  if (!row) return false;
  if (!transitions[note.name as EventName].from.includes(yield* stateOf(row))) return false;
  if (row.state === null) yield* markNoted(row);
  yield* tx.dialect.appendEvent(tx, int(row, "n"), note.values);
  return true;
}

/** A note on a job that waits is not told by its version, so that a claim must be told to read the log. */
function* markNoted(row: SqlRow): Step<void> {
  yield { sql: "UPDATE waiting SET noted = 1 WHERE n = ?", values: [int(row, "n")] };
  yield {
    sql: "UPDATE ready SET noted = 1 WHERE lane = ? AND rank = ? AND run_at = ? AND id = ?",
    values: [int(row, "lane"), -int(row, "priority"), int(row, "run_at"), text(row, "id")],
  };
}

/** The worker of a job that was ended from outside has let go of it: its slots are free, and others are let in. */
export function* confirmEnd(tx: Transaction, id: string, token: number): Step<void> {
  for (const key of yield* freeConfirmed(tx, id, token)) yield* promoteKey(tx, key);
}

/** Frees the slots of a job that its worker has let go of, and gives their keys. */
export function* freeConfirmed(
  tx: Transaction,
  id: string,
  token: number,
): Step<readonly string[]> {
  const rows = yield {
    sql: "DELETE FROM slots WHERE job = ? AND token = ? AND until IS NOT NULL RETURNING scope",
    values: [id, token],
  };
  if (rows.length > 0) tx.woke.ready = true;
  return rows.flatMap((row) => keyOfScope(text(row, "scope")) ?? []);
}

/** The state of a job: its end has it once it has ended, its slim row before. */
function* stateOf(row: SqlRow): Step<JobState> {
  if (row.state !== null) return row.state as JobState;
  const { n, lane, rank, runAt, id } = placeOf(row);
  const [slim] = yield {
    sql: `SELECT state FROM waiting WHERE n = ?
      UNION ALL SELECT state FROM ready WHERE lane = ? AND rank = ? AND run_at = ? AND id = ?`,
    values: [n, lane, rank, runAt, id],
  };
  return slim ? (slim.state as JobState) : "active";
}

/** Where the slim row of a job is found, from its wide row. */
function placeOf(row: SqlRow): Place {
  return {
    n: int(row, "n"),
    id: text(row, "id"),
    lane: int(row, "lane"),
    rank: -int(row, "priority"),
    runAt: int(row, "run_at"),
  };
}
