/**
 * Renewing leases, and finding the ones that have lapsed along with other jobs whose time has come.
 */
import type { JobState } from "../../core/job.js";
import type { DueAsk, DueJob, HeldLease, RenewOutcome } from "../engine.js";
import { blockedStatement } from "./blockers.js";
import { isOpen } from "./query.js";
import { int, type SqlRow, type Statement, type Step, text } from "./statement.js";
import type { Transaction } from "./transaction.js";

/** Extends one lease, or the slots that an ended job still holds. */
export function* renewLease(tx: Transaction, held: HeldLease): Step<RenewOutcome> {
  const until = tx.now + held.leaseMs;
  const [lease] = yield {
    sql: "UPDATE leases SET until = ?, heartbeat_at = ? WHERE id = ? AND token = ? RETURNING cancel",
    values: [until, tx.now, held.job.id, held.token],
  };
  if (lease)
    return { outcome: "held", leaseUntil: until, cancelRequested: int(lease, "cancel") === 1 };
  yield {
    sql: "UPDATE slots SET until = ? WHERE job = ? AND token = ? AND until IS NOT NULL AND until > ?",
    values: [until, held.job.id, held.token, tx.now],
  };
  const [row] = yield {
    sql: `SELECT coalesce(d.state, w.state, r.state, CASE WHEN l.id IS NULL THEN NULL ELSE 'active' END) AS state,
        d.n IS NOT NULL AND d.token = ? AS ended
      FROM jobs j LEFT JOIN ended d ON d.n = j.n LEFT JOIN waiting w ON w.n = j.n LEFT JOIN held_by_job l ON l.id = j.id
      LEFT JOIN ready r ON r.lane = j.lane AND r.rank = -j.priority AND r.run_at = j.run_at AND r.id = j.id
      WHERE j.id = ?`,
    values: [held.token, held.job.id],
  };
  if (!row) return { outcome: "lost", state: null };
  const state = row.state as JobState;
  return int(row, "ended") === 1 ? { outcome: "ended", state } : { outcome: "lost", state };
}

/** Jobs whose time has come, in the order of that time. */
export function* dueJobs(
  now: number,
  ask: DueAsk,
  limit: number,
  newSince: number,
): Step<readonly DueJob[]> {
  if (ask.kind === "retention") return yield* dueForRetention(ask, limit);
  const rows = yield dueStatement(now, ask, limit, newSince);
  return rows.map(dueFromRow);
}

type RetentionAsk = Extract<DueAsk, { kind: "retention" }>;

/** Lane by lane, so that the index gives the oldest first and only ends of the same moment are sorted. */
function* dueForRetention(ask: RetentionAsk, limit: number): Step<readonly DueJob[]> {
  const { service, type, state, endedBefore } = ask;
  const lanes = yield {
    sql: "SELECT id FROM lanes WHERE service = ? AND type = ? ORDER BY id",
    values: [service, type],
  };
  const due: SqlRow[] = [];
  for (const lane of lanes) {
    const rows = yield {
      sql: `SELECT j.id, d.version, d.token, d.ended_at FROM ended d JOIN jobs j ON j.n = d.n
        WHERE d.lane = ? AND d.state = ? AND d.ended_at < ?
        AND NOT EXISTS (SELECT 1 FROM blockers b WHERE b.blocker IN (j.id, j.chain_id) AND ${isOpen("b.n")})
        ORDER BY d.ended_at, j.id LIMIT ?`,
      values: [int(lane, "id"), state, endedBefore, limit],
    };
    due.push(...rows);
  }
  if (lanes.length > 1) due.sort(compareEnds);
  return due.slice(0, limit).map((row) => dueFromRow({ ...row, service, type }));
}

function compareEnds(a: SqlRow, b: SqlRow): number {
  return int(a, "ended_at") - int(b, "ended_at") || (text(a, "id") < text(b, "id") ? -1 : 1);
}

function dueStatement(
  now: number,
  ask: Exclude<DueAsk, RetentionAsk>,
  limit: number,
  newSince: number,
): Statement {
  switch (ask.kind) {
    case "lapsed":
      return {
        sql: `SELECT s.id, s.version, s.token, l.service, l.type FROM held s JOIN lanes l ON l.id = s.lane
          WHERE s.until <= ? AND s.blocked = 0 AND l.service = ? ORDER BY s.until, s.id LIMIT ?`,
        values: [now, ask.service, limit],
        planned: true,
      };
    case "blocked":
      return blockedStatement(newSince, ask.service, limit);
    case "deadline":
      return {
        sql: `SELECT s.id, s.version, s.token, l.service, l.type FROM (
            SELECT id, lane, version, token, deadline FROM waiting WHERE deadline <= ?
            UNION ALL SELECT id, lane, version, token, deadline FROM ready WHERE deadline <= ?
            UNION ALL SELECT id, lane, version, token, deadline FROM held WHERE deadline <= ?
          ) AS s JOIN lanes l ON l.id = s.lane WHERE l.service = ? ORDER BY s.deadline, s.id LIMIT ?`,
        values: [now, now, now, ask.service, limit],
        planned: true,
      };
  }
}

function dueFromRow(row: SqlRow): DueJob {
  return {
    service: text(row, "service"),
    type: text(row, "type"),
    id: text(row, "id"),
    version: int(row, "version"),
    token: int(row, "token"),
  };
}
