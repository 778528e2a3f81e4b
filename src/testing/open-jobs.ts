/**
 * The jobs of a test's store that have not ended, and what time will do to them.
 */
import { openStates } from "../core/job.js";
import type { Why } from "../core/why.js";
import type { Engine } from "../engine/engine.js";
import { type JobFilter, type JobRow, pageMax } from "../engine/query.js";

/** A job that has not ended, and why it is not running. */
export interface WaitingJob {
  readonly id: string;
  readonly type: string;
  readonly state: JobRow["state"];
  readonly why: Why;
}

/** Every row that a filter lets through, oldest first. */
export async function allRows(engine: Engine, filter: JobFilter): Promise<readonly JobRow[]> {
  const rows: JobRow[] = [];
  let cursor: string | undefined;
  do {
    const ask = { filter, limit: pageMax };
    const page = await engine.query("jobs", cursor === undefined ? ask : { ...ask, cursor });
    rows.push(...page.entries);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return rows.reverse();
}

/** The jobs of a service that have not ended. */
export function openJobs(engine: Engine, service: string): Promise<readonly JobRow[]> {
  return allRows(engine, { service, state: openStates });
}

/** When time will next move one of these jobs on: it is due, its deadline comes, or its lease lapses. */
export function nextChangeAt(rows: readonly JobRow[], now: number): number | null {
  let first: number | null = null;
  for (const { runAt, deadline, leaseUntil } of rows) {
    for (const at of [runAt, deadline, leaseUntil]) {
      if (at !== undefined && at > now && (first === null || at < first)) first = at;
    }
  }
  return first;
}
