/**
 * Chains in the read model: each is found by its first job and shown as its current one.
 */
import type { JobState } from "../../core/job.js";
import type { ChainRow, ChainsAsk, Page } from "../query.js";
import { isOpen, joinSlim, readPage, type Where, where } from "./query.js";
import { int, type SqlRow, type Step, text } from "./statement.js";

/** The number of the job that the chain `chain` has come to: the newest that has not ended, or else the newest. */
export function currentOfChain(chain: string): string {
  return `(SELECT m.n FROM jobs m WHERE m.chain_id = ${chain} ORDER BY NOT ${isOpen("m.n")}, m.n DESC LIMIT 1)`;
}

/**
 * Whether the end of a chain was removed, by the row `end` of how the job has ended that the chain has come to: it was continued, and
 * what continues a job is newer than it is.
 */
export function isWithoutEnd(end: string): string {
  return `(${end}.state IS NOT NULL AND ${end}.state = 'completed' AND ${end}.detail IS NOT NULL)`;
}

const stateColumn = "coalesce(d.state, w.state, r.state, 'active')";

const from = `FROM jobs j JOIN lanes l ON l.id = j.lane JOIN jobs c ON c.n = ${currentOfChain("j.id")}
  JOIN lanes cl ON cl.id = c.lane ${joinSlim("c")}`;

const columns = `j.n, j.id, l.service, l.type, j.tags, j.created_at, c.id AS current_id, cl.type AS current_type,
  ${stateColumn} AS state, coalesce(w.updated_at, r.updated_at, s.updated_at, d.updated_at) AS updated_at`;

/** A page of chains, newest first. */
export function listChains(ask: ChainsAsk): Step<Page<ChainRow>> {
  return readPage(ask, {
    parts: [{ counted: from, where: (cursor) => chainsWhere(ask, cursor) }],
    select: `${columns} ${from}`,
    entry: chainRow,
  });
}

/** The state is the current job's; everything else is asked of the first. A chain whose end was removed is not there any more. */
function chainsWhere({ filter = {} }: ChainsAsk, cursor?: number): Where {
  const { state, ...rest } = filter;
  const first = where(rest, cursor);
  const isListed = `j.chain_id = j.id AND NOT ${isWithoutEnd("d")}`;
  const parts = [first.sql === "" ? `WHERE ${isListed}` : `${first.sql} AND ${isListed}`];
  if (state === undefined) return { sql: parts.join(""), values: first.values };
  const marks = state.map(() => "?").join(",");
  parts.push(state.length === 0 ? "1 = 0" : `${stateColumn} IN (${marks})`);
  return { sql: parts.join(" AND "), values: [...first.values, ...state] };
}

function chainRow(row: SqlRow): ChainRow {
  return {
    id: text(row, "id"),
    service: text(row, "service"),
    type: text(row, "type"),
    tags: row.tags === null ? [] : (JSON.parse(text(row, "tags")) as string[]),
    createdAt: int(row, "created_at"),
    currentJobId: text(row, "current_id"),
    currentType: text(row, "current_type"),
    state: row.state as JobState,
    updatedAt: int(row, "updated_at"),
  };
}
