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

type Shareable = keyof typeof shareable;

const names = Object.keys(shareable) as readonly Shareable[];

const shared = names.map((name) => `?::${shareable[name]} AS ${name}`).join(", ");

/** What the outcomes of most batches differ in, if in anything: when they were, and what they gave. */
const mostlyOwn: readonly Shareable[] = ["at", "body"];

/**
 * Ends jobs that, of what may be shared, differ in what `own` names: every column less is one less to take apart and to carry
 * from step to step. Without `keyed`, jobs of keys are left. A lease that changed after the statement began is locked as it is
 * now but cannot be deleted, so that everything follows from what was deleted. An outcome leaves the run and the tries as
 * they are, and makes the version one more.
 */
function endOf(own: readonly Shareable[], keyed: boolean): string {
  const of = (name: Shareable) =>
    own.includes(name) ? `coalesce(g.${name}, s.${name})` : `s.${name}`;
  const ownTypes = Object.fromEntries(own.map((name) => [name, shareable[name]]));
  const input = table("g", { number: "text", id: "text", event_id: "text", ...ownTypes });
  const freed = `,
  freed AS (
    DELETE FROM slots WHERE ctid = ANY(ARRAY(
      SELECT t.ctid FROM shared s, gone g, LATERAL (
        SELECT ctid FROM slots WHERE scope = 'k:' || g.key AND job = g.id AND token = ${of("token")} OFFSET 0
      ) AS t WHERE g.key IS NOT NULL))
  )`;
  return `WITH shared AS MATERIALIZED (SELECT ${shared}, ?::int AS in_round),
  locked AS MATERIALIZED (
    SELECT l.lies, g.* FROM shared s, ${input}, LATERAL (
      SELECT ctid AS lies FROM leases
      WHERE id = g.id AND version = ${of("version")} AND token = ${of("token")} ${keyed ? "" : "AND key IS NULL"}
      FOR UPDATE SKIP LOCKED
    ) AS l
  ),
  gone AS (
    DELETE FROM leases l USING locked g WHERE l.ctid = g.lies
    RETURNING l.n, l.lane, l.run, l.tries, l.started_at, l.key, l.capped, l.started, g.*
  ),
  round AS (
    INSERT INTO rounds (name, version, run, tries, state, previous, at, actor, body, size, jobs, ids, ats, bodies)
    SELECT s.name, s.version + 1, 1, 1, s.state, 'active', coalesce(s.at, a.at), s.actor, s.body, a.size, a.jobs, a.ids,
      CASE WHEN s.at IS NULL THEN a.ats END, CASE WHEN s.body IS NULL THEN a.bodies END
    FROM shared s, (
      SELECT count(*) AS size, max(at) AS at, array_agg(n) AS jobs, array_agg(event_id) AS ids, array_agg(at) AS ats,
        array_agg(body) AS bodies FROM gone WHERE started IS NOT NULL
    ) AS a WHERE s.in_round = 1 AND a.size > 0 RETURNING seq
  ),
  stored AS (
    INSERT INTO ended (n, lane, state, version, run, tries, token, started_at, ended_at, updated_at, detail, aggregate,
      started, finished)
    SELECT g.n, g.lane, ${of("state")}, ${of("version")} + 1, g.run, g.tries, ${of("token")}, g.started_at,
      ${of("at")}, ${of("at")}, ${of("detail")}, ${of("aggregate")},
      g.started, CASE WHEN g.started IS NOT NULL THEN (SELECT seq FROM round) END FROM gone g, shared s
  ),
  logged AS (
    INSERT INTO events (job, name, version, run, tries, state, previous, at, id, actor, body)
    SELECT g.n, ${of("name")}, ${of("version")} + 1, g.run, g.tries, ${of("state")}, 'active', ${of("at")},
      g.event_id, ${of("actor")}, ${of("body")} FROM gone g, shared s WHERE s.in_round = 0 OR g.started IS NULL
  )${keyed ? freed : ""}
  SELECT ${joined("number")}, max(capped), ${joined("key")} FROM gone`;
}

type EndedRow = readonly [numbers: string | null, capped: number | null, keys: string | null];

const appended: AppendOutcome = { outcome: "appended" };

/** The statements, which the server remembers: few of them, for batches that differ in little and for all others. */
const ends = {
  alike: { plain: endOf(mostlyOwn, false), keyed: endOf(mostlyOwn, true) },
  mixed: { plain: endOf(names, false), keyed: endOf(names, true) },
} as const;

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
  const statement = { ...statementOf(items, keyed), raw: true, planned: true } as const;
  const [row] = arrays<EndedRow>(yield keyed ? statement : { ...statement, last: true });
  if (!row || row[0] === null) return { outcomes: items.map(() => null), areKeyed: false };
  const [numbers, capped, keys] = row;
  const ended = numbers.split(separator);
  tx.woke.ended = true;
  if (capped === 1) tx.woke.ready = true;
  if (keys !== null) yield* promoteKeys(tx, [...new Set(keys.split(separator))]);
  return { outcomes: outcomesOf(items, ended), areKeyed: keys !== null };
}

/** The statement of one batch: a column of equal values goes as one value, any other as a list. */
function statementOf(
  items: readonly PlainEnd[],
  keyed: boolean,
): { readonly sql: string; readonly values: readonly SqlValue[] } {
  const shared: SqlValue[] = [];
  const lists = new Map<Shareable, SqlValue>();
  for (const [place, member] of members.entries()) {
    const values = items.map((item) =>
      member === detailMember ? plainText(item[member]) : item[member],
    );
    const [first = null] = values;
    const areEqual = values.every((value) => value === first);
    shared.push(areEqual ? first : null);
    if (!areEqual) lists.set(names[place] as Shareable, list(values));
  }
  const areAlike = [...lists.keys()].every((name) => mostlyOwn.includes(name));
  const own = (areAlike ? mostlyOwn : names).map((name) => lists.get(name) ?? null);
  const numbers = list(items.map((_, index) => index));
  const ids = list(items.map((item) => item[0]));
  const eventIds = list(items.map((item) => item[12]));
  const inRound = items.length <= roundMax && mayShareRound(items, shared) ? 1 : 0;
  return {
    sql: ends[areAlike ? "alike" : "mixed"][keyed ? "keyed" : "plain"],
    values: [...shared, inRound, numbers, ids, eventIds, ...own],
  };
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
