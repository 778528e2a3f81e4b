/**
 * Blockers in SQL: an edge for each job or chain that a job waits for. Nothing is written when a blocker ends;
 * the keeper finds the jobs that may go on from the side of those that wait.
 */
import { CircleWalk } from "../../core/circle.js";
import type { Blocker, JobState } from "../../core/job.js";
import type { AppendOutcome } from "../engine.js";
import { type BlockerRow, pageMax } from "../query.js";
import { currentOfChain, isWithoutEnd } from "./chains.js";
import type { NewJob } from "./change.js";
import { isOpen, joinSlim } from "./query.js";
import { int, type SqlRow, type SqlValue, type Statement, type Step, text } from "./statement.js";
import type { Transaction } from "./transaction.js";

/** How many blockers are looked for or stored with one statement. */
const chunkSize = 50;

type Refusal = Extract<AppendOutcome, { outcome: "bad_blocker" }>;

/** What keeps a job from waiting for its blockers: one does not exist, or waits for the job's own chain, or may do so. */
export function* blockerRefusal(
  tx: Transaction,
  job: NewJob,
  blockers: readonly Blocker[],
): Step<Refusal | null> {
  for (const isChain of [false, true]) {
    const ids = blockers.filter(({ chain = false }) => chain === isChain).map(({ jobId }) => jobId);
    const known = yield* knownIds(tx, isChain ? "chain_id" : "id", ids);
    const ended = isChain ? yield* withoutEnd(ids) : new Set<string>();
    const missing = ids.find((id) => !known.has(id) || ended.has(id));
    if (missing !== undefined)
      return { outcome: "bad_blocker", reason: "missing", blockerId: missing };
  }
  // Only a job that joins a chain can be waited for before it exists.
  if (job.chainId === null || !(yield* isThere(job.chainId))) return null;
  // Two that join chains at the same time may wait for each other's, and neither would see what the other is about to store.
  yield* tx.dialect.lockCircles();
  return yield* circleRefusal(job.chainId, blockers);
}

/** Whether a chain has jobs. Nobody can wait for one that has none. */
function* isThere(chainId: string): Step<boolean> {
  const sql = "SELECT id FROM jobs WHERE chain_id = ? LIMIT 1";
  return (yield { sql, values: [chainId] }).length > 0;
}

/** Those of some ids that are known. Nobody removes their jobs before it is stored that another waits for them. */
function* knownIds(
  { dialect }: Transaction,
  column: "id" | "chain_id",
  ids: readonly string[],
): Step<ReadonlySet<string>> {
  const known = new Set<string>();
  for (const chunk of chunks(ids)) {
    const marks = chunk.map(() => "?").join(",");
    const sql = `SELECT ${column} AS id FROM jobs WHERE ${column} IN (${marks}) ${dialect.forKeyShare}`;
    for (const row of yield { sql, values: chunk }) known.add(text(row, "id"));
  }
  return known;
}

/** Those of some chains whose end was removed. */
function* withoutEnd(ids: readonly string[]): Step<ReadonlySet<string>> {
  const ended = new Set<string>();
  for (const chunk of chunks(ids)) {
    const sql = `SELECT c.chain_id AS id
      FROM (SELECT DISTINCT chain_id FROM jobs WHERE chain_id IN (${chunk.map(() => "?").join(",")})) AS c
      JOIN ended x ON x.n = ${currentOfChain("c.chain_id")} WHERE ${isWithoutEnd("x")}`;
    for (const row of yield { sql, values: chunk }) ended.add(text(row, "id"));
  }
  return ended;
}

/** Walks from blocker to blocker, and refuses the first of a job through which it would wait for its own chain. */
function* circleRefusal(chainId: string, blockers: readonly Blocker[]): Step<Refusal | null> {
  const walk = new CircleWalk(chainId, blockers);
  for (let next = walk.next(chunkSize); next.length > 0; next = walk.next(chunkSize)) {
    const vias = new Map(next.map(({ jobId, via }) => [jobId, via]));
    const column = next[0]?.chain ? "chain_id" : "id";
    const rows = yield {
      sql: `SELECT j.${column} AS waiter, b.blocker, b.chain FROM jobs j JOIN blockers b ON b.n = j.n
        WHERE j.${column} IN (${next.map(() => "?").join(",")}) AND ${isOpen("j.n")}`,
      values: [...vias.keys()],
    };
    for (const row of rows) {
      const blocker = { jobId: text(row, "blocker"), chain: int(row, "chain") === 1 };
      walk.reach(blocker, vias.get(text(row, "waiter")) ?? "");
    }
  }
  return walk.refusal && { outcome: "bad_blocker", ...walk.refusal };
}

/** Stores what a job waits for. */
export function* storeBlockers(n: number, blockers: readonly Blocker[]): Step<void> {
  let place = 0;
  for (const chunk of chunks(blockers)) {
    const values: SqlValue[] = [];
    for (const { jobId, chain, onBadEnd } of chunk)
      values.push(n, place++, jobId, chain ? 1 : 0, onBadEnd === "unreachable" ? 1 : 0);
    const rows = chunk.map(() => "(?,?,?,?,?)").join(",");
    const sql = `INSERT INTO blockers (n, place, blocker, chain, strict) VALUES ${rows}`;
    yield { sql, values, silent: true };
  }
}

/** A job is about to be removed: those that wait for it are told how it ended, and what it waited for goes with it. */
export function* forgetBlockers(row: SqlRow): Step<void> {
  const n = int(row, "n");
  const state = row.state ?? removedState;
  yield { sql: "DELETE FROM blockers WHERE n = ?", values: [n] };
  yield {
    sql: "UPDATE blockers SET state = ? WHERE blocker = ? AND chain = 0 AND state IS NULL",
    values: [state, text(row, "id")],
  };
  if (row.chain_id === null || row.chain_id === undefined) return;
  yield {
    sql: `UPDATE blockers SET state = ? WHERE blocker = ? AND chain = 1 AND state IS NULL
      AND ${currentOfChain("blockers.blocker")} = ? AND NOT EXISTS (SELECT 1 FROM ended x WHERE x.n = ? AND ${isWithoutEnd("x")})`,
    values: [state, row.chain_id, n, n],
  };
}

/** What a job that was removed before it ended counts as. */
const removedState: JobState = "cancelled";

/** The state of the blocker `b`; `open` while it has not ended. It asks from when on an end is new. */
const blockerState = `coalesce(b.state, CASE WHEN b.chain = 1
  THEN (SELECT CASE WHEN ${isWithoutEnd("x")} THEN CASE WHEN x.ended_at > ? THEN 'open' END ELSE coalesce(x.state, 'open') END
    FROM jobs m LEFT JOIN ended x ON x.n = m.n WHERE m.n = ${currentOfChain("b.blocker")})
  ELSE (SELECT coalesce(x.state, 'open') FROM jobs m LEFT JOIN ended x ON x.n = m.n WHERE m.id = b.blocker) END, '${removedState}')`;

/**
 * The blocked jobs that wait for nothing more, or of whose blockers one has ended badly. A chain of which the end is not there has
 * ended badly, but where the job before that has ended only since `newSince`, when what continues it may still come.
 */
export function blockedStatement(newSince: number, service: string, limit: number): Statement {
  return {
    sql: `SELECT w.id, w.version, w.token, l.service, l.type FROM waiting w JOIN lanes l ON l.id = w.lane
      WHERE w.cause = 'blocked' AND l.service = ? AND (
        NOT EXISTS (SELECT 1 FROM blockers b WHERE b.n = w.n AND ${blockerState} = 'open')
        OR EXISTS (SELECT 1 FROM blockers b WHERE b.n = w.n AND b.strict = 1 AND ${blockerState} NOT IN ('open', 'completed')))
      ORDER BY w.n LIMIT ?`,
    values: [service, newSince, newSince, limit],
    planned: true,
  };
}

const isGone = `(b.chain = 1 AND ${isWithoutEnd("d")})`;

const selectBlockers = `SELECT b.blocker, b.chain, b.strict, CASE WHEN NOT ${isGone} THEN c.id END AS job_id, coalesce(b.state,
    CASE WHEN ${isGone} THEN CASE WHEN d.ended_at > ? THEN 'pending' ELSE '${removedState}' END END, d.state, w.state, r.state,
    CASE WHEN c.n IS NULL THEN '${removedState}' ELSE 'active' END) AS state
  FROM jobs j JOIN blockers b ON b.n = j.n
  LEFT JOIN jobs c ON b.state IS NULL AND c.n = CASE WHEN b.chain = 1 THEN ${currentOfChain("b.blocker")}
    ELSE (SELECT m.n FROM jobs m WHERE m.id = b.blocker) END
  ${joinSlim("c")} WHERE j.id = ? ORDER BY b.place`;

/** The blockers of jobs, in the order of the ids. `newSince` means the same as for blocked jobs. */
export function* listBlockers(
  newSince: number,
  ids: readonly string[],
): Step<readonly (readonly BlockerRow[])[]> {
  const lists: BlockerRow[][] = [];
  for (const id of ids) {
    lists.push((yield { sql: selectBlockers, values: [newSince, id] }).map(blockerRow));
  }
  return lists;
}

function blockerRow(row: SqlRow): BlockerRow {
  return {
    id: text(row, "blocker"),
    isChain: int(row, "chain") === 1,
    onBadEnd: int(row, "strict") === 1 ? "unreachable" : "continue",
    jobId: row.job_id as string | null,
    state: row.state as JobState,
  };
}

/** The unfinished jobs that wait for a job or a chain of one of these ids. */
export function* listDependents(ids: readonly string[]): Step<readonly string[]> {
  const found = new Set<string>();
  for (const chunk of chunks(ids)) {
    const rows = yield {
      sql: `SELECT j.id FROM blockers b JOIN jobs j ON j.n = b.n
        WHERE b.blocker IN (${chunk.map(() => "?").join(",")}) AND ${isOpen("j.n")} ORDER BY j.n LIMIT ?`,
      values: [...chunk, pageMax],
    };
    for (const row of rows) found.add(text(row, "id"));
  }
  return [...found].slice(0, pageMax);
}

function* chunks<Item>(items: readonly Item[]): Iterable<readonly Item[]> {
  for (let start = 0; start < items.length; start += chunkSize)
    yield items.slice(start, start + chunkSize);
}
