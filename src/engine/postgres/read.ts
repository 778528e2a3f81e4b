/**
 * Reading the logs of many jobs at once.
 */
import type { JobLog } from "../sql/read.js";
import { type EventValues, eventColumns, headColumns, headValues, valuesOf } from "../sql/rows.js";
import { int, type Step, text } from "../sql/statement.js";
import { eventsInRounds } from "./rounds.js";
import { array, list } from "./text.js";

const selectHeads = `SELECT j.n, ${headColumns} FROM jobs j JOIN lanes l ON l.id = j.lane
  JOIN events c ON c.seq = j.n WHERE j.id = ANY(${array("text")})`;

/** Reads the logs of jobs, in the order of the ids; `null` for one that does not exist. */
export function* readLogs(ids: readonly string[]): Step<readonly (JobLog | null)[]> {
  if (ids.length === 0) return [];
  const rows = yield { sql: selectHeads, values: [list(ids)] };
  const logs = yield* readEventsOf(rows.map((row) => int(row, "n")));
  const found = new Map<string, JobLog>();
  for (const row of rows) {
    const events = logs.get(int(row, "n")) ?? [];
    // A job that was deleted between the two statements has no log any more.
    if (events.length > 0) found.set(text(row, "job_id"), { head: headValues(row), events });
  }
  return ids.map((id) => found.get(id) ?? null);
}

/** The first event of a job stands at the job's own number, and the index holds the rest. */
const selectEvents = `SELECT job, seq, ${eventColumns} FROM events WHERE seq = ANY(${array("bigint")}) AND name = 'created'
  UNION ALL SELECT job, seq, ${eventColumns} FROM events WHERE job = ANY(${array("bigint")}) AND name <> 'created'
  UNION ALL SELECT job, seq, ${eventColumns} FROM (${eventsInRounds}) AS r
  ORDER BY job, seq`;

/** Reads the events of jobs, oldest first, by the jobs' numbers. */
export function* readEventsOf(numbers: readonly number[]): Step<Map<number, EventValues[]>> {
  const logs = new Map<number, EventValues[]>();
  if (numbers.length === 0) return logs;
  const jobs = list(numbers);
  const rows = yield { sql: selectEvents, values: [jobs, jobs, jobs] };
  for (const row of rows) {
    const n = int(row, "job");
    const log = logs.get(n) ?? [];
    log.push(valuesOf(row));
    logs.set(n, log);
  }
  return logs;
}
