/**
 * Letting many blocked jobs go on at once: those that have no key and are due, as most are when something ends
 * that many wait for.
 */
import type { AppendOutcome, Change } from "../engine.js";
import { eventValues } from "../sql/rows.js";
import { slimColumns } from "../sql/slim.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import { insertEvents } from "./log.js";
import { array, list, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** Whether a change does nothing but unblock. */
export function isUnblock({ event, job, records, follow }: Change): boolean {
  return (
    event.name === "unblocked" &&
    event.jobId === job.id &&
    records === undefined &&
    follow === undefined
  );
}

const selectPlain = `SELECT w.ctid::text, w.id, w.version, w.n FROM jobs j JOIN waiting w ON w.n = j.n
  WHERE j.id = ANY(${array("text")}) AND w.cause = 'blocked' AND w.key IS NULL AND w.run_at <= ?`;
const selectBlocked = `${selectPlain} FOR UPDATE OF w SKIP LOCKED`;

type Blocked = readonly [ctid: string, id: string, version: number, n: number];

const moveOn = `WITH gone AS (DELETE FROM waiting WHERE ctid = ANY(${array("tid")}) RETURNING ${slimColumns})
  INSERT INTO ready (${slimColumns})
  SELECT g.n, g.id, g.lane, g.rank, g.run_at, 'pending', i.version, g.run, g.tries, g.token, g.deadline, i.at, g.started_at,
    NULL, g.key, g.key_max, g.noted
  FROM gone g JOIN ${table("i", { n: "bigint", version: "int", at: "bigint" })} ON i.n = g.n`;

const appended: AppendOutcome = { outcome: "appended" };
const conflict: AppendOutcome = { outcome: "conflict" };

/**
 * Unblocks jobs. `null` stands for one that is not plain, or somewhere else: it has to be looked at alone. One that is locked is
 * left to whoever is about to change it, and is found again if that does not.
 */
export function* unblockPlain(
  tx: PostgresTransaction,
  changes: readonly Change[],
): Step<readonly (AppendOutcome | null)[]> {
  const ids = list(changes.map(({ job }) => job.id));
  const rows = yield { sql: selectBlocked, values: [ids, tx.now], raw: true };
  const blocked = new Map(arrays<Blocked>(rows).map((row) => [row[1], row]));
  const locked = new Set<string>();
  if (blocked.size < changes.length) {
    const all = arrays<Blocked>(yield { sql: selectPlain, values: [ids, tx.now], raw: true });
    for (const [, id] of all) if (!blocked.has(id)) locked.add(id);
  }
  const going: { readonly change: Change; readonly row: Blocked }[] = [];
  const outcomes = changes.map((change) => {
    if (locked.has(change.job.id)) return conflict;
    const row = blocked.get(change.job.id);
    if (!row || row[2] !== change.expect.version || change.expect.token !== undefined) return null;
    blocked.delete(change.job.id);
    going.push({ change, row });
    return appended;
  });
  if (going.length === 0) return outcomes;
  const column = (of: (change: Change, row: Blocked) => SqlValue) =>
    list(going.map(({ change, row }) => of(change, row)));
  yield {
    sql: moveOn,
    values: [
      column((_, row) => row[0]),
      column((_, row) => row[3]),
      column(({ event }) => event.version),
      column(({ event }) => event.at),
    ],
  };
  const events = going.map(({ change }) => eventValues(change.event));
  yield insertEvents(
    going.map(({ row }) => row[3]),
    events,
  );
  tx.woke.ready = true;
  return outcomes;
}
