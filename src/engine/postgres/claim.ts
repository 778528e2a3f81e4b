/**
 * Claiming: due jobs become claimable, caps are counted under a lock, and the first in line that nobody else is claiming
 * are started under fresh tokens.
 */
import { claimVerdict, expiredEvent, startedEvent } from "../../core/decide.js";
import type { EventOf } from "../../core/event.js";
import { evolve, fold } from "../../core/evolve.js";
import type { Actor, JobContext } from "../../core/job.js";
import type { ClaimAnswer, ClaimAsk, ClaimedJob } from "../engine.js";
import { type QueueSettings, recordId } from "../record.js";
import { type CapsLeft, capScopes, countCaps, type OpenLane, takePlace } from "../sql/caps.js";
import { endStatement } from "../sql/place.js";
import { type EventValues, eventFrom, eventValues, headOf, type JobHead } from "../sql/rows.js";
import { freeSlot, keyScope } from "../sql/slim.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import { promoteDue, sweepSlots } from "./due.js";
import { promoteKeys, waitingKeys } from "./keys.js";
import type { Marks } from "./marks.js";
import { readEventsOf } from "./read.js";
import { array, list, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** How often a claim looks again because jobs that it met had to be ended or passed over. */
const roundsMax = 20;

/** The most keys that one claim looks at because the next job may not have been let in. */
const sweepKeysMax = 200;

/**
 * Claims jobs in order, at most the free places, within every cap. The lanes are known already.
 * With `sweep` it looks for keys with a free slot whose next job was not let in, as when a process died in between.
 */
export function* claimJobs(
  tx: PostgresTransaction,
  ask: ClaimAsk,
  sweep: boolean,
  marks: Marks,
): Step<ClaimAnswer> {
  const numbers = ask.lanes.map(({ lane }) => tx.lanes.get(lane) ?? 0);
  const paused = yield* lookAhead(tx, ask, numbers);
  if (sweep) {
    const keys = yield* waitingKeys(numbers, sweepKeysMax);
    if (keys.length > 0) yield* promoteKeys(tx, keys);
  }
  const left: CapsLeft = new Map();
  yield* lockCaps(ask);
  const lanes: OpenLane[] = [];
  for (const [index, lane] of ask.lanes.entries()) {
    const number = numbers[index] ?? 0;
    if (paused.has(number)) continue;
    lanes.push({ lane, number, caps: yield* countCaps(tx, lane, left), free: lane.free });
  }
  const jobs: ClaimedJob[] = [];
  for (let round = 0; round < roundsMax && jobs.length < ask.limit; round++) {
    const found = yield* candidates(tx, lanes, ask.limit - jobs.length, left, marks);
    const claimed = yield* claimAll(atTimeOf(tx, found), found, ask.worker, left);
    jobs.push(...claimed);
    if (claimed.length === found.length) break;
    // There may be more behind those that were passed over, which whoever claims next will find.
    if (round === roundsMax - 1) tx.woke.ready = true;
  }
  return { jobs, nextDueAt: jobs.length < ask.limit ? yield* nextDue(numbers) : null };
}

const look = `SELECT i.lane, (SELECT r.body FROM records r WHERE r.id = i.record AND (r.expires_at IS NULL OR r.expires_at > ?)),
    EXISTS (SELECT 1 FROM waiting w WHERE w.lane = i.lane AND w.cause = 'due' AND w.run_at <= ?),
    EXISTS (SELECT 1 FROM slots s WHERE s.until IS NOT NULL AND s.until <= ?)
  FROM ${table("i", { lane: "int", record: "text" })}`;

type Outlook = readonly [lane: number, settings: string | null, isDue: boolean, isLapsed: boolean];

/** Does what time has brought, and gives the lanes whose queue is paused. */
function* lookAhead(
  tx: PostgresTransaction,
  ask: ClaimAsk,
  numbers: readonly number[],
): Step<ReadonlySet<number>> {
  const records = ask.lanes.map(({ service, queue }) => recordId.queue(service, queue));
  const values = [tx.now, tx.now, tx.now, list(numbers), list(records)];
  const rows = (yield {
    sql: look,
    values,
    raw: true,
    planned: true,
  }) as unknown as readonly Outlook[];
  if (rows.some(([, , , isLapsed]) => isLapsed)) yield* sweepSlots(tx);
  const due = rows.filter(([, , isDue]) => isDue).map(([lane]) => lane);
  if (due.length > 0) yield* promoteDue(tx, due);
  const isPaused = (settings: string | null) =>
    settings !== null && (JSON.parse(settings) as QueueSettings | null)?.paused === true;
  return new Set(rows.filter(([, settings]) => isPaused(settings)).map(([lane]) => lane));
}

/** Claims under the same cap go one after the other, so that none counts places that another is about to take. */
function* lockCaps(ask: ClaimAsk): Step<void> {
  const scopes = [...new Set(ask.lanes.flatMap(capScopes))].sort();
  if (scopes.length === 0) return;
  yield {
    sql: `SELECT pg_advisory_xact_lock(hashtextextended(scope, 77)) FROM unnest(${array("text")}) AS scope`,
    values: [list(scopes)],
  };
}

const selectFrom = (
  start: string,
) => `SELECT r.ctid::text, r.n, r.id, r.lane, r.rank, r.run_at, r.state, r.version, r.run, r.tries,
    r.token, r.deadline, r.key, r.noted, r.started_at, e.context, e.state, e.at, e.id, e.actor, e.body
  FROM (SELECT ctid, n, id, lane, rank, run_at, state, version, run, tries, token, deadline, key, noted, started_at
    FROM ready WHERE lane = ? ${start} ORDER BY rank, run_at, id LIMIT ? FOR UPDATE SKIP LOCKED) AS r
  JOIN events e ON e.seq = r.n`;

const selectReady = selectFrom("");
const selectBehind = selectFrom("AND (rank, run_at, id) > (?, ?, ?)");

type ReadyRow = readonly [
  ctid: string,
  n: number,
  id: string,
  lane: number,
  rank: number,
  runAt: number,
  state: "pending" | "retry",
  version: number,
  run: number,
  tries: number,
  token: number,
  deadline: number | null,
  key: string | null,
  noted: number,
  startedAt: number | null,
  context: string,
  createdState: string,
  createdAt: number,
  createdId: string,
  createdBy: string,
  createdBody: string,
];

interface Candidate {
  readonly open: OpenLane;
  readonly row: ReadyRow;
}

/** The first in line over all lanes, in the order of claims, as far as places and caps reach. */
function* candidates(
  tx: PostgresTransaction,
  lanes: readonly OpenLane[],
  limit: number,
  left: CapsLeft,
  marks: Marks,
): Step<readonly Candidate[]> {
  const found: Candidate[] = [];
  for (const open of lanes) {
    const places = Math.min(open.free, limit, ...open.caps.map((scope) => left.get(scope) ?? 0));
    if (places <= 0) continue;
    for (const row of yield* readyRows(open.number, places, marks)) found.push({ open, row });
  }
  found.sort((a, b) => compareRows(a.row, b.row));
  if (found.length <= limit) return found;
  // The rest stays locked until the end, and who looks meanwhile does not see it.
  tx.woke.ready = true;
  return found.slice(0, limit);
}

/** Jobs may have come after the transaction read the clock; they start no earlier than they are due. */
function atTimeOf(tx: PostgresTransaction, found: readonly Candidate[]): PostgresTransaction {
  const now = found.reduce((latest, { row }) => Math.max(latest, row[5]), tx.now);
  return now === tx.now ? tx : { ...tx, now };
}

/** The first in line of one lane that nobody else is claiming. */
function* readyRows(lane: number, places: number, marks: Marks): Step<readonly ReadyRow[]> {
  const mark = marks.from(lane);
  if (mark) {
    const values = [lane, mark.rank, mark.runAt, mark.id, places];
    const rows = arrays<ReadyRow>(yield { sql: selectBehind, values, raw: true, planned: true });
    if (rows.length === places) {
      remember(lane, rows, marks);
      return rows;
    }
  }
  const startedAt = performance.now();
  const values = [lane, places];
  const rows = arrays<ReadyRow>(yield { sql: selectReady, values, raw: true, planned: true });
  marks.looked(lane, performance.now() - startedAt);
  remember(lane, rows, marks);
  return rows;
}

function remember(lane: number, rows: readonly ReadyRow[], marks: Marks): void {
  const last = [...rows].sort(compareRows).at(-1);
  if (last) marks.found(lane, rows.length, { rank: last[4], runAt: last[5], id: last[2] });
}

function compareRows(a: ReadyRow, b: ReadyRow): number {
  return a[4] - b[4] || a[5] - b[5] || (a[2] < b[2] ? -1 : 1);
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
  for (const candidate of found) {
    const { open, row } = candidate;
    const head = headOf([row[2], open.lane.service, open.lane.type, row[15]]);
    const job = jobOf(row, head);
    const origin = { eventId: tx.eventId(), actor };
    const deadline = row[11];
    if (claimVerdict({ deadline }, tx.now) === "expire") {
      yield* expireJob(tx, row, expiredEvent({ ...job, deadline: deadline ?? 0 }, origin, tx.now));
    } else if (takePlace(open, left)) {
      starts.push({ ...candidate, head, started: startedEvent(job, origin, worker, tx.now) });
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
  const values = starts.map(({ started }) => eventValues(started));
  const column = (member: number) => list(values.map((event) => event[member] as SqlValue));
  return {
    sql: insertStarted,
    planned: true as const,
    silent: true as const,
    values: [
      tx.now,
      actor,
      list(starts.map(({ row }) => row[1])),
      column(1),
      column(2),
      column(3),
      column(5),
      column(7),
      column(9),
    ],
  };
}

/** A job that was never tried has but its creation in the log, which came with its row; the logs of others are read. */
function* claimedJobs(
  tx: PostgresTransaction,
  starts: readonly Start[],
): Step<readonly ClaimedJob[]> {
  const tried = starts.filter(({ row }) => row[7] > 1 || row[13] === 1).map(({ row }) => row[1]);
  const logs = tried.length > 0 ? yield* readEventsOf(tried) : new Map<number, EventValues[]>();
  return starts.map(({ open, row, head, started }) => {
    const leaseUntil = tx.now + open.lane.leaseMs;
    const log = logs.get(row[1]);
    const job = log
      ? fold(log.map((values) => eventFrom(head, values)))
      : evolve(evolve(null, eventFrom(head, createdValues(row))).job, started).job;
    if (!job) throw new Error(`The log of job ${head.jobId} does not begin with its creation.`);
    return { job, leaseUntil };
  });
}

function createdValues(row: ReadyRow): EventValues {
  return ["created", 1, 1, 0, row[16], null, row[17], row[18], row[19], row[20]];
}

/** Ends a claimable job whose deadline has come, and gives its reserved slot to the next of its key. */
function* expireJob(tx: PostgresTransaction, row: ReadyRow, event: EventOf<"expired">): Step<void> {
  const [ctid, n, id] = row;
  const token = row[10];
  const key = row[12];
  yield { sql: "DELETE FROM ready WHERE ctid = ?::tid", values: [ctid] };
  yield* tx.dialect.appendEvent(tx, n, eventValues(event));
  const last = { n, token, startedAt: row[14] };
  yield endStatement(last, { ...event, detail: null, aggregate: null });
  tx.woke.ended = true;
  if (key === null) return;
  yield freeSlot(keyScope(key), id, token + 1);
  yield* promoteKeys(tx, [key]);
}

/** When the next job of these lanes becomes due, or the next slot of an ended job lapses. */
function* nextDue(lanes: readonly number[]): Step<number | null> {
  const [row] = arrays<[number | null]>(
    yield {
      sql: `SELECT least(
          (SELECT min(run_at) FROM waiting WHERE lane = ANY(${array("int")}) AND cause = 'due'),
          (SELECT min(until) FROM slots WHERE until IS NOT NULL)
        )`,
      values: [list(lanes)],
      raw: true,
    },
  );
  return row?.[0] ?? null;
}
