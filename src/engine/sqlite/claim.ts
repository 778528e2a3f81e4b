/**
 * Claiming: due jobs become claimable, caps are counted, and the first in line are started under fresh tokens.
 */
import { claimVerdict, expiredEvent, startedEvent } from "../../core/decide.js";
import type { EventOf } from "../../core/event.js";
import type { Actor, JobContext } from "../../core/job.js";
import type { ClaimAsk, ClaimLane } from "../engine.js";
import { type QueueSettings, recordId } from "../record.js";
import { type CapsLeft, countCaps, type OpenLane, takePlace, versionOf } from "../sql/caps.js";
import { laneNumber } from "../sql/log.js";
import { endStatement } from "../sql/place.js";
import { readEvents } from "../sql/read.js";
import { readRecord } from "../sql/records.js";
import { type EventValues, eventValues, type HeadValues } from "../sql/rows.js";
import { freeKeySlot, insertLease, promoteDue, sweepSlots } from "../sql/slim.js";
import { arrays, type SqlRow, type SqlValue, type Statement, type Step } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";
import { insertEvent } from "./dialect.js";
import { insertMany } from "./insert.js";

/**
 * A claimed job as one flat list, which is cheap to carry from thread to thread: the values of its head,
 * the end of its lease, then the values of one event after the other, `started` the last of them.
 */
export type ClaimedValues = readonly SqlValue[];

/** Where the end of the lease stands, and where the events begin. */
export const leaseUntilIndex = 4;
export const claimedHeadLength = 5;

/** What a claim gave, as rows. */
export interface ClaimRows {
  readonly jobs: readonly ClaimedValues[];
  readonly nextDueAt: number | null;
}

/** How often a claim looks again because jobs that it met had to be ended or passed over. */
const roundsMax = 20;

/** Claims jobs in order, at most the free places, within every cap. */
export function* claimJobs(tx: Transaction, ask: ClaimAsk): Step<ClaimRows> {
  yield* sweepSlots(tx);
  const left: CapsLeft = new Map();
  const lanes: OpenLane[] = [];
  const numbers: number[] = [];
  for (const lane of ask.lanes) {
    const number = yield* laneNumber(tx, { ...lane, typeVersion: versionOf(lane) });
    numbers.push(number);
    yield* promoteDue(tx, number);
    if (yield* isPaused(tx, lane)) continue;
    lanes.push({ lane, number, caps: yield* countCaps(tx, lane, left), free: lane.free });
  }
  const jobs: ClaimedValues[] = [];
  for (let round = 0; round < roundsMax && jobs.length < ask.limit; round++) {
    const found = yield* candidates(tx, lanes, ask.limit - jobs.length, left);
    const starts: Start[] = [];
    for (const candidate of found) {
      const start = yield* startOrExpire(tx, candidate, ask.worker, left);
      if (start) starts.push(start);
    }
    yield* leaveLine(tx, starts, starts.length === found.length);
    for (const claimed of yield* storeStarts(tx, starts, ask.worker)) jobs.push(claimed);
    if (starts.length === found.length) break;
    // There may be more behind those that were passed over, which whoever claims next will find.
    if (round === roundsMax - 1) tx.woke.ready = true;
  }
  return { jobs, nextDueAt: jobs.length < ask.limit ? yield* nextDue(numbers) : null };
}

function* isPaused(tx: Transaction, lane: ClaimLane): Step<boolean> {
  const record = yield* readRecord(tx.now, recordId.queue(lane.service, lane.queue));
  return record !== null && (record.body as unknown as QueueSettings).paused;
}

/** A claimable job with what its claim needs, as the columns come. */
type ReadyRow = readonly [
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
  keyMax: number | null,
  context: string,
  createdState: string,
  createdAt: number,
  createdId: string,
  createdBy: string,
  createdBody: string,
  noted: number,
  startedAt: number | null,
];

const selectReady = `SELECT r.n, r.id, r.lane, r.rank, r.run_at, r.state, r.version, r.run, r.tries, r.token, r.deadline,
    r.key, r.key_max, e.context, e.state, e.at, e.id, e.actor, e.body, r.noted, r.started_at
  FROM ready r JOIN events e ON e.seq = r.n
  WHERE r.lane = ? AND r.run_at <= ? ORDER BY r.rank, r.run_at, r.id LIMIT ?`;

interface Candidate {
  readonly open: OpenLane;
  readonly row: ReadyRow;
}

/** The first in line over all lanes, in the order of claims, as far as places and caps reach. */
function* candidates(
  tx: Transaction,
  lanes: readonly OpenLane[],
  limit: number,
  left: CapsLeft,
): Step<readonly Candidate[]> {
  const found: Candidate[] = [];
  for (const open of lanes) {
    const places = Math.min(open.free, limit, ...open.caps.map((scope) => left.get(scope) ?? 0));
    if (places <= 0) continue;
    const rows = yield { sql: selectReady, values: [open.number, tx.now, places], raw: true };
    for (const row of arrays<ReadyRow>(rows)) found.push({ open, row });
  }
  if (lanes.length > 1) found.sort((a, b) => compareRows(a.row, b.row));
  return found.length > limit ? found.slice(0, limit) : found;
}

function compareRows(a: ReadyRow, b: ReadyRow): number {
  return a[3] - b[3] || a[4] - b[4] || (a[1] < b[1] ? -1 : 1);
}

/** Events are stored without the context, which stands beside the first one. */
const notStored: JobContext = { requestId: "", traceId: "", traceparent: "" };

/** A job that is to be started, with the event that starts it. */
interface Start extends Candidate {
  readonly started: EventOf<"started">;
}

/** Decides how to start a job, or ends it if its deadline has come. Leaves it where a cap has no place left. */
function* startOrExpire(
  tx: Transaction,
  { open, row }: Candidate,
  worker: string,
  left: CapsLeft,
): Step<Start | null> {
  const [n, id, lane, , , state, version, run, tries, token, deadline, key] = row;
  const { service, type } = open.lane;
  const job = { id, service, type, state, version, run, tries, token, context: notStored };
  const origin = { eventId: tx.eventId(), actor: `worker:${worker}` as Actor };
  if (claimVerdict({ deadline }, tx.now) === "expire") {
    yield remove(row);
    const event = expiredEvent({ ...job, deadline: deadline ?? 0 }, origin, tx.now);
    yield* expireJob(tx, { n, lane, key, token, startedAt: row[20] }, event);
    return null;
  }
  if (!takePlace(open, left)) return null;
  return { open, row, started: startedEvent(job, origin, worker, tx.now) };
}

function remove([, id, lane, rank, runAt]: ReadyRow): Statement {
  const sql = "DELETE FROM ready WHERE lane = ? AND rank = ? AND run_at = ? AND id = ?";
  return { sql, values: [lane, rank, runAt, id] };
}

const deleteUpTo =
  "DELETE FROM ready WHERE lane = ? AND run_at <= ? AND (rank, run_at, id) <= (?, ?, ?)";

/** Takes jobs that start out of line. Where none was passed over, they are all of their lanes up to the last of each. */
function* leaveLine(tx: Transaction, starts: readonly Start[], isAll: boolean): Step<void> {
  if (!isAll) {
    for (const { row } of starts) yield remove(row);
    return;
  }
  const last = new Map(starts.map(({ row }) => [row[2], row]));
  for (const [lane, [, id, , rank, runAt]] of last)
    yield { sql: deleteUpTo, values: [lane, tx.now, rank, runAt, id] };
}

const insertLeases = insertMany(insertLease);
const insertEvents = insertMany(insertEvent);

/** Gives jobs their leases, stores that they have started, and gives them with their logs. */
function* storeStarts(
  tx: Transaction,
  starts: readonly Start[],
  worker: string,
): Step<readonly ClaimedValues[]> {
  const leases: SqlValue[] = [];
  const events: SqlValue[] = [];
  const claimed: ClaimedValues[] = [];
  for (const { open, row, started } of starts) {
    const [n, id, lane, rank, runAt, , version, run, , , deadline, key, keyMax] = row;
    const { service, type, leaseMs } = open.lane;
    const until = tx.now + leaseMs;
    const capped = open.caps.length > 0 ? 1 : 0;
    leases.push(id, n, lane, rank, runAt, started.version, run, started.tries, started.token);
    leases.push(deadline, key, keyMax, worker, tx.now, tx.now, tx.now, until, capped);
    const values = eventValues(started);
    tx.seq += 1;
    events.push(tx.seq, n, ...values);
    const head: HeadValues = [id, service, type, row[13]];
    // A job that was never tried has but its creation in the log, which came with the row.
    if (version > 1 || row[19] === 1) claimed.push([...head, until]);
    else claimed.push([...head, until, ...createdValues(row), ...values]);
  }
  yield* insertLeases(leases);
  yield* insertEvents(events);
  for (const [index, values] of claimed.entries()) {
    const n = starts[index]?.row[0] ?? 0;
    if (values.length === claimedHeadLength)
      claimed[index] = [...values, ...(yield* readEvents(n)).flat()];
  }
  return claimed;
}

function createdValues(row: ReadyRow): EventValues {
  return ["created", 1, 1, 0, row[14], null, row[15], row[16], row[17], row[18]];
}

/** A claimable job whose deadline has come. */
interface Overdue {
  readonly n: number;
  readonly lane: number;
  readonly key: string | null;
  readonly token: number;
  readonly startedAt: number | null;
}

/** Ends a claimable job whose deadline has come, and gives its reserved slot to the next of its key. */
function* expireJob(
  tx: Transaction,
  { key, ...last }: Overdue,
  event: EventOf<"expired">,
): Step<void> {
  yield* tx.dialect.appendEvent(tx, last.n, eventValues(event));
  yield endStatement(last, { ...event, detail: null, aggregate: null });
  tx.woke.ended = true;
  if (key !== null) yield* freeKeySlot(tx, key, event.jobId, last.token + 1);
}

/** When the next job of these lanes becomes due, or the next slot of an ended job lapses. */
function* nextDue(lanes: readonly number[]): Step<number | null> {
  let next: number | null = null;
  const consider = (value: SqlRow[string] | undefined) => {
    if (typeof value === "number" && (next === null || value < next)) next = value;
  };
  for (const lane of lanes) {
    const [row] = yield {
      sql: "SELECT min(run_at) AS at FROM waiting WHERE lane = ? AND cause = 'due'",
      values: [lane],
    };
    consider(row?.at);
  }
  const [row] = yield {
    sql: "SELECT min(until) AS at FROM slots WHERE until IS NOT NULL",
    values: [],
  };
  consider(row?.at);
  return next;
}
