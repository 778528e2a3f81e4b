/**
 * Appending many events to the log with one statement.
 */
import { type EventValues, eventColumns } from "../sql/rows.js";
import type { Statement } from "../sql/statement.js";
import { list, table } from "./text.js";

const types = ["text", "int", "int", "int", "text", "text", "bigint", "text", "text", "text"];

const columns = Object.fromEntries(
  ["job", ...eventColumns.split(", ")].map((column, index) => [
    column,
    index === 0 ? "bigint" : (types[index - 1] ?? "text"),
  ]),
);

const insert = `INSERT INTO events (job, ${eventColumns}) SELECT * FROM ${table("i", columns)}`;

/** The statement that appends events, each beside the number of its job. */
export function insertEvents(jobs: readonly number[], events: readonly EventValues[]): Statement {
  const values = [list(jobs)];
  for (let member = 0; member < types.length; member++)
    values.push(list(events.map((event) => event[member] ?? null)));
  return { sql: insert, values, planned: true, silent: true };
}
