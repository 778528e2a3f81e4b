/**
 * Storing plain outcomes, many in few statements. Leases that another transaction has locked are left to a second look,
 * so that one of them never holds up the others.
 */
import type { AppendOutcome } from "../engine.js";
import type { PlainEnd } from "../sql/plain.js";
import type { EventValues } from "../sql/rows.js";
import { keyScope } from "../sql/slim.js";
import { arrays, type Step } from "../sql/statement.js";
import { promoteKeys } from "./keys.js";
import { insertEvents } from "./log.js";
import { array, list, plainText, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

const selectLeases = `SELECT ctid::text, id, version, token, n, started_at, key, capped, lane FROM leases
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
  lane: number,
];

const endJobs = `WITH gone AS (DELETE FROM leases WHERE ctid = ANY(${array("tid")}))
  INSERT INTO ended (n, lane, state, version, run, tries, token, started_at, ended_at, updated_at, detail, aggregate)
  SELECT i.n, i.lane, i.state, i.version, i.run, i.tries, i.token, i.started_at, i.at, i.at, i.detail, i.aggregate
  FROM ${table("i", {
    n: "bigint",
    lane: "int",
    state: "text",
    version: "int",
    run: "int",
    tries: "int",
    token: "int",
    started_at: "bigint",
    at: "bigint",
    detail: "text",
    aggregate: "text",
  })}`;

const freeSlots = `DELETE FROM slots s USING ${table("i", { scope: "text", job: "text", token: "int" })}
  WHERE s.scope = i.scope AND s.job = i.job AND s.token = i.token`;

const appended: AppendOutcome = { outcome: "appended" };

/** Ends jobs under their tokens. `null` stands for one whose lease is locked, gone, or another's: it has to be looked at alone. */
export function* endPlain(
  tx: PostgresTransaction,
  items: readonly PlainEnd[],
): Step<readonly (AppendOutcome | null)[]> {
  const ids = list(items.map(([id]) => id));
  const rows = yield { sql: selectLeases, values: [ids], raw: true, planned: true };
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
  yield {
    sql: endJobs,
    planned: true,
    silent: true,
    values: [
      column((_, lease) => lease[0]),
      column((_, lease) => lease[4]),
      column((_, lease) => lease[8]),
      column((item) => item[9]),
      column((item) => item[6]),
      column((item) => item[7]),
      column((item) => item[8]),
      column((item) => item[2]),
      column((_, lease) => lease[5]),
      column((item) => item[11]),
      column((item) => plainText(item[3])),
      column((item) => item[4]),
    ],
  };
  yield insertEvents(
    ended.map(({ lease }) => lease[4]),
    ended.map(({ item }) => item.slice(eventFrom) as unknown as EventValues),
  );
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

/** Where the values of the event begin in an item. */
const eventFrom = 5;

/** Gives the slots of keys back and lets the next jobs of these keys in. */
function* freeKeySlots(tx: PostgresTransaction, leases: readonly EndedLease[]): Step<void> {
  yield {
    sql: freeSlots,
    silent: true,
    values: [
      list(leases.map((lease) => keyScope(lease[6] ?? ""))),
      list(leases.map((lease) => lease[1])),
      list(leases.map((lease) => lease[3])),
    ],
  };
  yield* promoteKeys(tx, [...new Set(leases.map((lease) => lease[6] ?? ""))]);
}
