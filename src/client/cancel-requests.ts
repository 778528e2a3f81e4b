/**
 * Requests to cancel jobs that are locked by the transaction of an atomic handler, or of whoever completes their chain, so
 * that nothing can be appended to them: each is a record beside the job, which its worker sees with the next renewal and
 * the keeper when the lock is gone.
 */
import type { Job, JobKey } from "../core/job.js";
import type { Json } from "../core/json.js";
import { recordId, type StoredRecord } from "../engine/record.js";
import type { Runtime } from "./runtime.js";

/** How long a request is kept at most. The keeper removes it long before. */
const keptMs = 7 * 24 * 60 * 60 * 1_000;

/** How often a request is written when others write it at the same time. */
const writesMax = 5;

/** A request to cancel one run of a job. */
export interface CancelRequest {
  readonly record: StoredRecord;
  readonly jobId: string;
  readonly run: number;
  readonly reason?: string;
}

/** Leaves a request for the present run of a job. Gives whether it lies there now. */
export async function leaveCancelRequest(
  { engine }: Runtime,
  { service, id: jobId, run }: Job,
  reason?: string,
): Promise<boolean> {
  const id = recordId.cancel(service, jobId);
  const body = { jobId, run, ...(reason === undefined ? null : { reason }) };
  let expect = 0;
  for (let writes = 0; writes < writesMax; writes++) {
    const expiresAt = engine.now() + keptMs;
    const [outcome] = await engine.swap([{ id, expect, body, expiresAt }]);
    if (outcome === undefined) throw new Error("The store gave no answer to a swap.");
    if (outcome.swapped) return true;
    if (outcome.current !== null && readRequest(outcome.current)?.run === run) return true;
    expect = outcome.current?.version ?? 0;
  }
  return false;
}

/** The requests for some jobs, in their order. */
export async function cancelRequestsFor(
  { engine }: Runtime,
  jobs: readonly JobKey[],
): Promise<readonly (CancelRequest | null)[]> {
  const found = await engine.records(jobs.map(({ service, id }) => recordId.cancel(service, id)));
  return found.map((record) => (record === null ? null : readRequest(record)));
}

/** The requests of a service, at most so many. */
export async function cancelRequestsOf(
  { engine, service }: Runtime,
  limit: number,
): Promise<readonly CancelRequest[]> {
  const prefix = recordId.cancels(service);
  const records = await engine.query("records", { prefix, limit });
  return records.flatMap((record) => readRequest(record) ?? []);
}

/** Removes requests that were honoured, or that have nothing to ask of any more. */
export async function removeCancelRequests(
  { engine }: Runtime,
  requests: readonly CancelRequest[],
): Promise<void> {
  const writes = requests.map(({ record }) => {
    return { id: record.id, expect: record.version, body: null };
  });
  if (writes.length > 0) await engine.swap(writes);
}

/** A record of another version may have another shape; it is left alone and not misread. */
function readRequest(record: StoredRecord): CancelRequest | null {
  const { jobId, run, reason } = (record.body ?? {}) as { readonly [name: string]: Json };
  if (typeof jobId !== "string" || typeof run !== "number") return null;
  return { record, jobId, run, ...(typeof reason === "string" ? { reason } : null) };
}
