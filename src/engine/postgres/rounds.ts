/**
 * Rounds: events that one transaction wrote for many jobs and that are alike, as one row for all of them. The first stands
 * at the row's own position and each of the others one further. A job's lease and its end name the rounds that its log
 * has events in; when such a row goes away before its job does, `rounds_of_job` names them.
 */
import { eventColumns } from "../sql/rows.js";
import type { Step } from "../sql/statement.js";
import { array, list } from "./text.js";

/** How far apart positions are drawn, so that a round has room for its events. */
export const roundMax = 4_096;

/** The most characters that the events of one round may say besides what they share: whoever reads one reads all. */
export const roundTextMax = 64 * 1_024;

/** What the event of the job `job` in the round `u` says, in the order of `eventColumns`; `place` is where it stands. */
const eventOfRound = `u.name, u.version, u.run, u.tries, u.state, u.previous,
  coalesce(u.ats[place], u.at) AS at, coalesce(u.ids[place], u.id || job) AS id, u.actor, coalesce(u.bodies[place], u.body) AS body`;

/** The events of some jobs that stand in rounds, with `job` and `seq`. `places` gives jobs and their rounds. */
function eventsIn(places: string): string {
  return `SELECT job, u.seq + place - 1 AS seq, ${eventOfRound} FROM (${places}) AS p,
    LATERAL (SELECT * FROM rounds WHERE seq = p.round OFFSET 0) AS u,
    LATERAL (SELECT array_position(u.jobs, p.job) AS place) AS a WHERE place IS NOT NULL`;
}

/** The events in rounds of jobs whose numbers are given as a list, whatever has become of the jobs. */
export const eventsInRounds = eventsIn(`
  SELECT w.job, p.round FROM unnest(${array("bigint")}) AS w (job), LATERAL (
    SELECT started AS round FROM ended WHERE n = w.job
    UNION SELECT finished FROM ended WHERE n = w.job
    UNION SELECT (SELECT started FROM held_by_job WHERE id = j.id) FROM jobs j WHERE j.n = w.job
    UNION SELECT round FROM rounds_of_job WHERE job = w.job
  ) AS p WHERE p.round IS NOT NULL`);

/** The log after its creation of a job `n` that has neither a lease nor an end, as one JSON text. */
export function logAsJson(n: string): string {
  return `SELECT json_agg(json_build_array(${eventColumns}) ORDER BY seq)::text FROM (
    SELECT seq, ${eventColumns} FROM events WHERE job = ${n}
    UNION ALL SELECT seq, ${eventColumns} FROM (${eventsIn(`SELECT job, round FROM rounds_of_job WHERE job = ${n}`)}) AS r
  ) AS log`;
}

/**
 * The first events of the rounds that meet a condition on `e`, with `job` and `seq`, after a position: at least as many as
 * a limit if there are that many. Takes the position, the values of the condition, position, limit, limit, position.
 */
export function eventsOfRounds(condition: string): string {
  return `SELECT u.seq + place - 1 AS seq, job, ${eventOfRound} FROM (
      SELECT *, sum(CASE WHEN seq > ?::bigint THEN size ELSE 0 END) OVER (ORDER BY seq) - size AS before FROM (
        SELECT * FROM rounds e WHERE ${condition} AND e.seq > ?::bigint - ${roundMax} ORDER BY e.seq LIMIT ?::int + 1
      ) AS e
    ) AS u, unnest(u.jobs) WITH ORDINALITY AS i (job, ordinal), LATERAL (SELECT ordinal::int AS place) AS a
    WHERE before < ?::int AND job <> ${gone} AND u.seq + place - 1 > ?::bigint`;
}

/** Stands in a round for a job that was deleted. */
const gone = "0::bigint";

const keepOfLease = `INSERT INTO rounds_of_job (job, round)
  SELECT n, started FROM leases WHERE id = ? AND started IS NOT NULL FOR UPDATE ON CONFLICT DO NOTHING`;

const keepOfEnd = `INSERT INTO rounds_of_job (job, round)
  SELECT n, p.round FROM ended, LATERAL (VALUES (started), (finished)) AS p (round)
  WHERE n = ? AND p.round IS NOT NULL ON CONFLICT DO NOTHING`;

/** Remembers the rounds that a lease names, which is about to go. It is locked first, as by all who take it away. */
export function* keepRoundsOfLease(id: string): Step<void> {
  yield { sql: keepOfLease, values: [id], silent: true };
}

/** Remembers the rounds that the end of a job names, which is about to go. */
export function* keepRoundsOfEnd(n: number): Step<void> {
  yield { sql: keepOfEnd, values: [n], silent: true };
}

/** The rounds of jobs whose numbers are given as a list. */
const roundsOf = `SELECT round FROM rounds_of_job WHERE job = ANY(${array("bigint")})`;

/** Of what a round holds for each of its jobs, `i`, what is left without the jobs whose numbers are given as a list. */
function without(columns: string, names: string, left: string): string {
  return `ARRAY(SELECT CASE WHEN d.n IS NULL THEN ${left} END FROM unnest(${columns}) WITH ORDINALITY AS i (${names}, place)
    LEFT JOIN unnest(${array("bigint")}) AS d (n) ON d.n = i.job ORDER BY i.place)`;
}

const leave = `UPDATE rounds u SET size = u.size - g.size,
    jobs = array_replace(${without("u.jobs", "job", "i.job")}, NULL, ${gone}),
    bodies = CASE WHEN u.bodies IS NOT NULL THEN ${without("u.jobs, u.bodies", "job, body", "i.body")} END
  FROM (SELECT round, count(*) AS size FROM (${roundsOf}) AS r GROUP BY round) AS g WHERE u.seq = g.round`;

/**
 * Takes jobs out of their rounds, whose other events stay where they stand. A round without any goes. Every round is
 * written anew once for all of the jobs, because those that are removed together mostly ended together. All who do this
 * lock rounds in the same order.
 */
export function* leaveRounds(numbers: readonly number[]): Step<void> {
  const jobs = list(numbers);
  const lock = `SELECT seq FROM rounds WHERE seq IN (${roundsOf}) ORDER BY seq FOR UPDATE`;
  yield { sql: lock, values: [jobs], silent: true };
  yield { sql: leave, values: [jobs, jobs, jobs], silent: true };
  const remove = `DELETE FROM rounds WHERE seq IN (${roundsOf}) AND size = 0`;
  yield { sql: remove, values: [jobs], silent: true };
  const forget = `DELETE FROM rounds_of_job WHERE job = ANY(${array("bigint")})`;
  yield { sql: forget, values: [jobs], silent: true };
}
