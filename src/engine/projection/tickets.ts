/**
 * Tickets: jobs that were put in line before their time need one when it comes.
 */
import type { JobKey } from "../../core/job.js";
import type { Lane } from "../../core/order.js";
import { int, intOrNull, type SqlRow, type Step, text } from "../sql/statement.js";

/** Where to look: all lanes of a service, or some lanes. */
export type TicketScope = { readonly service: string } | { readonly lanes: readonly Lane[] };

/** A job whose time has come and that has had no ticket since. */
export interface DueTicket {
  readonly key: JobKey;
  readonly version: number;
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
export function* dueTickets(
  scope: TicketScope,
  now: number,
  limit: number,
): Step<readonly DueTicket[]> {
  const due: { readonly runAt: number; readonly ticket: DueTicket }[] = [];
  for (const lane of yield* lanesOf(scope)) {
    const [service, type] = [text(lane, "service"), text(lane, "type")];
    const rows = yield {
      sql: "SELECT id, version, run_at FROM delayed WHERE lane = ? AND run_at <= ? ORDER BY run_at LIMIT ?",
      values: [int(lane, "id"), now, limit],
    };
    for (const row of rows) {
      const key = { service, type, id: text(row, "id") };
      due.push({ runAt: int(row, "run_at"), ticket: { key, version: int(row, "version") } });
    }
  }
  due.sort((a, b) => a.runAt - b.runAt || (a.ticket.key.id < b.ticket.key.id ? -1 : 1));
  return due.slice(0, limit).map(({ ticket }) => ticket);
}

/** When the next job needs a ticket; `null` when none does. */
export function* nextDueAt(scope: TicketScope): Step<number | null> {
  let next: number | null = null;
  for (const lane of yield* lanesOf(scope)) {
    const [row] = yield {
      sql: "SELECT min(run_at) AS at FROM delayed WHERE lane = ?",
      values: [int(lane, "id")],
    };
    const at = row ? intOrNull(row, "at") : null;
    if (at !== null && (next === null || at < next)) next = at;
  }
  return next;
}
