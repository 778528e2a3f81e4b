/**
 * Claiming few jobs that were never tried, as they come to a worker that has nothing to do. The server sets up every part of a
 * statement whether or not it meets a row, which for one job takes longer than to carry it out. So this statement has no
 * parts for shared leases, logs and jobs that were tried, sorts nothing, and gives a row for each job. Whatever it is not for
 * it leaves, and says so.
 */
import type { ClaimAsk } from "../engine.js";
import { recordId } from "../record.js";
import type { CapsLeft, OpenLane } from "../sql/caps.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import type { Marks } from "./marks.js";
import { claimedJobs, eventOf, type PlainClaim, remember } from "./plain-claim.js";
import { sharedMin } from "./shared-leases.js";
import { type FewRow, takenRows } from "./taken-jobs.js";
import { array, list } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/**
 * What is found in all lanes, locked, and what time has brought there. A lane whose caps are not counted has fewer than no
 * places, and tells whether it has jobs. Nothing is asked by EXISTS, which the planner may answer by reading all of a table.
 */
const outlook = `SELECT count(r.lies) AS found, array_agg(r.lies) AS lies, min(i.due_at) AS due_at,
    bool_or(i.lined AND NOT i.paused) AS lined,
    (SELECT until FROM slots WHERE until IS NOT NULL ORDER BY until LIMIT 1) AS lapses_at
  FROM (
    SELECT a.lane, a.places,
      (SELECT run_at FROM waiting WHERE lane = a.lane AND cause = 'due' ORDER BY run_at LIMIT 1) AS due_at,
      coalesce((SELECT (body::json ->> 'paused')::boolean FROM records
        WHERE id = a.record AND (expires_at IS NULL OR expires_at > ?::bigint)), false) AS paused,
      a.places < 0 AND (SELECT true FROM ready WHERE lane = a.lane LIMIT 1) IS NOT NULL AS lined
    FROM unnest(?::int[], ${array("text")}, ?::int[]) AS a (lane, record, places) OFFSET 0
  ) AS i LEFT JOIN LATERAL (
    SELECT ctid AS lies FROM ready WHERE lane = i.lane ORDER BY rank, run_at, id
    LIMIT CASE WHEN i.paused THEN 0 ELSE greatest(i.places, 0) END FOR UPDATE SKIP LOCKED
  ) AS r ON true`;

/** What a lane has in a list that goes along with the list of lanes. */
const ofLane = (type: string) => `(?::${type}[])[array_position(?::int[], g.lane)]`;

/**
 * Everything that was found is taken, unless something has to come first. More than the share of a lane is left to a claim that
 * goes by the order of all lanes, because there may be more urgent jobs behind those that were found.
 */
const takeFew = `WITH outlook AS MATERIALIZED (${outlook}),
  gone AS (
    DELETE FROM ready WHERE ctid = ANY((
        SELECT CASE WHEN found > ?::int OR lined OR due_at <= ?::bigint OR lapses_at <= ?::bigint THEN NULL ELSE lies END
        FROM outlook)::tid[])
      AND version = 1 AND state = 'pending' AND noted = 0 AND run_at <= ?::bigint AND (deadline IS NULL OR deadline > ?::bigint)
    RETURNING n, id, lane, rank, run_at, run, deadline, key, key_max
  ),
  round AS (
    INSERT INTO rounds (name, version, run, tries, state, previous, at, id, actor, body, size, jobs)
    SELECT 'started', 2, 1, 1, 'active', 'pending', ?::bigint, ?::text, ?::text, '{"token":1,"worker":' || ?::text || '}',
      count(*), array_agg(n) FROM gone HAVING count(*) > 0 RETURNING seq, at
  ),
  leased AS (
    INSERT INTO leases (id, n, lane, rank, run_at, run, deadline, key, key_max, version, tries, token, until, capped,
      worker, started_at, updated_at, heartbeat_at, cancel, blocked, started)
    SELECT g.id, g.n, g.lane, g.rank, g.run_at, g.run, g.deadline, g.key, g.key_max, 2, 1, 1,
      r.at + ${ofLane("bigint")}, ${ofLane("int")}, ?::text, r.at, r.at, r.at, 0, 0, r.seq
    FROM round r, gone g
  )
  SELECT o.found, o.due_at, o.lapses_at, CASE WHEN o.lined THEN 1 END,
    g.lane, g.id, g.rank, g.run_at, j.created_at, j.context, j.created_body
  FROM outlook o LEFT JOIN gone g ON true
  LEFT JOIN LATERAL (SELECT context, created_at, created_body FROM jobs WHERE n = g.n OFFSET 0) AS j ON true`;

/** How many jobs are few: fewer than share a lease. */
const fewMax = sharedMin - 1;

/** Whether few jobs of lanes can be claimed in this way: each has a place, and is looked at from its front. */
export function mayTakeFew({ limit }: ClaimAsk, lanes: readonly OpenLane[], marks: Marks): boolean {
  return (
    lanes.length > 0 &&
    lanes.length <= Math.min(limit, fewMax) &&
    lanes.every(({ number }) => marks.from(number) === null)
  );
}

/** Claims few jobs of lanes that are known. A lane with a cap that is not counted gives no job. */
export function* claimFew(
  tx: PostgresTransaction,
  ask: ClaimAsk,
  lanes: readonly OpenLane[],
  left: CapsLeft,
  marks: Marks,
): Step<PlainClaim> {
  const share = Math.floor(Math.min(ask.limit, fewMax) / lanes.length);
  const places = lanes.map((open) => Math.min(placesOf(open, left), share));
  const values = valuesOf(tx, ask.worker, lanes, places, share);
  const startedAt = performance.now();
  const rows = arrays<FewRow>(yield { sql: takeFew, values, raw: true, planned: true, last: true });
  const tookMs = performance.now() - startedAt;
  const [row] = rows;
  if (!row) throw new Error("A claim gave no word of its lanes.");
  const [found, dueAt, lapsesAt, isLined] = row;
  const taken = takenRows(rows);
  const jobs = claimedJobs(tx, ask, lanes, taken);
  const next = Math.min(dueAt ?? never, lapsesAt ?? never);
  const isHeldUp = isLined !== null || next <= tx.now;
  const counts = remember(
    lanes,
    taken,
    marks,
    (count, place) => isHeldUp || count >= (places[place] ?? 0),
  );
  for (const [place, { number }] of lanes.entries()) {
    if ((places[place] ?? 0) <= 0) continue;
    marks.looked(number, tookMs);
    if (counts[place] === 0) marks.lined(number, false);
  }
  const mayBeMore = found >= share || jobs.length < found;
  const nextDueAt = jobs.length < ask.limit && Number.isFinite(next) ? next : null;
  return {
    answer: { jobs, nextDueAt },
    follow: isHeldUp ? "steps" : mayBeMore ? "any" : "nothing",
  };
}

const never = Number.POSITIVE_INFINITY;

/** How many jobs of a lane may be taken, or fewer than none where that is not counted. */
function placesOf({ free, caps }: OpenLane, left: CapsLeft): number {
  let places = free;
  for (const scope of caps) places = Math.min(places, left.get(scope) ?? -1);
  return places;
}

function valuesOf(
  tx: PostgresTransaction,
  worker: string,
  lanes: readonly OpenLane[],
  places: readonly number[],
  share: number,
): readonly SqlValue[] {
  const { now } = tx;
  const numbers = arrayOf(lanes.map(({ number }) => number));
  return [
    now,
    numbers,
    list(lanes.map(({ lane }) => recordId.queue(lane.service, lane.queue))),
    arrayOf(places),
    share,
    now,
    now,
    now,
    now,
    now,
    ...eventOf(tx, worker),
    arrayOf(lanes.map(({ lane }) => lane.leaseMs)),
    numbers,
    arrayOf(lanes.map(({ caps }) => (caps.length > 0 ? 1 : 0))),
    numbers,
    worker,
  ];
}

function arrayOf(numbers: readonly number[]): string {
  return `{${numbers.join()}}`;
}
