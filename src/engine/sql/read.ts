/**
 * Reading the logs of jobs.
 */
import { fold } from "../../core/evolve.js";
import type { LoadedJob } from "../engine.js";
import {
  type EventValues,
  eventColumns,
  eventFrom,
  type HeadValues,
  headColumns,
  headOf,
  headValues,
  valuesOf,
} from "./rows.js";
import { int, type Step } from "./statement.js";

/** The log of one job as rows. */
export interface JobLog {
  readonly head: HeadValues;
  readonly events: readonly EventValues[];
}

/** A job, folded from its log. */
export function loadedJob(log: JobLog, history: boolean): LoadedJob | null {
  const head = headOf(log.head);
  const events = log.events.map((values) => eventFrom(head, values));
  const job = fold(events);
  if (!job) return null;
  return history ? { job, events } : { job };
}

/** Reads the logs of jobs, in the order of the ids; `null` for one that does not exist. */
export function* readLogs(ids: readonly string[]): Step<readonly (JobLog | null)[]> {
  const logs: (JobLog | null)[] = [];
  for (const id of ids) {
    const [head] = yield {
      sql: `SELECT j.n, ${headColumns} FROM jobs j JOIN lanes l ON l.id = j.lane
        JOIN events c ON c.seq = j.n WHERE j.id = ?`,
      values: [id],
    };
    if (!head) {
      logs.push(null);
      continue;
    }
    logs.push({ head: headValues(head), events: yield* readEvents(int(head, "n")) });
  }
  return logs;
}

/** Reads the events of one job, oldest first. The first stands at the job's own number, and the index holds the rest. */
export function* readEvents(n: number): Step<readonly EventValues[]> {
  const created = yield { sql: `SELECT ${eventColumns} FROM events WHERE seq = ?`, values: [n] };
  const rest = yield {
    sql: `SELECT ${eventColumns} FROM events WHERE job = ? AND name <> 'created' ORDER BY seq`,
    values: [n],
  };
  return [...created, ...rest].map((row) => valuesOf(row));
}
