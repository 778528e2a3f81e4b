/**
 * Claiming where nothing is to be decided, which is nearly always: one statement takes the first in line of all lanes,
 * gives them their leases and logs that they started, and the commit goes with it. Rows move inside the store.
 * Where something has to come first it takes nothing and says so: jobs whose time has come, slots that have lapsed,
 * a cap that is not counted. Jobs whose deadline has come are left to whoever claims step by step.
 */
import { startedEvent } from "../../core/decide.js";
import type { JobEvent } from "../../core/event.js";
import { evolve, fold, startedFirst } from "../../core/evolve.js";
import type { Actor } from "../../core/job.js";
import type { ClaimAnswer, ClaimAsk, ClaimedJob, ClaimLane } from "../engine.js";
import { recordId } from "../record.js";
import type { OpenLane } from "../sql/caps.js";
import { creationFrom, type EventValues, eventFrom, headOf, type JobHead } from "../sql/rows.js";
import { queueScope, typeScope } from "../sql/slim.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import { front, type Mark, type Marks } from "./marks.js";
import { logAsJson, roundMax } from "./rounds.js";
import { type SharedLeases, sharedMax, sharedMin } from "./shared-leases.js";
import {
  type ClaimRow,
  rememberShared,
  type TakenJobs,
  takenJobs,
  takenLists,
  takenNames,
} from "./taken-jobs.js";
import { joined, list, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** What is asked of each lane. */
const wishes = {
  lane: "int",
  record: "text",
  wanted: "int",
  lease_ms: "bigint",
  capped: "int",
  uncounted: "int",
  rank: "int",
  run_at: "bigint",
  id: "text",
} as const;

/** What caps let each lane have, where they are counted, and the names that they are counted by. */
const limits = {
  type_max: "int",
  queue_max: "int",
  service: "text",
  type: "text",
  queue: "text",
} as const;

/** What a cap leaves to a lane `i`: it counts leases, and the slots of ended jobs whose worker has not confirmed. */
function leftBy(column: "type" | "queue", scopeOf: (service: string, name: string) => string) {
  const lanes = `(SELECT x.id FROM lanes x WHERE x.service = i.service AND x.${column} = i.${column})`;
  return `CASE WHEN i.${column}_max IS NOT NULL THEN i.${column}_max - (SELECT count(*) FROM leases h WHERE h.lane IN ${lanes})
    - (SELECT coalesce(sum(cardinality(h.jobs)), 0) FROM shared_leases h WHERE h.lane IN ${lanes})
    - (SELECT count(*) FROM slots h WHERE h.scope = '${scopeOf("' || i.service || '", `' || i.${column} || '`)}' AND h.until > c.now) END`;
}

/** What each lane may have, and what time has brought there. One whose caps are not counted tells whether it has jobs. */
function asked(areCounted: boolean): string {
  const places = areCounted
    ? `greatest(least(i.wanted, ${leftBy("type", typeScope)}, ${leftBy("queue", queueScope)}), 0)`
    : "i.wanted";
  return `SELECT i.*, c.now, ${places} AS places,
    (SELECT min(w.run_at) FROM waiting w WHERE w.lane = i.lane AND w.cause = 'due') AS due_at,
    coalesce((SELECT (s.body::json ->> 'paused')::boolean FROM records s
      WHERE s.id = i.record AND (s.expires_at IS NULL OR s.expires_at > c.now)), false) AS paused,
    i.uncounted = 1 AND EXISTS (
      SELECT 1 FROM ready o WHERE o.lane = i.lane AND (o.rank, o.run_at, o.id) > (i.rank, i.run_at, i.id)) AS lined
  FROM (SELECT ?::bigint AS now) AS c, ${table("i", areCounted ? { ...wishes, ...limits } : wishes)}`;
}

/** The logs of the jobs that have more than their creation, each behind the job's number. */
const takenLogs = `${joined(`r.n || E'\\x1e' || (${logAsJson("r.n")})`)} FILTER (WHERE r.version > 1 OR r.noted = 1)`;

/** The first in line of each lane, locked; none where something has to come first. */
const find = (areCounted: boolean) => `WITH asked AS MATERIALIZED (${asked(areCounted)}),
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
  )`;

/** Where the jobs that were found lie, in the order of claims. */
const firstFound = "ARRAY(SELECT lies FROM found ORDER BY rank, run_at, id LIMIT ?::int)";

/** What there is to know of lanes whether or not they gave jobs. */
const outlookColumns =
  "(SELECT count(*) FROM found), o.due_at, o.lapses_at, CASE WHEN o.lined THEN 1 END";

/**
 * A row that changed after the statement began is locked as it is now but cannot be deleted, so that everything follows from
 * what was deleted. All are deleted in one scan of where they lie, which gives them in no order. The log of a job that was
 * tried before comes as JSON; the creation of each stands in its wide row.
 */
const take = (areCounted: boolean) => `${find(areCounted)},
  gone AS (
    DELETE FROM ready WHERE ctid = ANY(${firstFound})
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
    HAVING count(*) BETWEEN ${sharedMin} AND ${sharedMax} AND min(lane) = max(lane) AND bool_and(is_first)
  ),
  shared AS (
    INSERT INTO shared_leases (seq, claimed_at, until, lane, capped, worker, first_job, last_job, jobs)
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
  SELECT ${outlookColumns}, s.seq,
    CASE WHEN s.jobs <> t.numbers THEN array_to_string(s.jobs, E'\\x1f') END, (SELECT lane FROM whole), t.lanes,
    CASE WHEN s.jobs <> t.numbers OR t.logs IS NOT NULL THEN array_to_string(t.numbers, E'\\x1f') END, t.logs, ${takenNames}
    ${areCounted ? ", (SELECT string_agg(i.lane || ':' || i.places, ',') FROM asked i)" : ""}
  FROM outlook o LEFT JOIN shared s ON true, (
    SELECT array_agg(r.n) AS numbers, ${takenLogs} AS logs,
      ${joined("r.lane::text")} FILTER (WHERE NOT EXISTS (SELECT 1 FROM whole)) AS lanes, ${takenLists} FROM gone r
    LEFT JOIN LATERAL (SELECT context, created_at, created_body FROM jobs WHERE n = r.n OFFSET 0) AS j ON true
  ) AS t`;

const takeAny = take(false);
const takeCounted = take(true);

/** What a claim gave, and what has to follow: nothing, a claim of any jobs, or one that goes step by step. */
export interface PlainClaim {
  readonly answer: ClaimAnswer;
  readonly follow: "nothing" | "any" | "steps";
}

/** What a claim goes by besides what is asked of it. */
export interface ClaimMemory {
  readonly marks: Marks;
  readonly sharedLeases: SharedLeases;
}

/**
 * Claims jobs of lanes that are known. Caps of the lanes `counted` are counted on the way; whoever does so has locked them. A lane
 * with a cap that is not counted gives no job.
 */
export function* claimPlain(
  tx: PostgresTransaction,
  ask: ClaimAsk,
  lanes: readonly OpenLane[],
  counted: readonly OpenLane[],
  { marks, sharedLeases }: ClaimMemory,
): Step<PlainClaim> {
  const { limit } = ask;
  const starts = lanes.map(({ number }) => marks.from(number));
  const isOpen = (open: OpenLane) => open.caps.length === 0 || counted.includes(open);
  const wanted = lanes.map((open) => (isOpen(open) ? Math.min(open.free, limit) : 0));
  const columns = columnsOf(lanes, wanted, isOpen, starts);
  const areCounted = counted.length > 0;
  if (areCounted) columns.push(...limitColumns(lanes, counted));
  const values = valuesOf(tx, ask, columns);
  const sql = areCounted ? takeCounted : takeAny;
  const startedAt = performance.now();
  const [row] = arrays<ClaimRow>(yield { sql, values, raw: true, planned: true, last: true });
  const tookMs = performance.now() - startedAt;
  if (!row) throw new Error("A claim gave no word of its lanes.");
  const places = areCounted ? placesOf(lanes, row.at(-1) as string) : wanted;
  const [found, dueAt, lapsesAt, isLined] = row;
  const taken = takenJobs(row);
  const jobs = claimedJobs(tx, ask, lanes, taken);
  rememberShared(row, taken, jobs, sharedLeases);
  const next = Math.min(dueAt ?? never, lapsesAt ?? never);
  const isHeldUp = isLined !== null || next <= tx.now;
  const counts = remember(
    lanes,
    taken,
    marks,
    (count, place) => isHeldUp || jobs.length === limit || count === places[place],
  );
  for (const [place, { number }] of lanes.entries()) {
    if (places[place] === 0) continue;
    if (starts[place] === null) marks.looked(number, tookMs);
    if (counts[place] === 0) marks.lined(number, false);
  }
  // The rest stays locked until the end, and who looks meanwhile does not see it.
  if (found > limit) tx.woke.ready = true;
  const isShort = starts.some(
    (mark, place) => mark !== null && (counts[place] ?? 0) < (places[place] ?? 0),
  );
  const isAll = jobs.length === Math.min(found, limit);
  const mayBeMore = isShort && jobs.length < limit;
  const nextDueAt = jobs.length < limit && Number.isFinite(next) ? next : null;
  return {
    answer: { jobs, nextDueAt },
    follow: isHeldUp || !isAll ? "steps" : mayBeMore ? "any" : "nothing",
  };
}

const never = Number.POSITIVE_INFINITY;

function columnsOf(
  lanes: readonly OpenLane[],
  wanted: readonly number[],
  isOpen: (open: OpenLane) => boolean,
  starts: readonly (Mark | null)[],
): string[] {
  const column = (of: (open: OpenLane, place: number) => SqlValue) => list(lanes.map(of));
  return [
    column(({ number }) => number),
    column(({ lane }) => recordId.queue(lane.service, lane.queue)),
    list(wanted),
    column(({ lane }) => lane.leaseMs),
    column(({ caps }) => (caps.length > 0 ? 1 : 0)),
    column((open) => (isOpen(open) ? 0 : 1)),
    column((_, place) => (starts[place] ?? front).rank),
    column((_, place) => (starts[place] ?? front).runAt),
    column((_, place) => (starts[place] ?? front).id),
  ];
}

function limitColumns(lanes: readonly OpenLane[], counted: readonly OpenLane[]): readonly string[] {
  const max = (of: (lane: ClaimLane) => number | undefined) =>
    list(lanes.map((open) => (counted.includes(open) ? (of(open.lane) ?? null) : null)));
  return [
    max(({ typeMaxActive }) => typeMaxActive),
    max(({ queueMaxActive }) => queueMaxActive),
    list(lanes.map(({ lane }) => lane.service)),
    list(lanes.map(({ lane }) => lane.type)),
    list(lanes.map(({ lane }) => lane.queue)),
  ];
}

/** How many jobs each lane could have had, as a claim tells that counted its caps. */
function placesOf(lanes: readonly OpenLane[], told: string): readonly number[] {
  const places = new Map(told.split(",").map((pair) => pair.split(":") as [string, string]));
  return lanes.map(({ number }) => Number(places.get(String(number)) ?? 0));
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
  const event = eventOf(tx, ask.worker);
  return [now, ...columns, limit, now, now, now, now, ...event, ask.worker, ask.worker, ...event];
}

/** What the events of a claim share. The id of each ends with the number of its job. */
export function eventOf(tx: PostgresTransaction, worker: string): readonly string[] {
  return [`${tx.eventId()}.`, `worker:${worker}`, JSON.stringify(worker)];
}

/** The jobs of a claim, in its order. */
export function claimedJobs(
  tx: PostgresTransaction,
  ask: ClaimAsk,
  lanes: readonly OpenLane[],
  taken: TakenJobs,
): readonly ClaimedJob[] {
  const byNumber = new Map(lanes.map((open) => [open.number, open.lane]));
  const jobs: ClaimedJob[] = [];
  for (const place of taken.order)
    jobs.push(claimedJob(tx, ask, byNumber.get(taken.laneOf(place)), taken, place));
  return jobs;
}

/** Folds a job from its log, and starts it as the store did. */
function claimedJob(
  tx: PostgresTransaction,
  { worker }: ClaimAsk,
  lane: ClaimLane | undefined,
  taken: TakenJobs,
  place: number,
): ClaimedJob {
  const id = taken.ids[place] as string;
  if (!lane) throw new Error(`Job ${id} was claimed from a lane that was not asked for.`);
  const { service, type, leaseMs } = lane;
  const head = headOf([id, service, type, taken.contexts[place] as string]);
  const createdAt = taken.createdAts[place] as number;
  const created = creationFrom(head, "pending", createdAt, "", "", taken.bodies[place] as string);
  const at = Math.max(tx.now, taken.runAts[place] as number);
  const leaseUntil = at + leaseMs;
  const log = taken.logOf(place);
  if (log === undefined) return { job: startedFirst(created, worker, at), leaseUntil };
  const job = fold(eventsFrom(head, log), evolve(null, created).job);
  if (!job) throw new Error(`The log of job ${id} does not begin with its creation.`);
  const origin = { eventId: "", actor: `worker:${worker}` as Actor };
  return { job: evolve(job, startedEvent(job, origin, worker, at)).job ?? job, leaseUntil };
}

function eventsFrom(head: JobHead, log: string): readonly JobEvent[] {
  return (JSON.parse(log) as readonly EventValues[]).map((values) => eventFrom(head, values));
}

/** Remembers the last job of each lane that may have more behind it, and gives how many each gave. */
export function remember(
  lanes: readonly OpenLane[],
  taken: TakenJobs,
  marks: Marks,
  mayHaveMore: (count: number, place: number) => boolean,
): readonly number[] {
  const seen = new Map<number, { count: number; last: number }>();
  for (const place of taken.order) {
    const known = seen.get(taken.laneOf(place));
    if (known) {
      known.count += 1;
      known.last = place;
    } else seen.set(taken.laneOf(place), { count: 1, last: place });
  }
  return lanes.map(({ number }, place) => {
    const { count, last } = seen.get(number) ?? { count: 0, last: 0 };
    const [rank = 0, runAt = 0, id = ""] = [taken.ranks[last], taken.runAts[last], taken.ids[last]];
    if (!mayHaveMore(count, place)) marks.found(number, count, null);
    else if (count > 0) marks.found(number, count, { rank, runAt, id });
    return count;
  });
}
