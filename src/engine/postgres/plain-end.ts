/**
 * Storing plain outcomes, many in one statement with which the commit goes. Leases that another transaction has locked are
 * left to a second look, so that one of them never holds up the others.
 */
import type { AppendOutcome } from "../engine.js";
import type { PlainEnd } from "../sql/plain.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import { promoteKeys } from "./keys.js";
import { roundMax, roundTextMax } from "./rounds.js";
import { joined, list, plainText, separator, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** What may be the same for all outcomes of a batch, and is sent once then. */
const shareable = {
  version: "int",
  token: "int",
  detail: "text",
  aggregate: "text",
  name: "text",
  state: "text",
  at: "bigint",
  actor: "text",
  body: "text",
} as const;

const shared = Object.entries(shareable)
  .map(([name, type]) => `?::${type} AS ${name}`)
  .join(", ");

/** A value that is the same for all, or the row's own. */
function either(name: keyof typeof shareable): string {
  return `coalesce(g.${name}, s.${name})`;
}

/**
 * A lease that changed after the statement began is locked as it is now but cannot be deleted, so that everything follows
 * from what was deleted. An outcome leaves the run and the tries as they are, and makes the version one more.
 */
const end = `WITH shared AS MATERIALIZED (SELECT ${shared}, ?::int AS alike),
  locked AS MATERIALIZED (
    SELECT l.lies, g.* FROM shared s, ${table("g", { number: "int", id: "text", event_id: "text", ...shareable })}, LATERAL (
      SELECT ctid AS lies FROM leases
      WHERE id = g.id AND version = ${either("version")} AND token = ${either("token")} AND (key IS NULL OR ?::int = 1)
      FOR UPDATE SKIP LOCKED
    ) AS l
  ),
  gone AS (
    DELETE FROM leases l USING locked g WHERE l.ctid = g.lies
    RETURNING l.n, l.lane, l.run, l.tries, l.started_at, l.key, l.capped, l.started, g.*
  ),
  round AS (
    INSERT INTO rounds (name, version, run, tries, state, previous, at, actor, body, size, jobs, ids, ats, bodies)
    SELECT s.name, s.version + 1, 1, 1, s.state, 'active', max(${either("at")}), s.actor, s.body, count(*), array_agg(g.n),
      array_agg(g.event_id), CASE WHEN s.at IS NULL THEN array_agg(g.at) END, CASE WHEN s.body IS NULL THEN array_agg(g.body) END
    FROM gone g, shared s WHERE s.alike = 1 AND g.started IS NOT NULL
    GROUP BY s.name, s.version, s.state, s.actor, s.body, s.at RETURNING seq
  ),
  stored AS (
    INSERT INTO ended (n, lane, state, version, run, tries, token, started_at, ended_at, updated_at, detail, aggregate,
      started, finished)
    SELECT g.n, g.lane, ${either("state")}, ${either("version")} + 1, g.run, g.tries, ${either("token")}, g.started_at,
      ${either("at")}, ${either("at")}, ${either("detail")}, ${either("aggregate")},
      g.started, CASE WHEN g.started IS NOT NULL THEN (SELECT seq FROM round) END FROM gone g, shared s
  ),
  logged AS (
    INSERT INTO events (job, name, version, run, tries, state, previous, at, id, actor, body)
    SELECT g.n, ${either("name")}, ${either("version")} + 1, g.run, g.tries, ${either("state")}, 'active', ${either("at")},
      g.event_id, ${either("actor")}, ${either("body")} FROM gone g, shared s WHERE s.alike = 0 OR g.started IS NULL
  ),
  freed AS (
    DELETE FROM slots WHERE ctid = ANY(ARRAY(
      SELECT t.ctid FROM shared s, gone g, LATERAL (
        SELECT ctid FROM slots WHERE scope = 'k:' || g.key AND job = g.id AND token = ${either("token")} OFFSET 0
      ) AS t WHERE g.key IS NOT NULL))
  )
  SELECT ${joined("number::text")}, max(capped), ${joined("key")} FROM gone`;

type EndedRow = readonly [numbers: string | null, capped: number | null, keys: string | null];

const appended: AppendOutcome = { outcome: "appended" };

/** Where the values of shareable columns stand in an item, in their order. */
const members = [1, 2, 3, 4, 5, 9, 11, 13, 14] as const;

/** What became of a batch of outcomes. */
export interface PlainEnds {
  /** `null` stands for one whose lease is locked, gone, or another's, or that needs a key: it has to be looked at again. */
  readonly outcomes: readonly (AppendOutcome | null)[];
  readonly areKeyed: boolean;
}

/** Ends jobs under their tokens. With `keyed` also those of keys, whose next jobs are let in before the commit. */
export function* endPlain(
  tx: PostgresTransaction,
  items: readonly PlainEnd[],
  keyed: boolean,
): Step<PlainEnds> {
  const statement = { sql: end, values: valuesOf(items, keyed), raw: true, planned: true } as const;
  const [row] = arrays<EndedRow>(yield keyed ? statement : { ...statement, last: true });
  if (!row || row[0] === null) return { outcomes: items.map(() => null), areKeyed: false };
  const [numbers, capped, keys] = row;
  const ended = numbers.split(separator);
  tx.woke.ended = true;
  if (capped === 1) tx.woke.ready = true;
  if (keys !== null) yield* promoteKeys(tx, [...new Set(keys.split(separator))]);
  return { outcomes: outcomesOf(items, ended), areKeyed: keys !== null };
}

/** The values of one batch: a column of equal values as one value, any other as a list. */
function valuesOf(items: readonly PlainEnd[], keyed: boolean): readonly SqlValue[] {
  const shared: SqlValue[] = [];
  const lists: SqlValue[] = [];
  for (const member of members) {
    const values = items.map((item) =>
      member === detailMember ? plainText(item[member]) : item[member],
    );
    const [first = null] = values;
    const areEqual = values.every((value) => value === first);
    shared.push(areEqual ? first : null);
    lists.push(areEqual ? null : list(values));
  }
  const numbers = list(items.map((_, index) => index));
  const ids = list(items.map((item) => item[0]));
  const eventIds = list(items.map((item) => item[12]));
  const alike = items.length <= roundMax && mayShareRound(items, shared) ? 1 : 0;
  return [...shared, alike, numbers, ids, eventIds, ...lists, keyed ? 1 : 0];
}

/** Whether the outcomes of first tries in a batch may stand in one round: they differ in when, and in short results. */
function mayShareRound(items: readonly PlainEnd[], shared: readonly SqlValue[]): boolean {
  const [version, , , , name, state, , actor, body] = shared;
  if (version !== firstStart || name === null || state === null || actor === null) return false;
  if (body !== null) return true;
  let length = 0;
  for (const item of items) length += String(item[bodyMember]).length;
  return length <= roundTextMax;
}

/** The version of a job that was started once and has met nothing else. */
const firstStart = 2;

/** Of what an outcome says. */
const bodyMember = 14;

/** Of detail, which is text of the user's. */
const detailMember = 3;

function outcomesOf(
  items: readonly PlainEnd[],
  ended: readonly string[],
): readonly (AppendOutcome | null)[] {
  if (ended.length === items.length) return items.map(() => appended);
  const outcomes = new Array<AppendOutcome | null>(items.length).fill(null);
  for (const number of ended) outcomes[Number(number)] = appended;
  return outcomes;
}
