/**
 * Tickets: jobs that were put in line before their time need one when it comes.
 */
import type { JobKey } from "../../core/job.js";
import type { Lane } from "../../core/order.js";
import { int, intOrNull, type SqlRow, type Step, text } from "../sql/statement.js";

/** Where to look: all lanes of a service, or some lanes. */
export type TicketScope = { readonly service: string } | { readonly lanes: readonly Lane[] };

/** Where a job stands among those that need a ticket: by its time, and then by its number. */
export interface DuePlace {
  readonly runAt: number;
  readonly n: number;
}

/** A job whose time has come and that has had no ticket since. */
export interface DueTicket {
  readonly key: JobKey;
  readonly version: number;
  readonly place: DuePlace;
}

/** Which of the jobs that need a ticket now: the next after one of them. */
export interface DueTicketsAsk {
  readonly scope: TicketScope;
  readonly now: number;
  readonly after: DuePlace;
  readonly limit: number;
}

/** The place before all others. */
export const firstDue: DuePlace = { runAt: 0, n: 0 };

/** Which of two places comes first. */
export function compareDue(one: DuePlace, other: DuePlace): number {
  return one.runAt - other.runAt || one.n - other.n;
}

/** Lanes, few as they are, with what their jobs are called. */
function* lanesOf(scope: TicketScope): Step<readonly SqlRow[]> {
  const select = "SELECT id, service, type FROM lanes WHERE service = ?";
  if ("service" in scope) return yield { sql: select, values: [scope.service] };
  const found: SqlRow[] = [];
  for (const lane of scope.lanes) {
    const [service = "", queue = "", rest = ""] = lane.split("/");
    const [type = "", version = ""] = rest.split("@");
    const values = [service, queue, type, Number(version)];
    found.push(
      ...(yield { sql: `${select} AND queue = ? AND type = ? AND type_version = ?`, values }),
    );
  }
  return found;
}

/** The jobs that need a ticket now, those that are due longest first. */
export function* dueTickets({
  scope,
  now,
  after,
  limit,
}: DueTicketsAsk): Step<readonly DueTicket[]> {
  const due: DueTicket[] = [];
  for (const lane of yield* lanesOf(scope)) {
    const [service, type] = [text(lane, "service"), text(lane, "type")];
    const rows = yield {
      sql: `SELECT id, version, run_at, n FROM delayed WHERE lane = ? AND run_at <= ? AND (run_at, n) > (?, ?)
        ORDER BY run_at, n LIMIT ?`,
      values: [int(lane, "id"), now, after.runAt, after.n, limit],
    };
    for (const row of rows) {
      const key = { service, type, id: text(row, "id") };
      const place = { runAt: int(row, "run_at"), n: int(row, "n") };
      due.push({ key, version: int(row, "version"), place });
    }
  }
  return due.sort((one, other) => compareDue(one.place, other.place)).slice(0, limit);
}

/** When the next job needs a ticket, or the next slot of an ended job lapses; `null` when nothing is to come. */
export function* nextDueAt(scope: TicketScope, now: number): Step<number | null> {
  const [slot] = yield {
    sql: "SELECT min(until) AS at FROM slots WHERE until IS NOT NULL AND until > ?",
    values: [now],
  };
  let next = slot ? intOrNull(slot, "at") : null;
  for (const lane of yield* lanesOf(scope)) {
    const [row] = yield {
      sql: "SELECT min(run_at) AS at FROM delayed WHERE lane = ? AND run_at > ?",
      values: [int(lane, "id"), now],
    };
    const at = row ? intOrNull(row, "at") : null;
    if (at !== null && (next === null || at < next)) next = at;
  }
  return next;
}

/** The keys of a service of which a slot of an ended job has lapsed. */
export function* lapsedKeys(service: string, now: number, limit: number): Step<readonly string[]> {
  const rows = yield {
    sql: `SELECT DISTINCT k.hash FROM slots s JOIN keys k ON k.hash = substr(s.scope, 3)
      WHERE s.until IS NOT NULL AND s.until <= ? AND k.service = ? LIMIT ?`,
    values: [now, service, limit],
  };
  return rows.map((row) => text(row, "hash"));
}

/** Which jobs that have stood in line since a time: the next of a service after one, by their numbers. */
export interface StandingAsk {
  readonly service: string;
  readonly since: number;
  readonly after: number;
  readonly limit: number;
}

/** A job that may be claimed, with its number and the lane that it stands in. */
export interface StandingJob {
  readonly n: number;
  readonly id: string;
  readonly service: string;
  readonly queue: string;
  readonly type: string;
  readonly typeVersion: number;
  readonly priority: number;
}

/** The jobs of a service that have stood in line since a time, oldest first. */
export function* longStanding({
  service,
  since,
  after,
  limit,
}: StandingAsk): Step<readonly StandingJob[]> {
  const rows = yield {
    sql: `SELECT r.n, r.id, l.service, l.queue, l.type, l.type_version, r.rank FROM ready r JOIN lanes l ON l.id = r.lane
      WHERE l.service = ? AND r.updated_at < ? AND r.n > ? ORDER BY r.n LIMIT ?`,
    values: [service, since, after, limit],
  };
  return rows.map((row) => ({
    n: int(row, "n"),
    id: text(row, "id"),
    service: text(row, "service"),
    queue: text(row, "queue"),
    type: text(row, "type"),
    typeVersion: int(row, "type_version"),
    priority: -int(row, "rank"),
  }));
}
