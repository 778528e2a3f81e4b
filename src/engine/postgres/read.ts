/**
 * Reading the logs of many jobs at once.
 */
import type { JobLog } from "../sql/read.js";
import {
  createdColumns,
  type EventValues,
  eventColumns,
  headColumns,
  headValues,
  valuesOf,
} from "../sql/rows.js";
import { int, type Step, text } from "../sql/statement.js";
import { eventsInRounds } from "./rounds.js";
import { array, list } from "./text.js";

const selectHeads = `SELECT j.n, ${headColumns}, ${createdColumns} FROM jobs j JOIN lanes l ON l.id = j.lane
  WHERE j.id = ANY(${array("text")})`;

/** Reads the logs of jobs, in the order of the ids; `null` for one that does not exist. */
export function* readLogs(ids: readonly string[]): Step<readonly (JobLog | null)[]> {
  if (ids.length === 0) return [];
  const rows = yield { sql: selectHeads, values: [list(ids)], planned: true };
  const logs = yield* readLaterOf(rows.map((row) => int(row, "n")));
  const found = new Map<string, JobLog>();
  for (const row of rows) {
    // The log of a job that was deleted between the two statements ends with its removal.
    const events = [valuesOf(row), ...(logs.get(int(row, "n")) ?? [])];
    found.set(text(row, "job_id"), { head: headValues(row), events });
  }
  return ids.map((id) => found.get(id) ?? null);
}

const selectEvents = `SELECT job, seq, ${eventColumns} FROM events WHERE job = ANY(${array("bigint")})
  UNION ALL SELECT job, seq, ${eventColumns} FROM (${eventsInRounds}) AS r ORDER BY job, seq`;

/** Reads the events of jobs since their creation, oldest first, by the jobs' numbers. */
export function* readLaterOf(numbers: readonly number[]): Step<Map<number, EventValues[]>> {
  const logs = new Map<number, EventValues[]>();
  if (numbers.length === 0) return logs;
  const jobs = list(numbers);
  const rows = yield { sql: selectEvents, values: [jobs, jobs], planned: true };
  for (const row of rows) {
    const n = int(row, "job");
    const log = logs.get(n) ?? [];
    log.push(valuesOf(row));
    logs.set(n, log);
  }
  return logs;
}
