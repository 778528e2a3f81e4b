/**
 * The jobs that a batch of entries speaks of, read at once and then carried along, so that applying an event writes and
 * does not read. Those that have not ended may be remembered for the next batch.
 */
import type { JobStanding } from "../../core/evolve.js";
import { isEnded, type JobState } from "../../core/job.js";
import { joinSlim } from "../sql/query.js";
import type { Lease, Slim } from "../sql/slim.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";

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

const columns = `j.n, j.id, j.lane, -j.priority AS rank, j.run_at, coalesce(d.state, w.state, r.state, 'active') AS state,
  coalesce(w.version, r.version, s.version, d.version) AS version,
  coalesce(w.run, r.run, s.run, d.run) AS run, coalesce(w.tries, r.tries, s.tries, d.tries) AS tries,
  coalesce(w.token, r.token, s.token, d.token) AS token, j.deadline,
  coalesce(w.updated_at, r.updated_at, s.updated_at, d.updated_at) AS updated_at,
  coalesce(w.started_at, r.started_at, s.started_at, d.started_at) AS started_at,
  coalesce(w.detail, r.detail, d.detail) AS detail, j.key_hash, j.key_max,
  coalesce(w.noted, r.noted, 1) AS noted, l.service, s.until, s.blocked, s.worker, j.chain_id`;

const select = (count: number) =>
  `SELECT ${columns} FROM jobs j JOIN lanes l ON l.id = j.lane ${joinSlim("j")}
    WHERE j.id IN (${new Array(count).fill("?").join(",")})`;

/** Reads jobs that are not known yet. */
export const selectKnown = select(chunkSize);

/** Reads jobs, and puts them among those that are known. */
export function* readKnown(ids: Iterable<string>, jobs: KnownJobs): Step<void> {
  const wanted = [...ids];
  for (let start = 0; start < wanted.length; start += chunkSize) {
    const values = wanted.slice(start, start + chunkSize);
    // A statement of one length is prepared once.
    while (values.length < chunkSize) values.push(values[0] ?? "");
    const rows = arrays<readonly SqlValue[]>(yield { sql: selectKnown, values, raw: true });
    for (const row of rows) {
      const known = knownFrom(row);
      jobs.set(known.slim.id, known);
    }
  }
}

function knownFrom(row: readonly SqlValue[]): Known {
  const [n, id, lane, rank, runAt, state, version, run, tries, token, deadline, ...rest] = row;
  const [updatedAt, startedAt, detail, key, keyMax, noted, service, until, ...last] = rest;
  const [blocked, worker, chainId] = last;
  const slim: Slim = {
    n: Number(n),
    id: String(id),
    lane: Number(lane),
    rank: Number(rank),
    runAt: Number(runAt),
    state: state as JobState,
    version: Number(version),
    run: Number(run),
    tries: Number(tries),
    token: Number(token),
    deadline: numberOrNull(deadline),
    updatedAt: Number(updatedAt),
    startedAt: numberOrNull(startedAt),
    detail: detail as string | null,
    key: key as string | null,
    keyMax: numberOrNull(keyMax),
    noted: Number(noted),
  };
  const lease = state === "active" ? { until: Number(until), blocked: blocked === 1 } : null;
  return {
    service: String(service),
    slim,
    lease,
    worker: worker as string | null,
    chainId: chainId as string | null,
  };
}

function numberOrNull(value: SqlValue | undefined): number | null {
  return value === null || value === undefined ? null : Number(value);
}

/** What decides of a job whether an event is legal. */
export function standing({ service, slim: { id, state, version, token } }: Known): JobStanding {
  return { id, service, state, version, token };
}

/** Whether a job was put in line before its time, and so needs a ticket when that comes. */
export function isDelayed({ runAt, updatedAt }: Slim): boolean {
  return runAt > updatedAt;
}

/** Takes the lease of a job away. */
export const deleteLease = "DELETE FROM leases WHERE id = ?";

/** Whether a job still has a slim row. */
export function isOpen({ slim }: Known): boolean {
  return !isEnded(slim.state);
}

/** The most jobs that are remembered. */
const rememberedMax = 50_000;

/**
 * What whoever applies remembers from one transaction to the next: jobs that have not ended, and the numbers of lanes.
 * It holds while nobody else writes and nothing that was written is rolled back.
 */
export class Memory {
  readonly jobs: KnownJobs = new Map();
  readonly lanes = new Map<string, number>();
  /** The position at which it is true; `null` where it may not be. */
  #position: number | null = null;

  /** Begins to apply what follows on a position. What was true at another is forgotten. */
  begin(position: number): void {
    if (this.#position !== position || this.jobs.size > rememberedMax) this.forget();
    this.#position = null;
  }

  /** Ends at a position. Jobs that have ended, of those that were spoken of, seldom are again. */
  end(position: number, spokenOf: Iterable<string>): void {
    for (const id of spokenOf) {
      const known = this.jobs.get(id);
      if (known && !isOpen(known)) this.jobs.delete(id);
    }
    this.#position = position;
  }

  /** Forgets everything. */
  forget(): void {
    this.jobs.clear();
    this.lanes.clear();
  }
}
