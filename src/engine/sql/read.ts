/**
 * Reading the logs of jobs.
 */
import { fold } from "../../core/evolve.js";
import type { LoadedJob } from "../engine.js";
import {
  createdColumns,
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
      sql: `SELECT j.n, ${headColumns}, ${createdColumns} FROM jobs j JOIN lanes l ON l.id = j.lane WHERE j.id = ?`,
      values: [id],
    };
    if (!head) {
      logs.push(null);
      continue;
    }
    const later = yield* readLater(int(head, "n"));
    logs.push({ head: headValues(head), events: [valuesOf(head), ...later] });
  }
  return logs;
}

/** Reads the events of one job since its creation, oldest first. */
export function* readLater(n: number): Step<readonly EventValues[]> {
  const rows = yield {
    sql: `SELECT ${eventColumns} FROM events WHERE job = ? ORDER BY seq`,
    values: [n],
  };
  return rows.map((row) => valuesOf(row));
}
