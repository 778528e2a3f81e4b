/**
 * The feed of the SQLite store: all events in order, where it ends, and what may be forgotten of it.
 */
import {
  createdColumns,
  type EventValues,
  eventColumns,
  type HeadValues,
  headColumns,
  headValues,
  valuesOf,
} from "../sql/rows.js";
import { int, type Step } from "../sql/statement.js";

/** An event of the feed as values. A deleted job has no head any more. */
export interface FeedRow {
  readonly seq: number;
  readonly head: HeadValues | null;
  readonly values: EventValues;
}

const columns = eventColumns
  .split(", ")
  .map((column) => `e.${column}`)
  .join(", ");

/** Creations and all other events, which are merged on the way: each table is read as far as it is needed. */
const select = `SELECT j.n AS seq, ${createdColumns}, ${headColumns} FROM jobs j JOIN lanes l ON l.id = j.lane WHERE j.n > ?
  UNION ALL SELECT e.seq, ${columns}, ${headColumns} FROM events e LEFT JOIN jobs j ON j.n = e.job
    LEFT JOIN lanes l ON l.id = j.lane WHERE e.seq > ?
  ORDER BY seq LIMIT ?`;

/** Reads the events after a position, oldest first, each with the head of its job. */
export function* readFeed(after: number, limit: number): Step<readonly FeedRow[]> {
  const rows = yield { sql: select, values: [after, after, limit] };
  return rows.map((row) => ({
    seq: int(row, "seq"),
    head: row.job_id === null ? null : headValues(row),
    values: valuesOf(row),
  }));
}

/** The position of the newest event. */
export function* readHead(): Step<number> {
  const [row] = yield {
    sql: `SELECT max(coalesce((SELECT max(seq) FROM events), 0), coalesce((SELECT max(n) FROM jobs), 0),
      (SELECT seq FROM pruned)) AS seq`,
    values: [],
  };
  return row ? int(row, "seq") : 0;
}

/** The most rows of a kind that one call removes, so that nobody waits long for the file. */
const pruneMax = 5_000;

/**
 * Removes `deleted` events that are old. The highest position is remembered, so that positions only ever grow; that of a
 * creation was lower, for the job is gone.
 */
export function* pruneDeleted(now: number, before: number): Step<number> {
  yield {
    sql: "UPDATE pruned SET seq = max(seq, coalesce((SELECT max(seq) FROM events), 0))",
    values: [],
  };
  const removed = yield {
    sql: `DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE name = 'deleted' AND at < ? LIMIT ?)
      RETURNING seq`,
    values: [before, pruneMax],
  };
  yield {
    sql: "DELETE FROM records WHERE id IN (SELECT id FROM records WHERE expires_at <= ? LIMIT ?)",
    values: [now, pruneMax],
  };
  yield {
    sql: `DELETE FROM keys WHERE hash IN (SELECT hash FROM keys WHERE outcome_at < ?
      AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.key_hash = keys.hash) ORDER BY outcome_at LIMIT ?)`,
    values: [before, pruneMax],
  };
  return removed.length;
}
