/**
 * The feed of the PostgreSQL store. Positions are drawn before transactions commit, so that an event may appear behind
 * one that was read already. A cursor is therefore a snapshot: what it sees has been read. The next page is what a newer
 * snapshot sees besides, in the order of positions, in which the events of a job always follow each other.
 */
import { InvalidCursor, invalidCursor } from "../errors.js";
import {
  createdColumns,
  type EventValues,
  eventColumns,
  type HeadValues,
  headColumns,
  headValues,
  valuesOf,
} from "../sql/rows.js";
import { int, intOrNull, type Statement, type Step, text } from "../sql/statement.js";
import { eventsOfRounds } from "./rounds.js";

/** Where a reader stands: all of `seen` is read, and of what `until` sees besides, all up to a position. */
export interface FeedPlace {
  readonly seen: string | null;
  readonly until: string | null;
  readonly seq: number;
  /** How often the store had been moved: snapshots of one server say nothing on another. The beginning is always the same. */
  readonly moves: number | null;
}

/** The beginning of the feed. */
export const feedStart: FeedPlace = { seen: null, until: null, seq: 0, moves: null };

/** A place as the text that a reader keeps. In a store that was never moved that is not said. */
export function cursorOf({ seen, until, seq, moves }: FeedPlace): string {
  const parts = until === null ? [seen ?? ""] : [seen ?? "", until, seq];
  return (moves ? [...parts, moves] : parts).join("/");
}

/** The place that a text names. */
export function placeOf(cursor: string): FeedPlace {
  const parts = cursor.split("/");
  const moves = parts.length % 2 === 0 ? parts.pop() : "0";
  const [seen = "", until, seq] = parts;
  const known = seen === "" ? null : seen;
  const isPlace =
    parts.length <= 3 &&
    /^\d{1,9}$/.test(moves ?? "") &&
    (known === null ? until !== undefined : isSnapshot(known)) &&
    (until === undefined || (isSnapshot(until) && isPosition(seq ?? "")));
  if (!isPlace) throw invalidCursor(cursor);
  return { seen: known, until: until ?? null, seq: Number(seq ?? 0), moves: Number(moves) };
}

/** Refuses a place of the store as it was before it was moved; whoever keeps its place in the store has been moved along. */
export function checkPlace(place: FeedPlace, moves: number | null): void {
  if (place.moves === null || place.moves === moves) return;
  const message = `"${cursorOf(place)}" is a cursor from before the store was restored into another server; begin without one, or with one that a later answer gave.`;
  throw new InvalidCursor({ message });
}

/** The first transaction that a place has not come to, and all that follow. */
export function endOf({ seen, until }: FeedPlace): number {
  const ends = [seen, until].map((known) => (known === null ? 0 : parseSnapshot(known).xmax));
  return Math.max(...ends);
}

function isPosition(part: string): boolean {
  return /^\d{1,16}$/.test(part) && Number.isSafeInteger(Number(part));
}

/** Whether the server takes a text as a snapshot. */
function isSnapshot(part: string): boolean {
  if (!/^[1-9]\d{0,14}:[1-9]\d{0,14}:(\d{1,15}(,\d{1,15})*)?$/.test(part)) return false;
  const { xmin, xmax, running } = parseSnapshot(part);
  let before = xmin;
  for (const xid of running) {
    if (xid < before || xid >= xmax) return false;
    before = xid;
  }
  return xmin <= xmax;
}

/** An event of the feed as values. A deleted job has no head any more. */
export interface FeedRow {
  readonly seq: number;
  readonly head: HeadValues | null;
  readonly values: EventValues;
}

/** The newest transaction that wrote an event. */
export const newestXid = `greatest((SELECT xid FROM jobs ORDER BY xid DESC LIMIT 1),
  (SELECT xid FROM events ORDER BY xid DESC LIMIT 1), (SELECT xid FROM rounds ORDER BY xid DESC LIMIT 1), '0'::xid8)`;

const selectMoves = "SELECT moves FROM store";

const selectSnapshot = `SELECT pg_current_snapshot()::text AS snapshot, ${newestXid}::text AS newest, (${selectMoves}) AS moves`;

/**
 * The lowest position that a transaction under a condition wrote, by the index of transactions: `OFFSET 0` keeps the planner from
 * going through all positions from the lowest on instead.
 */
function lowest(condition: string): string {
  const tables = [
    ["n", "jobs"],
    ["seq", "events"],
    ["seq", "rounds"],
  ] as const;
  return tables
    .map(
      ([position, table]) =>
        `(SELECT min(p) FROM (SELECT ${position} AS p FROM ${table} WHERE ${condition} OFFSET 0) AS f)`,
    )
    .join(", ");
}

const selectSnapshotSince = `${selectSnapshot},
  least(${lowest("xid >= ?::xid8")}, ${lowest("xid = ANY(?::xid8[])")}) AS lowest`;

/** How often the store was moved. */
export function* readMoves(): Step<number> {
  const [row] = yield { sql: selectMoves, values: [] };
  return row ? int(row, "moves") : 0;
}

/** A snapshot that a reader goes on to. */
export interface NextSnapshot {
  readonly until: string;
  readonly moves: number;
  /** The lowest position of what it sees and the reader has not read may be this one; null where there is nothing. */
  readonly lowest: number | null;
}

/**
 * What every transaction that has committed by now has written, for a reader who has read all of `seen`.
 * The snapshot ends with the newest transaction that is known to be on disk, because it wrote an event: a server that
 * crashes gives the numbers of later ones, which were rolled back, to others when it returns.
 */
export function* currentSnapshot(seen: string | null): Step<NextSnapshot> {
  const read = seen === null ? null : parseSnapshot(seen);
  const [row] = yield read === null ? { sql: selectSnapshot, values: [] } : askSince(read);
  if (!row) throw new Error("The server did not tell what it sees.");
  const { xmin, xmax, running } = parseSnapshot(text(row, "snapshot"));
  const end = Math.min(xmax, Math.max(read?.xmax ?? 0, Number(text(row, "newest")) + 1));
  const until = `${Math.min(xmin, end)}:${end}:${running.filter((xid) => xid < end).join(",")}`;
  return {
    until,
    moves: int(row, "moves"),
    lowest: read === null ? 0 : intOrNull(row, "lowest"),
  };
}

/** Asks for a snapshot, and where that begins which a reader has not read: what had not begun or was running. */
function askSince({ xmax, running }: Snapshot): Statement {
  const ran = `{${running.join(",")}}`;
  return { sql: selectSnapshotSince, values: [xmax, xmax, xmax, ran, ran, ran] };
}

/** All before `xmin` have ended, none from `xmax` on has, and between them these run. */
interface Snapshot {
  readonly xmin: number;
  readonly xmax: number;
  readonly running: readonly number[];
}

function parseSnapshot(snapshot: string): Snapshot {
  const [xmin, xmax, running = ""] = snapshot.split(":");
  const numbers = running === "" ? [] : running.split(",");
  return { xmin: Number(xmin), xmax: Number(xmax), running: numbers.map(Number) };
}

const columns = eventColumns
  .split(", ")
  .map((column) => `e.${column}`)
  .join(", ");

/**
 * Creations, rounds and all other events after a position that meet a condition on `e`, in the order of positions. Their jobs
 * are looked up one by one, because how many there are is not known to the planner, who may otherwise go through all jobs.
 */
function select(condition: string): string {
  return `(SELECT j.n AS seq, ${createdColumns}, ${headColumns} FROM (
        SELECT * FROM jobs e WHERE ${condition} AND e.n > ? ORDER BY e.n LIMIT ?
      ) AS j JOIN lanes l ON l.id = j.lane)
    UNION ALL (SELECT e.seq, ${columns}, ${headColumns} FROM (
        (SELECT seq, job, ${eventColumns} FROM events e WHERE ${condition} AND e.seq > ? ORDER BY e.seq LIMIT ?)
        UNION ALL (SELECT seq, job, ${eventColumns} FROM (${eventsOfRounds(condition)}) AS r)
      ) AS e LEFT JOIN LATERAL (SELECT * FROM jobs WHERE n = e.job OFFSET 0) AS j ON true LEFT JOIN lanes l ON l.id = j.lane)
    ORDER BY seq LIMIT ?`;
}

const selectFirst = select("pg_visible_in_snapshot(e.xid, ?::pg_snapshot)");
const selectNext = select(
  "NOT pg_visible_in_snapshot(e.xid, ?::pg_snapshot) AND pg_visible_in_snapshot(e.xid, ?::pg_snapshot)",
);

/** Reads the next events between two snapshots, in the order of positions, from one on. */
export function* readFeed(
  seen: string | null,
  until: string,
  from: number,
  limit: number,
): Step<readonly FeedRow[]> {
  const seq = from - 1;
  const between = seen === null ? [until] : [seen, until];
  const alone = [...between, seq, limit];
  const ofRounds = [seq, ...between, seq, limit, limit, seq];
  const rows = yield {
    sql: seen === null ? selectFirst : selectNext,
    values: [...alone, ...alone, ...ofRounds, limit],
  };
  return rows.map((row) => ({
    seq: int(row, "seq"),
    head: row.job_id === null ? null : headValues(row),
    values: valuesOf(row),
  }));
}

/** The most rows of a kind that one call removes, so that nobody waits long. */
const pruneMax = 5_000;

/** Removes `deleted` events that are old, records that have run out, and keys that nobody used for as long. */
export function* pruneDeleted(now: number, before: number): Step<number> {
  const removed = yield {
    sql: `DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE name = 'deleted' AND at < ? LIMIT ? FOR UPDATE SKIP LOCKED)
      RETURNING seq`,
    values: [before, pruneMax],
  };
  yield {
    sql: `DELETE FROM records WHERE id IN (SELECT id FROM records WHERE expires_at <= ? LIMIT ? FOR UPDATE SKIP LOCKED)`,
    values: [now, pruneMax],
  };
  yield {
    sql: `DELETE FROM keys WHERE hash IN (SELECT hash FROM keys WHERE outcome_at < ?
      AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.key_hash = keys.hash) ORDER BY outcome_at LIMIT ? FOR UPDATE SKIP LOCKED)`,
    values: [before, pruneMax],
  };
  return removed.length;
}
