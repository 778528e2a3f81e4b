/**
 * Storing plain outcomes, many in few statements. Leases that another transaction has locked are left to a second look,
 * so that one of them never holds up the others.
 */
import type { AppendOutcome } from "../engine.js";
import type { PlainEnd } from "../sql/plain.js";
import { keyScope } from "../sql/slim.js";
import { arrays, type Step } from "../sql/statement.js";
import { promoteKeys } from "./keys.js";
import { array, list, plainText, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

const selectLeases = `SELECT ctid::text, id, version, token, n, started_at, key, capped FROM leases
  WHERE id = ANY(${array("text")}) FOR UPDATE SKIP LOCKED`;

type EndedLease = readonly [
  ctid: string,
  id: string,
  version: number,
  token: number,
  n: number,
  startedAt: number,
  key: string | null,
  capped: number,
];

const endJobs = `WITH gone AS (DELETE FROM leases WHERE ctid = ANY(${array("tid")}))
  UPDATE jobs SET state = i.state, version = i.version, run = i.run, tries = i.tries, token = i.token,
    started_at = i.started_at, ended_at = i.at, updated_at = i.at, detail = i.detail, aggregate = i.aggregate
  FROM ${table("i", {
    n: "bigint",
    state: "text",
    version: "int",
    run: "int",
    tries: "int",
    token: "int",
    started_at: "bigint",
    at: "bigint",
    detail: "text",
    aggregate: "text",
  })} WHERE jobs.n = i.n`;

const insertEvents = `INSERT INTO events (job, name, version, run, tries, state, previous, at, id, actor, body)
  SELECT * FROM ${table("i", {
    job: "bigint",
    name: "text",
    version: "int",
    run: "int",
    tries: "int",
    state: "text",
    previous: "text",
    at: "bigint",
    id: "text",
    actor: "text",
    body: "text",
  })}`;

const freeSlots = `DELETE FROM slots s USING ${table("i", { scope: "text", job: "text", token: "int" })}
  WHERE s.scope = i.scope AND s.job = i.job AND s.token = i.token`;

const appended: AppendOutcome = { outcome: "appended" };

/** Ends jobs under their tokens. `null` stands for one whose lease is locked, gone, or another's: it has to be looked at alone. */
export function* endPlain(
  tx: PostgresTransaction,
  items: readonly PlainEnd[],
): Step<readonly (AppendOutcome | null)[]> {
  const rows = yield { sql: selectLeases, values: [list(items.map(([id]) => id))], raw: true };
  const leases = new Map(arrays<EndedLease>(rows).map((lease) => [lease[1], lease]));
  const ended: { readonly item: PlainEnd; readonly lease: EndedLease }[] = [];
  const outcomes = items.map((item) => {
    const lease = leases.get(item[0]);
    if (!lease || lease[2] !== item[1] || lease[3] !== item[2]) return null;
    leases.delete(item[0]);
    ended.push({ item, lease });
    return appended;
  });
  if (ended.length === 0) return outcomes;
  const column = (of: (item: PlainEnd, lease: EndedLease) => string | number | null) =>
    list(ended.map(({ item, lease }) => of(item, lease)));
  const n = column((_, lease) => lease[4]);
  const [name, version, run, tries, state, previous, at, id, actor, body] = eventMembers.map(
    (member) => column((item) => item[member]),
  ) as [string, string, string, string, string, string, string, string, string, string];
  yield {
    sql: endJobs,
    values: [
      column((_, lease) => lease[0]),
      n,
      state,
      version,
      run,
      tries,
      column((item) => item[2]),
      column((_, lease) => lease[5]),
      at,
      column((item) => plainText(item[3])),
      column((item) => item[4]),
    ],
  };
  yield {
    sql: insertEvents,
    values: [n, name, version, run, tries, state, previous, at, id, actor, body],
  };
  tx.woke.ended = true;
  if (ended.some(({ lease }) => lease[7] === 1)) tx.woke.ready = true;
  const keyed = ended.filter(({ lease }) => lease[6] !== null);
  if (keyed.length > 0)
    yield* freeKeySlots(
      tx,
      keyed.map(({ lease }) => lease),
    );
  return outcomes;
}

/** Where the values of the event stand in an item. */
const eventMembers = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14] as const;

/** Gives the slots of keys back and lets the next jobs of these keys in. */
function* freeKeySlots(tx: PostgresTransaction, leases: readonly EndedLease[]): Step<void> {
  yield {
    sql: freeSlots,
    values: [
      list(leases.map((lease) => keyScope(lease[6] ?? ""))),
      list(leases.map((lease) => lease[1])),
      list(leases.map((lease) => lease[3])),
    ],
  };
  yield* promoteKeys(tx, [...new Set(leases.map((lease) => lease[6] ?? ""))]);
}
