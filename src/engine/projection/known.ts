/**
 * The jobs that a batch of entries speaks of, read at once and then carried along, so that applying an event
 * writes and does not read.
 */
import { isEnded } from "../../core/job.js";
import { joinSlim } from "../sql/query.js";
import { type Lease, type Slim, slimFromRow } from "../sql/slim.js";
import { int, type SqlRow, type Step, text } from "../sql/statement.js";

/** A job as the projection has it. */
export interface Known {
  readonly service: string;
  /** What its slim row says, or would say: an ended job has none. */
  readonly slim: Slim;
  readonly lease: Lease | null;
  /** Who holds the lease. */
  readonly worker: string | null;
  readonly chainId: string | null;
}

/** Jobs by id. One of the batch that is missing does not exist. */
export type KnownJobs = Map<string, Known>;

/** How many jobs one statement reads. */
const chunkSize = 100;

const columns = `j.n, j.id, l.service, j.lane, -j.priority AS rank, j.run_at, j.deadline, j.chain_id,
  coalesce(d.state, w.state, r.state, 'active') AS state, coalesce(w.version, r.version, s.version, d.version) AS version,
  coalesce(w.run, r.run, s.run, d.run) AS run, coalesce(w.tries, r.tries, s.tries, d.tries) AS tries,
  coalesce(w.token, r.token, s.token, d.token) AS token,
  coalesce(w.updated_at, r.updated_at, s.updated_at, d.updated_at) AS updated_at,
  coalesce(w.started_at, r.started_at, s.started_at, d.started_at) AS started_at,
  coalesce(w.detail, r.detail, d.detail) AS detail, j.key_hash AS key, j.key_max,
  coalesce(w.noted, r.noted, 1) AS noted, s.until, s.blocked, s.worker`;

const select = (count: number) =>
  `SELECT ${columns} FROM jobs j JOIN lanes l ON l.id = j.lane ${joinSlim("j")}
    WHERE j.id IN (${new Array(count).fill("?").join(",")})`;

/** Reads jobs of which the batch has not spoken yet. */
export const selectKnown = select(chunkSize);

/** Reads jobs, and puts them among those that are known. */
export function* readKnown(ids: Iterable<string>, jobs: KnownJobs): Step<void> {
  const wanted = [...ids];
  for (let start = 0; start < wanted.length; start += chunkSize) {
    const values = wanted.slice(start, start + chunkSize);
    // A statement of one length is prepared once.
    while (values.length < chunkSize) values.push(values[0] ?? "");
    for (const row of yield { sql: selectKnown, values }) jobs.set(text(row, "id"), known(row));
  }
}

function known(row: SqlRow): Known {
  const slim = slimFromRow(row);
  const isActive = slim.state === "active";
  return {
    service: text(row, "service"),
    slim,
    lease: isActive ? { until: int(row, "until"), blocked: int(row, "blocked") === 1 } : null,
    worker: row.worker as string | null,
    chainId: row.chain_id as string | null,
  };
}

/** Whether a job still has a slim row. */
export function isOpen({ slim }: Known): boolean {
  return !isEnded(slim.state);
}
