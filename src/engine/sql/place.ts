/**
 * Where an event moves a job: to its end, back among the waiting, or on under the same lease.
 */
import { isEnded, type JobState } from "../../core/job.js";
import type { FlatChange } from "./change.js";
import {
  freeSlot,
  keepHeld,
  keyScope,
  placeSlim,
  promoteKey,
  type Slim,
  type Taken,
} from "./slim.js";
import type { Statement, Step } from "./statement.js";
import type { Transaction } from "./transaction.js";

/** What an event says of the job after it. */
export interface After {
  readonly state: JobState;
  readonly version: number;
  readonly run: number;
  readonly tries: number;
  readonly at: number;
  readonly detail: string | null;
  readonly aggregate: string | null;
}

/** Writes the end of a job, which stands where its slim row stood before. */
export const insertEnded = `INSERT INTO ended (n, lane, state, version, run, tries, token, started_at, ended_at, updated_at, detail, aggregate)
  VALUES (?,?,?,?,?,?,?,?,?,?,?,?)`;

/** What the end of a job keeps of its last attempt. */
interface LastAttempt {
  readonly n: number;
  readonly lane: number;
  readonly token: number;
  readonly startedAt: number | null;
}

/** The statement that writes the end of a job. */
export function endStatement(last: LastAttempt, after: After): Statement {
  const { state, version, run, tries, at, detail, aggregate } = after;
  return {
    sql: insertEnded,
    values: [
      last.n,
      last.lane,
      state,
      version,
      run,
      tries,
      last.token,
      last.startedAt,
      at,
      at,
      detail,
      aggregate,
    ],
  };
}

/** Ends a job whose slim row was taken away. */
export function* endJob(tx: Transaction, taken: Taken, after: After): Step<void> {
  yield endStatement(taken.slim, after);
  tx.woke.ended = true;
}

/** The events by which a lapsed lease lets another job of the key take over. */
const takeovers: ReadonlySet<string> = new Set(["stale", "retry", "dead"]);

/** Whether an event let another job of its key take over. */
export function isTakeover({ lapse, name }: Pick<FlatChange, "lapse" | "name">): boolean {
  return lapse && takeovers.has(name);
}

/** Puts a job where its event leads it, and gives back or keeps what it held. */
export function* moveOn(
  tx: Transaction,
  taken: Taken,
  change: FlatChange,
  confirmed: boolean,
): Step<void> {
  const { slim, lease } = taken;
  const kept = lease !== null && !confirmed && lease.until > tx.now;
  if (kept) yield* keepHeld(taken, lease.until);
  else if (lease !== null && slim.key !== null)
    yield freeSlot(keyScope(slim.key), slim.id, slim.token);
  if (isEnded(change.state)) yield* endJob(tx, taken, change);
  else yield* placeAgain(tx, slim, change);
  if (lease !== null) tx.woke.ready = true;
  if (slim.key === null) return;
  yield* promoteKey(tx, slim.key);
  if (isTakeover(change))
    yield { sql: "UPDATE keys SET takeovers = takeovers + 1 WHERE hash = ?", values: [slim.key] };
}

/** A job that is to run again waits for its new time; the wide row keeps that time, so that the job can be found. */
function* placeAgain(tx: Transaction, slim: Slim, change: FlatChange): Step<void> {
  const next = waitingAgain(slim, change);
  if (next.runAt !== slim.runAt)
    yield { sql: "UPDATE jobs SET run_at = ? WHERE n = ?", values: [next.runAt, slim.n] };
  yield* placeSlim(tx, next);
}

/** A job as it waits after an event that lets it run again. */
export function waitingAgain(slim: Slim, change: FlatChange): Slim {
  return {
    ...slim,
    runAt: change.name === "unblocked" ? slim.runAt : change.runAt,
    state: change.state,
    version: change.version,
    run: change.run,
    tries: change.tries,
    updatedAt: change.at,
    detail: change.detail,
  };
}
