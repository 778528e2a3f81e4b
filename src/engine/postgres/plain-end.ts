/**
 * Storing plain outcomes, many in one statement with which the commit goes. Leases that another transaction has locked are
 * left to a second look, so that one of them never holds up the others.
 */
import type { AppendOutcome } from "../engine.js";
import type { PlainEnd } from "../sql/plain.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import { lockedKeys, promoteLocked } from "./keys.js";
import { roundMax, roundTextMax } from "./rounds.js";
import { type SharedPlace, spreadFreed } from "./shared-leases.js";
import { array, joined, list, plainText, separator, table } from "./text.js";
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
const sharedOnce = `shared AS MATERIALIZED (SELECT ${shared}, ?::int AS in_round)`;

/** What the outcomes of most batches differ in, if in anything: when they were, and what they gave. */
const mostlyOwn: readonly Shareable[] = ["at", "body"];

/** The value of something that is shared by all outcomes of a batch, or differs and stands in `g` if `own` names it. */
function sharedOrOwn(own: readonly Shareable[], name: Shareable): string {
  return own.includes(name) ? `coalesce(g.${name}, s.${name})` : `s.${name}`;
}

/** The columns of a batch that differ from outcome to outcome. */
function ownTypes(own: readonly Shareable[]): Record<string, string> {
  return { event_id: "text", ...Object.fromEntries(own.map((name) => [name, shareable[name]])) };
}

/** Writes the round of those outcomes in `gone` that may stand in one, the events of others, and the ends of all of them. */
function store(own: readonly Shareable[]): string {
  const of = (name: Shareable) => sharedOrOwn(own, name);
  return `round AS (
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
  )`;
}

/** What has ended: how many, and, where that is less than were given, which, by the ids of their events. */
const whatEnded = `SELECT a.*, CASE WHEN a.count < ?::int THEN (SELECT ${joined("event_id")} FROM gone) END
  FROM (SELECT count(*)::int AS count, max(capped) FROM gone) AS a`;

/** Gives the slots of the jobs back, and tells the same with their keys, and which of these could be locked. */
function endOfKeys(token: string): string {
  return `let_go AS (
    DELETE FROM slots WHERE ctid = ANY(ARRAY(
      SELECT t.ctid FROM shared s, gone g, LATERAL (
        SELECT ctid FROM slots WHERE scope = 'k:' || g.key AND job = g.id AND token = ${token} OFFSET 0
      ) AS t WHERE g.key IS NOT NULL))
  ),
  locked_keys AS (${lockedKeys("gone")})
  SELECT a.*, CASE WHEN a.count < ?::int THEN (SELECT ${joined("event_id")} FROM gone) END,
    (SELECT ${joined("key")} FROM gone), k.*
  FROM (SELECT count(*)::int AS count, max(capped) FROM gone) AS a,
    (SELECT ${joined("hash")}, ${joined("max_active::text")} FROM locked_keys) AS k`;
}

/**
 * Ends jobs that, of what may be shared, differ in what `own` names: every column less is one less to take apart and to carry
 * from step to step. Without `keyed`, jobs of keys are left. A lease that changed after the statement began is locked as it is
 * now but cannot be deleted, so that everything follows from what was deleted. An outcome leaves the run and the tries as
 * they are, and makes the version one more.
 */
function endOf(own: readonly Shareable[], keyed: boolean): string {
  const of = (name: Shareable) => sharedOrOwn(own, name);
  const input = table("g", { id: "text", ...ownTypes(own) });
  return `WITH ${sharedOnce},
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
  ${store(own)}${keyed ? `, ${endOfKeys(of("token"))}` : ` ${whatEnded}`}`;
}

/**
 * Ends jobs that share a lease, by their places in it. It goes with them: jobs that have not ended get leases of their own.
 * All of them are first tries. With `keyed`, whoever ends them knows their keys.
 */
function endTogether(keyed: boolean): string {
  const of = keyed ? { id: "text", key: "text" } : null;
  const input = table("g", { seq: "bigint", place: "int", ...of, ...ownTypes(mostlyOwn) });
  return `WITH ${sharedOnce},
  freed AS (
    DELETE FROM shared_leases WHERE ctid = ANY(ARRAY(
      SELECT ctid FROM shared_leases WHERE seq = ANY(${array("bigint")}) FOR UPDATE SKIP LOCKED)) RETURNING *
  ),
  gone AS MATERIALIZED (
    SELECT f.jobs[g.place] AS n, f.lane, 1 AS run, 1 AS tries, f.claimed_at AS started_at, f.capped, f.seq AS started, g.*
    FROM ${input} JOIN freed f ON f.seq = g.seq
  ),
  left_over AS (${spreadFreed("m.n NOT IN (SELECT n FROM gone)")}),
  ${store(mostlyOwn)}${keyed ? `, ${endOfKeys("1")}` : ` ${whatEnded}`}`;
}

type EndedRow = readonly [
  count: number,
  capped: number | null,
  eventIds: string | null,
  /** The keys of the jobs, if these were asked for, those that could be locked, and how many of each may be active. */
  ...keys: [] | [all: string | null, locked: string | null, maxActive: string | null],
];

const appended: AppendOutcome = { outcome: "appended" };

/** The statements, which the server remembers: few of them, for batches that differ in little and for all others. */
const ends = {
  alike: { plain: endOf(mostlyOwn, false), keyed: endOf(mostlyOwn, true) },
  mixed: { plain: endOf(names, false), keyed: endOf(names, true) },
  together: { plain: endTogether(false), keyed: endTogether(true) },
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
  batch: EndBatch,
  keyed: boolean,
): Step<PlainEnds> {
  const statement = { ...statementOf(batch, keyed), raw: true, planned: true } as const;
  const [row] = arrays<EndedRow>(yield keyed ? statement : { ...statement, last: true });
  const outcomes = outcomesOf(tx, batch.items, row);
  return { outcomes, areKeyed: yield* letNextIn(tx, row) };
}

/** Lets the next jobs of the keys in whose jobs have ended, and gives whether there were any. */
function* letNextIn(tx: PostgresTransaction, row: EndedRow | undefined): Step<boolean> {
  const [, , , keys = null, hashes = null, maxActive = null] = row ?? [];
  if (keys === null) return false;
  const limits = maxActive?.split(separator) ?? [];
  const locked = hashes?.split(separator).map((hash, at) => [hash, Number(limits[at])] as const);
  yield* promoteLocked(tx, new Set(keys.split(separator)), locked ?? [], true);
  return true;
}

/** A batch of outcomes with what they have in common taken out. */
export interface EndBatch {
  readonly items: readonly PlainEnd[];
  readonly shared: readonly SqlValue[];
  readonly lists: ReadonlyMap<Shareable, SqlValue>;
  /** Whether they differ in little. */
  readonly areAlike: boolean;
  readonly mayShareRound: boolean;
}

/** Takes out what outcomes have in common: a column of equal values goes as one value, any other as a list. */
export function endBatch(items: readonly PlainEnd[]): EndBatch {
  const shared: SqlValue[] = [];
  const lists = new Map<Shareable, SqlValue>();
  const [first] = items;
  for (let place = 0; place < members.length; place++) {
    const member = members[place] as (typeof members)[number];
    const readValue = (item: PlainEnd | undefined): SqlValue => {
      const value = item?.[member] ?? null;
      return member === detailMember ? plainText(value as string | null) : value;
    };
    const value = readValue(first);
    const areEqual = items.every((item) => readValue(item) === value);
    shared.push(areEqual ? value : null);
    if (!areEqual) lists.set(names[place] as Shareable, list(items.map(readValue)));
  }
  const areAlike = [...lists.keys()].every((name) => mostlyOwn.includes(name));
  const mayShareRound = items.length <= roundMax && isOneRound(items, shared);
  return { items, shared, lists, areAlike, mayShareRound };
}

/** Whether the jobs of a batch may end together with a lease that they share: first tries whose outcomes differ in little. */
export function mayEndTogether({ areAlike, shared }: EndBatch): boolean {
  return areAlike && shared[versionPlace] === firstStart && shared[tokenPlace] === 1;
}

function columnsOf(batch: EndBatch, own: readonly Shareable[]): readonly SqlValue[] {
  const eventIds = list(batch.items.map((item) => item[eventIdMember]));
  return [eventIds, ...own.map((name) => batch.lists.get(name) ?? null)];
}

function statementOf(
  batch: EndBatch,
  keyed: boolean,
): { readonly sql: string; readonly values: readonly SqlValue[] } {
  const { items, shared, areAlike, mayShareRound } = batch;
  const ids = list(items.map((item) => item[0]));
  const own = columnsOf(batch, areAlike ? mostlyOwn : names);
  return {
    sql: ends[areAlike ? "alike" : "mixed"][keyed ? "keyed" : "plain"],
    values: [...shared, mayShareRound ? 1 : 0, ids, ...own, items.length],
  };
}

/** Ends jobs that share leases, each at its place. `null` stands for one that has to be looked at again. */
export function* endShared(
  tx: PostgresTransaction,
  batch: EndBatch,
  places: readonly SharedPlace[],
): Step<readonly (AppendOutcome | null)[]> {
  const { items, shared, mayShareRound } = batch;
  const inRound = mayShareRound ? 1 : 0;
  const seqs = places.map(({ seq }) => seq);
  const at = list(places.map(({ place }) => place));
  const leases = list([...new Set(seqs)]);
  const isKeyed = places.some(({ key }) => key !== undefined);
  const ids = list(items.map((item) => item[0]));
  const keys = isKeyed ? [ids, list(places.map(({ key = null }) => key))] : [];
  const own = columnsOf(batch, mostlyOwn);
  const statement = {
    sql: ends.together[isKeyed ? "keyed" : "plain"],
    values: [...shared, inRound, leases, list(seqs), at, ...keys, ...own, items.length],
    raw: true,
    planned: true,
  } as const;
  const [row] = arrays<EndedRow>(yield isKeyed ? statement : { ...statement, last: true });
  yield* letNextIn(tx, row);
  return outcomesOf(tx, items, row);
}

/** Whether the outcomes of first tries in a batch may stand in one round: they differ in when, and in short results. */
function isOneRound(items: readonly PlainEnd[], shared: readonly SqlValue[]): boolean {
  const [version, , , , name, state, , actor, body] = shared;
  if (version !== firstStart || name === null || state === null || actor === null) return false;
  if (body !== null) return true;
  let length = 0;
  for (const item of items) length += String(item[bodyMember]).length;
  return length <= roundTextMax;
}

/** The version of a job that was started once and has met nothing else. */
const firstStart = 2;

/** Of what an outcome says, and of its event's id. */
const bodyMember = 14;
const eventIdMember = 12;

/** Where version and token stand among what is shared. */
const versionPlace = 0;
const tokenPlace = 1;

/** Of detail, which is text of the user's. */
const detailMember = 3;

function outcomesOf(
  tx: PostgresTransaction,
  items: readonly PlainEnd[],
  row: EndedRow | undefined,
): readonly (AppendOutcome | null)[] {
  const [count = 0, capped = null, eventIds = null] = row ?? [];
  if (count === 0) return items.map(() => null);
  tx.woke.ended = true;
  if (capped === 1) tx.woke.ready = true;
  if (count === items.length) return items.map(() => appended);
  const ended = new Set<SqlValue>(eventIds?.split(separator));
  return items.map((item) => (ended.has(item[eventIdMember]) ? appended : null));
}
