/**
 * What the row of a job in a list must say, as the fold of the job's log has it.
 */
import type { Job } from "../core/job.js";
import { canonicalJson } from "../core/json.js";
import type { JobRow } from "../engine/query.js";

/** The part of a row that the fold tells; the rest speaks of leases. */
export type FoldRow = Omit<JobRow, "heartbeatAt" | "leaseUntil">;

/** A job's row as its log tells it. */
export function rowOfFold(job: Job): FoldRow {
  const { id, service, type, typeVersion, queue, state, version, run, tries, maxTries } = job;
  const { priority, runAt, createdAt, updatedAt, tags } = job;
  return {
    ...{ id, service, type, typeVersion, queue, state, version, run, tries, maxTries },
    ...{ priority, runAt, createdAt, updatedAt, tags },
    ...(job.deadline !== undefined && { deadline: job.deadline }),
    ...(job.startedAt !== undefined && { startedAt: job.startedAt }),
    ...(job.endedAt !== undefined && { endedAt: job.endedAt }),
    ...(job.key && { key: job.key.key, keyHash: job.key.hash }),
    ...(job.parentId !== undefined && { parentId: job.parentId }),
    ...(job.chainId !== undefined && { chainId: job.chainId }),
    ...(job.agent !== undefined && { agent: job.agent }),
    ...(job.aggregate !== undefined && { aggregate: job.aggregate }),
    ...(job.worker !== undefined && { worker: job.worker }),
    ...(job.cancelRequest && { cancelRequested: true }),
    ...detailOf(job),
  };
}

/** What a row says of the last thing that happened: why the job waits again, or why it ended as it did. */
function detailOf({ state, error, reason }: Job): Pick<JobRow, "detail"> {
  const failed = state === "retry" || state === "failed" || state === "dead";
  const silent =
    state === "active" || state === "blocked" || state === "completed" || state === "expired";
  const said = failed
    ? error?.message
    : state === "dismissed"
      ? (reason ?? error?.message)
      : reason;
  return silent || said === undefined ? {} : { detail: said };
}

/** What a row says otherwise than the fold, as words; empty when they say the same. */
export function rowDifferences(row: FoldRow, job: Job): readonly string[] {
  const { heartbeatAt: _heartbeat, leaseUntil: _lease, ...told } = row as JobRow;
  const folded: Readonly<Record<string, unknown>> = { ...rowOfFold(job) };
  const said: Readonly<Record<string, unknown>> = { ...told };
  const text = (value: unknown) => (value === undefined ? "missing" : canonicalJson(value));
  return [...new Set([...Object.keys(folded), ...Object.keys(said)])]
    .filter((name) => text(said[name]) !== text(folded[name]))
    .map(
      (name) => `${name} is ${text(said[name])} in its row and ${text(folded[name])} in its log`,
    );
}
