/**
 * Slim rows: every unfinished job has exactly one, in `waiting`, `ready` or `leases`.
 * Taking that row away at the version it was decided on is the compare; putting one down is the change.
 */
import { mayTakeSlot } from "../../core/admission.js";
import type { JobState } from "../../core/job.js";
import {
  int,
  intOrNull,
  type SqlRow,
  type SqlValue,
  type Statement,
  type Step,
  text,
} from "./statement.js";
import type { Place, Transaction } from "./transaction.js";

/** What a claim must know of a job that has not ended. */
export interface Slim {
  /** The position of the job's `created` event, which names the job inside the store. */
  readonly n: number;
  readonly id: string;
  readonly lane: number;
  /** The priority turned round, so that ascending order is the order of claims. */
  readonly rank: number;
  readonly runAt: number;
  readonly state: JobState;
  readonly version: number;
  readonly run: number;
  readonly tries: number;
  readonly token: number;
  readonly deadline: number | null;
  readonly updatedAt: number;
  readonly startedAt: number | null;
  readonly detail: string | null;
  /** The hash of the concurrency key, and how many of it may be active. */
  readonly key: string | null;
  readonly keyMax: number | null;
  /** 1 if the log holds notes that a version does not tell of. */
  readonly noted: number;
}

/** Why a job waits: for its time, for its key, or for other jobs. */
export type WaitCause = "due" | "key" | "blocked";

/** The columns of `waiting` and `ready` that hold a slim job. */
export const slimColumns =
  "n, id, lane, rank, run_at, state, version, run, tries, token, deadline, updated_at, started_at, detail, key, key_max, noted";

const insertWaiting = `INSERT INTO waiting (${slimColumns}, cause) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`;
/** Makes a job claimable. */
export const insertReady = `INSERT INTO ready (${slimColumns}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`;

function slimValues(slim: Slim): SqlValue[] {
  return [
    slim.n,
    slim.id,
    slim.lane,
    slim.rank,
    slim.runAt,
    slim.state,
    slim.version,
    slim.run,
    slim.tries,
    slim.token,
    slim.deadline,
    slim.updatedAt,
    slim.startedAt,
    slim.detail,
    slim.key,
    slim.keyMax,
    slim.noted,
  ];
}

/** A slim job from a row of `waiting` or `ready`. */
export function slimFromRow(row: SqlRow): Slim {
  return {
    n: int(row, "n"),
    id: text(row, "id"),
    lane: int(row, "lane"),
    rank: int(row, "rank"),
    runAt: int(row, "run_at"),
    state: row.state as JobState,
    version: int(row, "version"),
    run: int(row, "run"),
    tries: int(row, "tries"),
    token: int(row, "token"),
    deadline: intOrNull(row, "deadline"),
    updatedAt: int(row, "updated_at"),
    startedAt: intOrNull(row, "started_at"),
    detail: row.detail as string | null,
    key: row.key as string | null,
    keyMax: intOrNull(row, "key_max"),
    noted: int(row, "noted"),
  };
}

/** The scope of slots that belong to a concurrency key. */
export function keyScope(hash: string): string {
  return `k:${hash}`;
}

/** The key that a scope belongs to; `null` for the scope of a cap. */
export function keyOfScope(scope: string): string | null {
  return scope.startsWith("k:") ? scope.slice(2) : null;
}

/** Puts a job that may run where it belongs: claimable, or waiting for its time, its key or its blockers. */
export function* placeSlim(tx: Transaction, slim: Slim): Step<void> {
  if (slim.state === "blocked") {
    yield* wait(slim, "blocked");
    // What it waits for may have ended already, and then nothing else tells the keeper to look.
    tx.woke.ended = true;
    if (slim.key !== null && slim.runAt <= tx.now) yield* promoteKey(tx, slim.key);
    return;
  }
  // A later time is worth a hint, too: whoever waits for the next due job may have to look earlier now.
  tx.woke.ready = true;
  if (slim.runAt > tx.now) return yield* wait(slim, "due");
  if (slim.key === null) {
    yield lineUp(slim);
    return;
  }
  yield* tx.dialect.lockKey(slim.key);
  if (!(yield* nextOfKey(tx, slim.key)) && (yield* hasFreeSlot(tx, slim))) {
    yield takeSlot(keyScope(slim.key), slim.id, slim.token + 1);
    yield lineUp(slim);
    return;
  }
  yield* wait(slim, "key");
  yield* promoteKey(tx, slim.key);
}

/** Lets a job wait. */
export function* wait(slim: Slim, cause: WaitCause): Step<void> {
  yield { sql: insertWaiting, values: [...slimValues(slim), cause], planned: true, silent: true };
}

/** Makes a job claimable. */
function lineUp(slim: Slim): Statement {
  return { sql: insertReady, values: slimValues(slim), planned: true, silent: true };
}

/** Whether the key of a job has a slot for it. */
function* hasFreeSlot(tx: Transaction, slim: Slim): Step<boolean> {
  const keyMax = slim.keyMax ?? 1;
  return mayTakeSlot(keyMax, yield* slotsTaken(keyScope(slim.key ?? ""), tx.now, keyMax));
}

/** How many slots of a scope are taken, counted no further than `atMost`. */
export function* slotsTaken(scope: string, now: number, atMost: number): Step<number> {
  const [row] = yield {
    sql: "SELECT count(*) AS taken FROM (SELECT 1 FROM slots WHERE scope = ? AND (until IS NULL OR until > ?) LIMIT ?) AS held",
    values: [scope, now, atMost],
    planned: true,
  };
  return row ? int(row, "taken") : 0;
}

/** Takes a slot for a job under a token. It lasts as long as the lease, until its job is ended from outside. */
export function takeSlot(scope: string, id: string, token: number): Statement {
  return {
    sql: `INSERT INTO slots (scope, job, token, until) VALUES (?,?,?,NULL)
      ON CONFLICT (scope, job, token) DO UPDATE SET until = NULL`,
    values: [scope, id, token],
    planned: true,
    silent: true,
  };
}

/** Gives a slot back. */
export function freeSlot(scope: string, id: string, token: number): Statement {
  return {
    sql: "DELETE FROM slots WHERE scope = ? AND job = ? AND token = ?",
    values: [scope, id, token],
  };
}

/** Gives a key's slot back and lets the next job of the key in. */
export function* freeKeySlot(tx: Transaction, key: string, id: string, token: number): Step<void> {
  yield freeSlot(keyScope(key), id, token);
  yield* promoteKey(tx, key);
}

/** Lets waiting jobs of a key in, in the order of claims, while slots are free. */
export function* promoteKey(tx: Transaction, key: string): Step<void> {
  yield* tx.dialect.lockKey(key);
  for (;;) {
    const slim = yield* nextOfKey(tx, key);
    if (!slim || !(yield* hasFreeSlot(tx, slim))) return;
    // Somebody may have ended the job meanwhile; whoever takes the row away has it.
    const [taken] = yield {
      sql: "DELETE FROM waiting WHERE n = ? AND version = ? RETURNING n",
      values: [slim.n, slim.version],
    };
    if (!taken) continue;
    yield takeSlot(keyScope(key), slim.id, slim.token + 1);
    yield lineUp(slim);
    tx.woke.ready = true;
  }
}

/**
 * The first in line of those that a key keeps waiting, also of those whose time has come unnoticed. One that another
 * transaction has locked is passed over: who has the key waits for no job, because whoever has a job may wait for its key.
 */
function* nextOfKey(tx: Transaction, key: string): Step<Slim | null> {
  const [row] = yield {
    sql: `SELECT ${slimColumns} FROM waiting WHERE key = ? AND (cause = 'key' OR (cause = 'due' AND run_at <= ?))
      ORDER BY rank, run_at, id LIMIT 1 ${tx.dialect.forUpdate}`,
    values: [key, tx.now],
    planned: true,
  };
  return row ? slimFromRow(row) : null;
}

/** The most jobs of one lane that one claim makes claimable because their time has come. */
const promoteMax = 2_000;

/** Makes the jobs of a lane claimable whose time has come. */
export function* promoteDue(tx: Transaction, lane: number): Step<void> {
  const rows = yield {
    sql: `SELECT ${slimColumns} FROM waiting WHERE lane = ? AND cause = 'due' AND run_at <= ? ORDER BY run_at LIMIT ?`,
    values: [lane, tx.now, promoteMax],
  };
  for (const row of rows) {
    const slim = slimFromRow(row);
    if (slim.key !== null) yield* promoteLate(tx, slim, slim.key);
    else {
      yield { sql: "DELETE FROM waiting WHERE n = ?", values: [slim.n] };
      yield lineUp(slim);
    }
    tx.woke.ready = true;
  }
}

/** A keyed job whose time has come competes for a slot with all others of its key. */
function* promoteLate(tx: Transaction, slim: Slim, key: string): Step<void> {
  yield { sql: "UPDATE waiting SET cause = 'key' WHERE n = ? AND cause = 'due'", values: [slim.n] };
  yield* promoteKey(tx, key);
}

/** The most lapsed slots of ended jobs that one transaction sweeps. */
const sweepMax = 500;

/** Frees the slots of ended jobs whose worker never confirmed and whose lease has lapsed. */
export function* sweepSlots(tx: Transaction): Step<void> {
  const rows = yield {
    sql: "SELECT scope, job, token FROM slots WHERE until IS NOT NULL AND until <= ? LIMIT ?",
    values: [tx.now, sweepMax],
  };
  for (const row of rows) {
    const scope = text(row, "scope");
    yield freeSlot(scope, text(row, "job"), int(row, "token"));
    const key = keyOfScope(scope);
    if (key !== null) yield* promoteKey(tx, key);
    tx.woke.ready = true;
  }
}

/** A slim row that was taken away, and the lease that went with it if the job was active. */
export interface Taken {
  readonly slim: Slim;
  readonly lease: Lease | null;
}

/** The lease of an active job. */
export interface Lease {
  readonly until: number;
  readonly blocked: boolean;
}

/** Takes a waiting or claimable job's row away if it is at this version. Frees a slot that it had reserved. */
export function* takeWaiting(at: Place, version: number): Step<Taken | null> {
  const [waiting] = yield {
    sql: `DELETE FROM waiting WHERE n = ? AND version = ? RETURNING ${slimColumns}`,
    values: [at.n, version],
  };
  if (waiting) return { slim: slimFromRow(waiting), lease: null };
  const [ready] = yield {
    sql: `DELETE FROM ready WHERE lane = ? AND rank = ? AND run_at = ? AND id = ? AND version = ? RETURNING ${slimColumns}`,
    values: [at.lane, at.rank, at.runAt, at.id, version],
  };
  if (!ready) return null;
  const slim = slimFromRow(ready);
  if (slim.key !== null) yield freeSlot(keyScope(slim.key), slim.id, slim.token + 1);
  return { slim, lease: null };
}

/** Gives an active job its lease. */
export const insertLease = `INSERT INTO leases (id, n, lane, rank, run_at, version, run, tries, token, deadline, key, key_max,
  worker, started_at, updated_at, heartbeat_at, until, capped, cancel, blocked)
  VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,0,0)`;

const leaseColumns =
  "n, id, lane, rank, run_at, version, run, tries, token, deadline, started_at, key, key_max, until, blocked";

/** Takes an active job's lease away if it is at this version and, if one is given, under this token. */
export function* takeLease(
  tx: Transaction,
  id: string,
  version: number,
  token: number | undefined,
): Step<Taken | null> {
  yield* tx.dialect.keepLogOfLease(id);
  const [row] =
    token === undefined
      ? yield {
          sql: `DELETE FROM leases WHERE id = ? AND version = ? RETURNING ${leaseColumns}`,
          values: [id, version],
        }
      : yield {
          sql: `DELETE FROM leases WHERE id = ? AND version = ? AND token = ? RETURNING ${leaseColumns}`,
          values: [id, version, token],
        };
  return row ? takenFromLease(row) : null;
}

function takenFromLease(row: SqlRow): Taken {
  const slim = slimFromRow({
    ...row,
    state: "active",
    updated_at: row.started_at ?? 0,
    detail: null,
    noted: 1,
  });
  return { slim, lease: { until: int(row, "until"), blocked: int(row, "blocked") === 1 } };
}

/** The scope of slots of a type's cap. */
export function typeScope(service: string, type: string): string {
  return `t:${service}/${type}`;
}

/** The scope of slots of a queue's cap. */
export function queueScope(service: string, queue: string): string {
  return `q:${service}/${queue}`;
}

/**
 * Keeps the places of an active job that was ended from outside until its worker confirms or its lease lapses.
 * While a job is active its lease counts against the caps; from now on these rows do.
 */
export function* keepHeld(taken: Taken, until: number): Step<void> {
  const { id, token, key, lane } = taken.slim;
  const [names] = yield {
    sql: "SELECT service, type, queue FROM lanes WHERE id = ?",
    values: [lane],
  };
  if (!names) return;
  const service = text(names, "service");
  const scopes = [
    typeScope(service, text(names, "type")),
    queueScope(service, text(names, "queue")),
  ];
  if (key !== null) scopes.push(keyScope(key));
  for (const scope of scopes) {
    yield {
      sql: `INSERT INTO slots (scope, job, token, until) VALUES (?,?,?,?)
        ON CONFLICT (scope, job, token) DO UPDATE SET until = excluded.until`,
      values: [scope, id, token, until],
    };
  }
}
