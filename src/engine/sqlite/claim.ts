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
import { readLater } from "../sql/read.js";
import { readRecord } from "../sql/records.js";
import { createdValues, eventValues } from "../sql/rows.js";
import { freeKeySlot } from "../sql/slim.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";
import { insertEvent } from "./dialect.js";
import { insertMany } from "./insert.js";
import { lookInTime } from "./outlook.js";

/**
 * A claimed job as one flat list, which is cheap to carry from thread to thread: where its lane stands in the ask,
 * its id and its context. One that was never tried has but its creation in the log, of which the rest follows
 * with the id of `started`; of others the values of all events do, `started` the last of them.
 */
export type ClaimedValues = FreshValues | TriedValues;

/** A claimed job that was never tried. */
export type FreshValues = readonly [
  isFresh: 1,
  lane: number,
  id: string,
  context: string,
  createdAt: number,
  createdId: string,
  createdBy: string,
  createdBody: string,
  startedId: string,
];

/** A claimed job that was tried before, or noted upon. */
export type TriedValues = readonly [
  isFresh: 0,
  lane: number,
  id: string,
  context: string,
  ...events: SqlValue[],
];

/** Where the events of a job that was tried before begin. */
export const triedHeadLength = 4;

/** What a claim gave, as rows. */
export interface ClaimRows {
  /** When the jobs were started; their leases count from then. */
  readonly at: number;
  readonly jobs: readonly ClaimedValues[];
  readonly nextDueAt: number | null;
}

/** How often a claim looks again because jobs that it met had to be ended or passed over. */
const roundsMax = 20;

/** Claims jobs in order, at most the free places, within every cap. */
export function* claimJobs(tx: Transaction, ask: ClaimAsk): Step<ClaimRows> {
  const numbers: number[] = [];
  for (const lane of ask.lanes)
    numbers.push(yield* laneNumber(tx, { ...lane, typeVersion: versionOf(lane) }));
  const { inLine, nextAt } = yield* lookInTime(tx, numbers);
  const left: CapsLeft = new Map();
  const lanes: AskedLane[] = [];
  for (const [place, lane] of ask.lanes.entries()) {
    const number = numbers[place] as number;
    if (!inLine.has(number) || (yield* isPaused(tx, lane))) continue;
    lanes.push({ lane, place, number, caps: yield* countCaps(tx, lane, left), free: lane.free });
  }
  const jobs: ClaimedValues[] = [];
  for (let round = 0; round < roundsMax && jobs.length < ask.limit; round++) {
    const found = yield* candidates(tx, lanes, ask.limit - jobs.length, left);
    const starts: Start[] = [];
    for (const candidate of found) {
      const start = yield* startOrExpire(tx, candidate, ask.worker, left);
      if (start) starts.push(start);
    }
    yield* leaveLine(tx, starts, ask.worker, starts.length === found.length);
    for (const claimed of yield* storeStarts(tx, starts)) jobs.push(claimed);
    if (starts.length === found.length) break;
    // There may be more behind those that were passed over, which whoever claims next will find.
    if (round === roundsMax - 1) tx.woke.ready = true;
  }
  return { at: tx.now, jobs, nextDueAt: jobs.length < ask.limit ? nextAt : null };
}

function* isPaused(tx: Transaction, lane: ClaimLane): Step<boolean> {
  const record = yield* readRecord(tx.now, recordId.queue(lane.service, lane.queue));
  return record !== null && (record.body as unknown as QueueSettings).paused;
}

/** A claimable job with what its claim needs, as the columns come. */
type ReadyRow = readonly [
  n: number,
  id: string,
  rank: number,
  runAt: number,
  deadline: number | null,
  isFresh: 0 | 1,
  context: string,
  createdState: string,
  createdAt: number,
  createdId: string,
  createdBy: string,
  createdBody: string,
];

const selectReady = `SELECT r.n, r.id, r.rank, r.run_at, r.deadline, r.version = 1 AND r.noted = 0,
    j.context, j.created_state, j.created_at, j.created_id, j.created_by, j.created_body
  FROM ready r JOIN jobs j ON j.n = r.n
  WHERE r.lane = ? AND r.run_at <= ? ORDER BY r.rank, r.run_at, r.id LIMIT ?`;

/** A lane that can be claimed from now, and where it stands in the ask. */
interface AskedLane extends OpenLane {
  readonly place: number;
}

interface Candidate {
  readonly open: AskedLane;
  readonly row: ReadyRow;
}

/** The first in line over all lanes, in the order of claims, as far as places and caps reach. */
function* candidates(
  tx: Transaction,
  lanes: readonly AskedLane[],
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
  return a[2] - b[2] || a[3] - b[3] || (a[1] < b[1] ? -1 : 1);
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
  const [n, id, , , deadline, isFresh] = row;
  const { service, type } = open.lane;
  const isLate = claimVerdict({ deadline }, tx.now) === "expire";
  const last = isFresh === 1 && !isLate ? neverTried : yield* lastPlace(open, row);
  const { state, version, run, tries, token } = last;
  const job = { id, service, type, state, version, run, tries, token, context: notStored };
  const origin = { eventId: tx.eventId(), actor: `worker:${worker}` as Actor };
  if (isLate) {
    yield { sql: `DELETE FROM ready ${ofOne}`, values: lineEnd(open, row) };
    const event = expiredEvent({ ...job, deadline: deadline ?? 0 }, origin, tx.now);
    yield* expireJob(
      tx,
      { n, lane: open.number, token, key: last.key, startedAt: last.startedAt },
      event,
    );
    return null;
  }
  if (!takePlace(open, left)) return null;
  return { open, row, started: startedEvent(job, origin, worker, tx.now) };
}

/** What a claim changes of a job, as it was before. */
interface LastPlace {
  readonly state: "pending" | "retry";
  readonly version: number;
  readonly run: number;
  readonly tries: number;
  readonly token: number;
  readonly key: string | null;
  readonly startedAt: number | null;
}

/** The same of a job that was never tried, and that does not end here. */
export const neverTried: LastPlace = {
  state: "pending",
  version: 1,
  run: 1,
  tries: 0,
  token: 0,
  key: null,
  startedAt: null,
};

/** Reads what a claim changes of a job. */
function* lastPlace(open: AskedLane, row: ReadyRow): Step<LastPlace> {
  const [place] = yield {
    sql: `SELECT state, version, run, tries, token, key, started_at AS startedAt FROM ready ${ofOne}`,
    values: lineEnd(open, row),
  };
  if (!place) throw new Error(`Job ${row[1]} left its line while it was claimed.`);
  return place as unknown as LastPlace;
}

/** One job in line, or all of a lane up to it. */
const ofOne = "WHERE lane = ? AND rank = ? AND run_at = ? AND id = ?";
const upTo = "WHERE lane = ? AND run_at <= ? AND (rank, run_at, id) <= (?, ?, ?)";

/** The place of a job in line. */
function lineEnd(open: AskedLane, [, id, rank, runAt]: ReadyRow): readonly SqlValue[] {
  return [open.number, rank, runAt, id];
}

/** Leases for jobs that are in line, with the version, the try and the token that `started` gives them. */
const insertLeases = `INSERT INTO leases (id, n, lane, rank, run_at, version, run, tries, token, deadline, key, key_max,
    worker, started_at, updated_at, heartbeat_at, until, capped, cancel, blocked)
  SELECT id, n, lane, rank, run_at, version + 1, run, tries + 1, token + 1, deadline, key, key_max, ?, ?, ?, ?, ?, ?, 0, 0
  FROM ready `;

/** Moves jobs that start from the line to their leases. Where none was passed over, they are all of their lanes up to the last of each. */
function* leaveLine(
  tx: Transaction,
  starts: readonly Start[],
  worker: string,
  isAll: boolean,
): Step<void> {
  const moved = isAll ? new Map(starts.map((start) => [start.open, start])).values() : starts;
  for (const { open, row } of moved) {
    const [, id, rank, runAt] = row;
    const range = isAll ? upTo : ofOne;
    const place = isAll ? [open.number, tx.now, rank, runAt, id] : lineEnd(open, row);
    const lease = [
      tx.now,
      tx.now,
      tx.now,
      tx.now + open.lane.leaseMs,
      open.caps.length > 0 ? 1 : 0,
    ];
    yield { sql: insertLeases + range, values: [worker, ...lease, ...place] };
    yield { sql: `DELETE FROM ready ${range}`, values: place };
  }
}

const insertEvents = insertMany(insertEvent);

/** Stores that jobs have started, and gives them with their logs. */
function* storeStarts(tx: Transaction, starts: readonly Start[]): Step<readonly ClaimedValues[]> {
  const events: SqlValue[] = [];
  for (const { row, started } of starts) {
    tx.seq += 1;
    events.push(tx.seq, row[0], ...eventValues(started));
  }
  yield* insertEvents(events);
  const claimed: ClaimedValues[] = [];
  for (const { open, row, started } of starts) {
    const [n, id, , , , isFresh, context, state, at, createdId, createdBy, createdBody] = row;
    if (isFresh === 1) {
      claimed.push([1, open.place, id, context, at, createdId, createdBy, createdBody, started.id]);
      continue;
    }
    const created = createdValues(state, at, createdId, createdBy, createdBody);
    claimed.push([0, open.place, id, context, ...created, ...(yield* readLater(n)).flat()]);
  }
  return claimed;
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
