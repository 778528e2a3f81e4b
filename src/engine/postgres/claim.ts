/**
 * Claiming: due jobs become claimable, caps are counted under a lock, and the first in line that nobody else is claiming
 * are started under fresh tokens.
 */
import { claimVerdict, expiredEvent, startedEvent } from "../../core/decide.js";
import type { EventOf } from "../../core/event.js";
import { evolve, fold } from "../../core/evolve.js";
import type { Actor, JobContext } from "../../core/job.js";
import type { ClaimAnswer, ClaimAsk, ClaimedJob } from "../engine.js";
import { type CapsLeft, countCaps, type OpenLane, takePlace } from "../sql/caps.js";
import { endStatement } from "../sql/place.js";
import {
  bodyText,
  createdValues,
  type EventValues,
  eventFrom,
  eventValues,
  headOf,
  type JobHead,
} from "../sql/rows.js";
import { freeSlot, keyScope } from "../sql/slim.js";
import type { SqlValue, Step } from "../sql/statement.js";
import { promoteDue, sweepSlots } from "./due.js";
import { freeKeys, promoteKeys } from "./keys.js";
import { type Candidate, compareRows, lookAhead, type Outlook, type ReadyRow } from "./look.js";
import type { Marks } from "./marks.js";
import { readLaterOf } from "./read.js";
import { array, list, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** How often a claim looks again because jobs that it met had to be ended or passed over. */
const roundsMax = 20;

/** A look for slots of keys that came free unnoticed: behind which key it begins, and how far it came. */
export interface KeySweep {
  readonly from: string;
  upTo: string;
}

/**
 * Claims jobs in order, at most the free places, within every cap. The lanes are known already.
 * With `sweep` it looks for keys with a free slot whose next job was not let in, as when a process died in between.
 */
export function* claimJobs(
  tx: PostgresTransaction,
  ask: ClaimAsk,
  lanes: readonly OpenLane[],
  sweep: KeySweep | null,
  marks: Marks,
): Step<ClaimAnswer> {
  const left: CapsLeft = new Map();
  const look = (limit: number) => lookAhead(tx, lanes, limit, left, marks);
  let outlook = yield* look(ask.limit);
  if (yield* bringIn(tx, outlook, sweep)) outlook = yield* look(ask.limit);
  if (outlook.lined.length > 0) {
    yield* countUnderLock(tx, outlook.lined, left);
    outlook = yield* look(ask.limit);
  }
  const jobs: ClaimedJob[] = [];
  for (let round = 1; ; round++) {
    const found = firstInLine(tx, outlook.found, ask.limit - jobs.length);
    const claimed = yield* claimAll(atTimeOf(tx, found), found, ask.worker, left);
    jobs.push(...claimed);
    if (claimed.length === found.length || jobs.length === ask.limit) break;
    // There may be more behind those that were passed over, which whoever claims next will find.
    if (round === roundsMax) {
      tx.woke.ready = true;
      break;
    }
    outlook = yield* look(ask.limit - jobs.length);
  }
  const next = Math.min(outlook.dueAt, outlook.lapsesAt);
  return { jobs, nextDueAt: jobs.length < ask.limit && Number.isFinite(next) ? next : null };
}

/** Does what time has brought, and gives whether it did something. */
function* bringIn(
  tx: PostgresTransaction,
  { due, lapsesAt }: Outlook,
  sweep: KeySweep | null,
): Step<boolean> {
  const isLapsed = lapsesAt <= tx.now;
  if (isLapsed) yield* sweepSlots(tx);
  if (due.length > 0) yield* promoteDue(tx, due);
  const free = sweep ? yield* sweepKeys(tx, sweep) : false;
  return isLapsed || due.length > 0 || free;
}

/** Lets the next jobs of keys in whose slots came free unnoticed, and gives whether there were any. */
export function* sweepKeys(tx: PostgresTransaction, sweep: KeySweep): Step<boolean> {
  const { free, upTo } = yield* freeKeys(tx, sweep.from);
  sweep.upTo = upTo;
  if (free.length > 0) yield* promoteKeys(tx, free);
  return free.length > 0;
}

/** Claims under the same cap go one after the other, so that none counts places that another is about to take. */
export function* lockCaps(lanes: readonly OpenLane[]): Step<void> {
  const scopes = [...new Set(lanes.flatMap(({ caps }) => caps))].sort();
  yield { sql: lockScopes, values: [list(scopes)], planned: true, silent: true };
}

const lockScopes = `SELECT pg_advisory_xact_lock(hashtextextended(scope, 77)) FROM unnest(${array("text")}) AS scope`;

/** Counts what caps leave when nobody else takes places under them any more. */
export function* countUnderLock(
  tx: PostgresTransaction,
  lanes: readonly OpenLane[],
  left: CapsLeft,
): Step<void> {
  yield* lockCaps(lanes);
  for (const { lane } of lanes) yield* countCaps(tx, lane, left);
}

/** The first in line over all lanes, in the order of claims. */
function firstInLine(
  tx: PostgresTransaction,
  found: readonly Candidate[],
  limit: number,
): readonly Candidate[] {
  const inOrder = [...found].sort((a, b) => compareRows(a.row, b.row));
  if (inOrder.length <= limit) return inOrder;
  // The rest stays locked until the end, and who looks meanwhile does not see it.
  tx.woke.ready = true;
  return inOrder.slice(0, limit);
}

/** Jobs may have come after the transaction read the clock; they start no earlier than they are due. */
function atTimeOf(tx: PostgresTransaction, found: readonly Candidate[]): PostgresTransaction {
  const now = found.reduce((latest, { row }) => Math.max(latest, row[5]), tx.now);
  return now === tx.now ? tx : { ...tx, dialect: tx.dialect, now };
}

/** A job that is to be started, with the event that starts it. */
interface Start extends Candidate {
  readonly head: JobHead;
  readonly started: EventOf<"started">;
}

/** Starts jobs, and ends those whose deadline has come. Leaves them where a cap has no place left. */
function* claimAll(
  tx: PostgresTransaction,
  found: readonly Candidate[],
  worker: string,
  left: CapsLeft,
): Step<readonly ClaimedJob[]> {
  const starts: Start[] = [];
  const actor: Actor = `worker:${worker}`;
  for (const { open, row } of found) {
    const head = headOf([row[2], open.lane.service, open.lane.type, row[15]]);
    const job = jobOf(row, head);
    const origin = { eventId: tx.eventId(), actor };
    const deadline = row[11];
    if (claimVerdict({ deadline }, tx.now) === "expire") {
      yield* expireJob(tx, row, expiredEvent({ ...job, deadline: deadline ?? 0 }, origin, tx.now));
    } else if (takePlace(open, left)) {
      starts.push({ open, row, head, started: startedEvent(job, origin, worker, tx.now) });
    }
  }
  if (starts.length === 0) return [];
  yield startStatement(tx, starts, worker);
  yield eventsStatement(tx, starts, actor);
  return yield* claimedJobs(tx, starts);
}

function jobOf(
  row: ReadyRow,
  { service, type, context }: { service: string; type: string; context: JobContext },
) {
  const [, , id, , , , state, version, run, tries, token] = row;
  return { id, service, type, state, version, run, tries, token, context };
}

/** What stays as it is goes from row to row inside the store; the rows are found by where they lie, since they are locked. */
const insertLeases = `WITH input AS (SELECT * FROM ${table("i", {
  place: "tid",
  version: "int",
  tries: "int",
  token: "int",
  until: "bigint",
  capped: "int",
})}),
  gone AS (DELETE FROM ready WHERE ctid = ANY(${array("tid")}))
  INSERT INTO leases (id, n, lane, rank, run_at, run, deadline, key, key_max, version, tries, token, until, capped,
    worker, started_at, updated_at, heartbeat_at, cancel, blocked)
  SELECT r.id, r.n, r.lane, r.rank, r.run_at, r.run, r.deadline, r.key, r.key_max, i.version, i.tries, i.token, i.until, i.capped,
    w.name, w.at, w.at, w.at, 0, 0
  FROM input i JOIN ready r ON r.ctid = i.place, (VALUES (?::text, ?::bigint)) AS w (name, at)`;

function startStatement(tx: PostgresTransaction, starts: readonly Start[], worker: string) {
  const column = (of: (start: Start) => SqlValue) => list(starts.map(of));
  const places = column(({ row }) => row[0]);
  return {
    sql: insertLeases,
    planned: true as const,
    silent: true as const,
    values: [
      places,
      column(({ started }) => started.version),
      column(({ started }) => started.tries),
      column(({ started }) => started.token),
      column(({ open }) => tx.now + open.lane.leaseMs),
      column(({ open }) => (open.caps.length > 0 ? 1 : 0)),
      places,
      worker,
      tx.now,
    ],
  };
}

const insertStarted = `INSERT INTO events (job, name, version, run, tries, state, previous, at, id, actor, body)
  SELECT i.job, 'started', i.version, i.run, i.tries, 'active', i.previous, i.at, i.id, i.actor, i.body
  FROM (SELECT *, ?::bigint AS at, ?::text AS actor FROM ${table("i", {
    job: "bigint",
    version: "int",
    run: "int",
    tries: "int",
    previous: "text",
    id: "text",
    body: "text",
  })}) AS i`;

function eventsStatement(tx: PostgresTransaction, starts: readonly Start[], actor: Actor) {
  const column = (of: (start: Start) => SqlValue) => list(starts.map(of));
  return {
    sql: insertStarted,
    planned: true as const,
    silent: true as const,
    values: [
      tx.now,
      actor,
      column(({ row }) => row[1]),
      column(({ started }) => started.version),
      column(({ started }) => started.run),
      column(({ started }) => started.tries),
      column(({ started }) => started.previousState),
      column(({ started }) => started.id),
      column(({ started }) => bodyText(started)),
    ],
  };
}

/** A job that was never tried has but its creation in the log, which came with its row; the logs of others are read. */
function* claimedJobs(
  tx: PostgresTransaction,
  starts: readonly Start[],
): Step<readonly ClaimedJob[]> {
  const tried = starts.filter(({ row }) => row[7] > 1 || row[13] === 1).map(({ row }) => row[1]);
  const logs = tried.length > 0 ? yield* readLaterOf(tried) : new Map<number, EventValues[]>();
  return starts.map(({ open, row, head, started }) => {
    const leaseUntil = tx.now + open.lane.leaseMs;
    const log = logs.get(row[1]);
    const [, , , , , , , , , , , , , , , , state, at, id, actor, body] = row;
    const created = evolve(null, eventFrom(head, createdValues(state, at, id, actor, body))).job;
    const job = log
      ? fold(
          log.map((values) => eventFrom(head, values)),
          created,
        )
      : evolve(created, started).job;
    if (!job) throw new Error(`The log of job ${head.jobId} does not begin with its creation.`);
    return { job, leaseUntil };
  });
}

/** Ends a claimable job whose deadline has come, and gives its reserved slot to the next of its key. */
function* expireJob(tx: PostgresTransaction, row: ReadyRow, event: EventOf<"expired">): Step<void> {
  const [ctid, n, id] = row;
  const token = row[10];
  const key = row[12];
  yield { sql: "DELETE FROM ready WHERE ctid = ?::tid", values: [ctid] };
  yield* tx.dialect.appendEvent(tx, n, eventValues(event));
  const last = { n, lane: row[3], token, startedAt: row[14] };
  yield endStatement(last, { ...event, detail: null, aggregate: null });
  tx.woke.ended = true;
  if (key === null) return;
  yield freeSlot(keyScope(key), id, token + 1);
  yield* promoteKeys(tx, [key]);
}
