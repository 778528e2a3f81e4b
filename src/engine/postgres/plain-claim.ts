/**
 * Claiming where nothing is to be decided, which is nearly always: one statement takes the first in line of all lanes,
 * gives them their leases and logs that they started, and the commit goes with it. Rows move inside the store.
 * Where something has to come first it takes nothing and says so: jobs whose time has come, slots that have lapsed,
 * a cap that is not counted. Jobs whose deadline has come are left to whoever claims step by step.
 */
import { startedEvent } from "../../core/decide.js";
import type { JobEvent } from "../../core/event.js";
import { evolve, fold } from "../../core/evolve.js";
import type { Actor } from "../../core/job.js";
import type { ClaimAnswer, ClaimAsk, ClaimedJob, ClaimLane } from "../engine.js";
import { recordId } from "../record.js";
import type { CapsLeft, OpenLane } from "../sql/caps.js";
import {
  createdValues,
  creationColumns,
  type EventValues,
  eventFrom,
  headOf,
  type JobHead,
} from "../sql/rows.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import { front, type Mark, type Marks } from "./marks.js";
import { logAsJson, roundMax } from "./rounds.js";
import { type SharedLeases, sharedMax, sharedMin } from "./shared-leases.js";
import { joined, list, nothing, separator, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** What is asked of each lane, and what time has brought there. One whose caps are not counted tells whether it has jobs. */
const asked = `SELECT i.*, c.now,
    (SELECT min(w.run_at) FROM waiting w WHERE w.lane = i.lane AND w.cause = 'due') AS due_at,
    coalesce((SELECT (s.body::json ->> 'paused')::boolean FROM records s
      WHERE s.id = i.record AND (s.expires_at IS NULL OR s.expires_at > c.now)), false) AS paused,
    i.uncounted = 1 AND EXISTS (
      SELECT 1 FROM ready o WHERE o.lane = i.lane AND (o.rank, o.run_at, o.id) > (i.rank, i.run_at, i.id)) AS lined
  FROM (SELECT ?::bigint AS now) AS c, ${table("i", {
    lane: "int",
    record: "text",
    places: "int",
    lease_ms: "bigint",
    capped: "int",
    uncounted: "int",
    rank: "int",
    run_at: "bigint",
    id: "text",
  })}`;

/** What is read of each job `r` that was taken and of its wide row `j`. A fold does not ask who created it. */
const takenColumns = [
  "r.n",
  "r.lane",
  "r.id",
  "r.rank",
  "r.run_at",
  "j.context",
  "j.created_state",
  "j.created_at",
  "j.created_body",
] as const;

/** The logs of the jobs that have more than their creation, each behind the job's number. */
const takenLogs = `${joined(`r.n || E'\\x1e' || (${logAsJson("r.n")})`)} FILTER (WHERE r.version > 1 OR r.noted = 1)`;

/**
 * A row that changed after the statement began is locked as it is now but cannot be deleted, so that everything follows from
 * what was deleted. All are deleted in one scan of where they lie, which gives them in no order. The log of a job that was
 * tried before comes as JSON; the creation of each stands in its wide row.
 */
const take = `WITH asked AS MATERIALIZED (${asked}),
  outlook AS MATERIALIZED (
    SELECT min(due_at) AS due_at, bool_or(lined AND NOT paused) AS lined, min(now) AS now,
      (SELECT min(until) FROM slots WHERE until IS NOT NULL) AS lapses_at
    FROM asked
  ),
  found AS MATERIALIZED (
    SELECT r.* FROM outlook o, asked i, LATERAL (
      SELECT ctid AS lies, rank, run_at, id FROM ready
      WHERE lane = i.lane AND (rank, run_at, id) > (i.rank, i.run_at, i.id) ORDER BY rank, run_at, id
      LIMIT CASE WHEN i.paused OR o.lined OR o.due_at <= o.now OR o.lapses_at <= o.now THEN 0 ELSE i.places END
      FOR UPDATE SKIP LOCKED
    ) AS r
  ),
  gone AS (
    DELETE FROM ready WHERE ctid = ANY(ARRAY(SELECT lies FROM found ORDER BY rank, run_at, id LIMIT ?::int))
      AND (deadline IS NULL OR deadline > greatest(?::bigint, run_at))
    RETURNING n, id, lane, rank, run_at, run, deadline, key, key_max, version, tries, token, state, noted,
      greatest(?::bigint, run_at) AS at, version = 1 AND state = 'pending' AND run_at <= ?::bigint AS is_first
  ),
  round AS (
    INSERT INTO rounds (name, version, run, tries, state, previous, at, id, actor, body, size, jobs)
    SELECT 'started', 2, 1, 1, 'active', 'pending', ?::bigint, ?::text, ?::text, '{"token":1,"worker":' || ?::text || '}',
      count(*), array_agg(n) FROM gone WHERE is_first HAVING count(*) > 0 RETURNING seq
  ),
  whole AS MATERIALIZED (
    SELECT min(lane) AS lane, min(n) AS first_job, max(n) AS last_job, array_agg(n) AS jobs FROM gone
    HAVING count(*) BETWEEN ${sharedMin} AND ${sharedMax} AND min(lane) = max(lane) AND bool_and(is_first AND key IS NULL)
  ),
  shared AS (
    INSERT INTO shared_leases (seq, at, until, lane, capped, worker, first_job, last_job, jobs)
    SELECT r.seq, i.now, i.now + i.lease_ms, w.lane, i.capped, ?::text, w.first_job, w.last_job, w.jobs
    FROM whole w, round r, asked i WHERE i.lane = w.lane RETURNING seq, jobs
  ),
  leased AS (
    INSERT INTO leases (id, n, lane, rank, run_at, run, deadline, key, key_max, version, tries, token, until, capped,
      worker, started_at, updated_at, heartbeat_at, cancel, blocked, started)
    SELECT g.id, g.n, g.lane, g.rank, g.run_at, g.run, g.deadline, g.key, g.key_max, g.version + 1, g.tries + 1, g.token + 1,
      g.at + i.lease_ms, i.capped, ?::text, g.at, g.at, g.at, 0, 0, CASE WHEN g.is_first THEN (SELECT seq FROM round) END
    FROM gone g JOIN asked i USING (lane) WHERE NOT EXISTS (SELECT 1 FROM whole)
  ),
  logged AS (
    INSERT INTO events (job, name, version, run, tries, state, previous, at, id, actor, body)
    SELECT n, 'started', version + 1, run, tries + 1, 'active', state, at, ?::text || n, ?::text,
      '{"token":' || token + 1 || ',"worker":' || ?::text || '}' FROM gone WHERE NOT is_first
  )
  SELECT (SELECT count(*) FROM found), o.due_at, o.lapses_at, CASE WHEN o.lined THEN 1 END, s.seq,
    array_to_string(s.jobs, E'\\x1f'), t.*
  FROM outlook o LEFT JOIN shared s ON true, (
    SELECT ${takenLogs}, ${takenColumns.map((column) => joined(`${column}::text`)).join(", ")} FROM gone r
    LEFT JOIN LATERAL (SELECT ${creationColumns}, created_at FROM jobs WHERE n = r.n OFFSET 0) AS j ON true
  ) AS t`;

/** What a claim tells besides its jobs: the first four of its lanes, the others of a lease that the jobs share. */
type Outlook = readonly [
  found: number,
  dueAt: number | null,
  lapsesAt: number | null,
  isLined: 1 | null,
  sharedSeq: number | null,
  sharedJobs: string | null,
];

/** The jobs follow, column by column, each as one list: a row for each job would cost the process more than its job does. */
type ClaimRow = readonly [...Outlook, ...columns: (string | null)[]];

const outlookLength = 6;

/** What a claim gave, and whether that is all that there is to claim, so that none has to follow. */
export interface PlainClaim {
  readonly answer: ClaimAnswer;
  readonly isWhole: boolean;
}

/** Claims jobs of lanes that are known. `left` holds what caps leave; a lane with a cap that is not counted gives no job. */
export function* claimPlain(
  tx: PostgresTransaction,
  ask: ClaimAsk,
  lanes: readonly OpenLane[],
  left: CapsLeft,
  { marks, sharedLeases }: { readonly marks: Marks; readonly sharedLeases: SharedLeases },
): Step<PlainClaim> {
  const starts = lanes.map(({ number }) => marks.from(number));
  const places = lanes.map(({ free, caps }) =>
    Math.max(Math.min(free, ask.limit, ...caps.map((scope) => left.get(scope) ?? 0)), 0),
  );
  const values = valuesOf(tx, ask, columnsOf(lanes, places, left, starts));
  const startedAt = performance.now();
  const [row] = arrays<ClaimRow>(yield { sql: take, values, raw: true, planned: true, last: true });
  const tookMs = performance.now() - startedAt;
  if (!row) throw new Error("A claim gave no word of its lanes.");
  const taken = takenJobs(row).sort(compareTaken);
  const [found, dueAt, lapsesAt, isLined, sharedSeq, sharedJobs] = row;
  if (sharedSeq !== null && sharedJobs !== null) {
    const ids = new Map(taken.map(({ n, id }) => [n, id]));
    sharedLeases.remember(
      sharedSeq,
      sharedJobs.split(separator).map((n) => ids.get(n) ?? ""),
    );
  }
  const byNumber = new Map(lanes.map((open) => [open.number, open.lane]));
  const jobs = taken.map((job) => claimedJob(tx, ask, byNumber.get(job.lane), job));
  const counts = remember(lanes, taken, marks);
  for (const [place, { number }] of lanes.entries()) {
    if (places[place] === 0) continue;
    if (starts[place] === null) marks.looked(number, tookMs);
    if (counts[place] === 0) marks.lined(number, false);
  }
  const next = Math.min(dueAt ?? never, lapsesAt ?? never);
  // The rest stays locked until the end, and who looks meanwhile does not see it.
  if (found > ask.limit) tx.woke.ready = true;
  const isShort = starts.some(
    (mark, place) => mark !== null && (counts[place] ?? 0) < (places[place] ?? 0),
  );
  const isWhole =
    isLined === null &&
    next > tx.now &&
    jobs.length === Math.min(found, ask.limit) &&
    (jobs.length === ask.limit || !isShort);
  const nextDueAt = jobs.length < ask.limit && Number.isFinite(next) ? next : null;
  return { answer: { jobs, nextDueAt }, isWhole };
}

const never = Number.POSITIVE_INFINITY;

function columnsOf(
  lanes: readonly OpenLane[],
  places: readonly number[],
  left: CapsLeft,
  starts: readonly (Mark | null)[],
): readonly string[] {
  const column = (of: (open: OpenLane, place: number) => SqlValue) => list(lanes.map(of));
  return [
    column(({ number }) => number),
    column(({ lane }) => recordId.queue(lane.service, lane.queue)),
    list(places),
    column(({ lane }) => lane.leaseMs),
    column(({ caps }) => (caps.length > 0 ? 1 : 0)),
    column(({ caps }) => (caps.every((scope) => left.has(scope)) ? 0 : 1)),
    column((_, place) => (starts[place] ?? front).rank),
    column((_, place) => (starts[place] ?? front).runAt),
    column((_, place) => (starts[place] ?? front).id),
  ];
}

/** The values of a claim. What its events and its leases share is told where each of them needs it. */
function valuesOf(
  tx: PostgresTransaction,
  ask: ClaimAsk,
  columns: readonly string[],
): readonly SqlValue[] {
  // What a round has no place for is claimed step by step.
  const limit = Math.min(ask.limit, roundMax);
  const { now } = tx;
  // The id of each event ends with the number of its job.
  const event = [`${tx.eventId()}.`, `worker:${ask.worker}`, JSON.stringify(ask.worker)];
  return [now, ...columns, limit, now, now, now, now, ...event, ask.worker, ask.worker, ...event];
}

/** A claimed job with the event that created it, and the events since if there are any. */
interface TakenJob {
  readonly n: string;
  readonly lane: number;
  readonly id: string;
  readonly rank: number;
  readonly runAt: number;
  readonly context: string;
  readonly created: EventValues;
  readonly log: string | null;
}

/** The jobs of a claim, in no order. */
function takenJobs(row: ClaimRow): TakenJob[] {
  const [logs, ...lists] = row.slice(outlookLength) as readonly (string | null)[];
  if (lists[0] === null) return [];
  const of = (column: (typeof takenColumns)[number]) =>
    (lists[takenColumns.indexOf(column)] ?? "").split(separator);
  const [lanes, ids, ranks, runAts] = [of("r.lane"), of("r.id"), of("r.rank"), of("r.run_at")];
  const [states, createdAts] = [of("j.created_state"), of("j.created_at")];
  const [contexts, bodies] = [of("j.context"), of("j.created_body")];
  const logOf = new Map(
    logs?.split(separator).map((log) => log.split(nothing) as [n: string, log: string]),
  );
  const created = (index: number) =>
    createdValues(states[index] ?? "", Number(createdAts[index]), "", "", bodies[index] ?? "");
  return of("r.n").map((n, index) => ({
    n,
    lane: Number(lanes[index]),
    id: ids[index] ?? "",
    rank: Number(ranks[index]),
    runAt: Number(runAts[index]),
    context: contexts[index] ?? "",
    created: created(index),
    log: logOf.get(n) ?? null,
  }));
}

/** The order of claims. */
function compareTaken(a: TakenJob, b: TakenJob): number {
  return a.rank - b.rank || a.runAt - b.runAt || (a.id < b.id ? -1 : 1);
}

/** Folds a job from its log, and starts it as the store did. */
function claimedJob(
  tx: PostgresTransaction,
  { worker }: ClaimAsk,
  lane: ClaimLane | undefined,
  { id, runAt, context, created, log }: TakenJob,
): ClaimedJob {
  if (!lane) throw new Error(`Job ${id} was claimed from a lane that was not asked for.`);
  const { service, type, leaseMs } = lane;
  const head = headOf([id, service, type, context]);
  const before = evolve(null, eventFrom(head, created)).job;
  const job = log === null ? before : fold(eventsFrom(head, log), before);
  if (!job) throw new Error(`The log of job ${id} does not begin with its creation.`);
  const at = Math.max(tx.now, runAt);
  const origin = { eventId: "", actor: `worker:${worker}` as Actor };
  const started = evolve(job, startedEvent(job, origin, worker, at)).job;
  return { job: started ?? job, leaseUntil: at + leaseMs };
}

function eventsFrom(head: JobHead, log: string): readonly JobEvent[] {
  return (JSON.parse(log) as readonly EventValues[]).map((values) => eventFrom(head, values));
}

/** Remembers the last job of each lane, and gives how many there were. The jobs come in the order of claims. */
function remember(
  lanes: readonly OpenLane[],
  jobs: readonly TakenJob[],
  marks: Marks,
): readonly number[] {
  const seen = new Map<number, { count: number; last: TakenJob }>();
  for (const job of jobs) {
    const known = seen.get(job.lane);
    if (known) {
      known.count += 1;
      known.last = job;
    } else seen.set(job.lane, { count: 1, last: job });
  }
  for (const [number, { count, last }] of seen) {
    const { rank, runAt, id } = last;
    marks.found(number, count, { rank, runAt, id });
  }
  return lanes.map(({ number }) => seen.get(number)?.count ?? 0);
}
