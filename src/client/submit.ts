/**
 * The second half of a create: the change is appended, and the store's answer becomes an outcome.
 */
import { Result } from "better-result";
import { isEnded, openStates } from "../core/job.js";
import type { AppendOutcome, Change } from "../engine/engine.js";
import { StoreBusy, type StoreError } from "../engine/errors.js";
import type { JobFilter } from "../engine/query.js";
import type { StoredRecord } from "../engine/record.js";
import { invalidBlocker } from "./blockers.js";
import {
  IdempotencyConflict,
  type InvalidBlocker,
  JobExists,
  type JobNotEnqueued,
} from "./errors.js";
import type { PreparedCreate } from "./prepare.js";
import { appendOne, listJobs, loadOne, type StoreStep } from "./store-steps.js";

/** How often a create follows an idempotency key that others keep changing. */
const idempotencyTriesMax = 10;

/** How many jobs of a chain are looked at one by one. */
const followMax = 20;

/** How many in a transaction, to which no list tells how far it has come. One that is longer stays what its key stands for. */
const followInsideMax = 1_000;

/** What became of a create. In all but `rejected`, `id` names the job that the caller should look at. */
export type Submitted =
  | { readonly outcome: "accepted" | "existing"; readonly id: string }
  | { readonly outcome: "coalesced"; readonly id: string }
  | { readonly outcome: "replaced"; readonly id: string; readonly replacedJobId: string }
  | ({ readonly outcome: "rejected" } & Rejected);

/** Why a key let no job in. */
export interface Rejected {
  readonly reason: Exclude<JobNotEnqueued["reason"], "coalesced">;
  readonly key: string;
  readonly active: number;
  readonly queued: number;
  readonly limit: number;
  readonly existingJobId?: string;
}

/** The failures that a submit has once its payload and options are good. */
export type SubmitFailure = IdempotencyConflict | InvalidBlocker | JobExists | StoreError;

/** The change that a prepared create appends. */
export function createChange(
  { event, idempotency }: PreparedCreate,
  recordVersion = 0,
  isFresh = false,
): Change {
  const job = { service: event.service, type: event.type, id: event.jobId };
  const change: Change = isFresh
    ? { job, expect: createdAt, event, isFresh }
    : { job, expect: createdAt, event };
  if (idempotency === null) return change;
  const body = { jobId: event.jobId, payloadHash: idempotency.payloadHash };
  const { recordId: id, expiresAt } = idempotency;
  return {
    ...change,
    records: { before: [{ id, expect: recordVersion, body, expiresAt }], after: [] },
  };
}

const createdAt = { version: 0 } as const;

/** What the store's answer means; `null` when an idempotency key has to be followed. */
export function submitted(
  create: PreparedCreate,
  answer: AppendOutcome,
): Result<Submitted, SubmitFailure> | null {
  const { event } = create;
  switch (answer.outcome) {
    case "appended":
      return Result.ok(appended(event.jobId, answer));
    case "exists":
    case "conflict":
      return Result.err(jobExists(event.jobId));
    case "bad_blocker":
      return Result.err(invalidBlocker(event.jobId, answer.blockerId, answer.reason));
    case "faulted":
      return Result.err(answer.error);
    case "not_admitted":
      return Result.ok(notAdmitted(create, answer.admission));
    case "record_conflict":
      return null;
  }
}

function appended(
  id: string,
  { policy }: Extract<AppendOutcome, { outcome: "appended" }>,
): Submitted {
  if (policy?.replacedJobId === undefined) return { outcome: "accepted", id };
  return { outcome: "replaced", id, replacedJobId: policy.replacedJobId };
}

function notAdmitted(
  { event }: PreparedCreate,
  admission: Extract<AppendOutcome, { outcome: "not_admitted" }>["admission"],
): Submitted {
  if (admission.outcome === "coalesced")
    return { outcome: "coalesced", id: admission.existingJobId };
  return { ...admission, key: event.key?.key ?? "" };
}

function jobExists(id: string): JobExists {
  return new JobExists({
    id,
    message: `A job ${id} exists already; choose another id, or leave it to Millrace.`,
  });
}

/** The idempotency key was used before: the job of that use is the answer, or gives way to a new one. */
export function* followKey(
  create: PreparedCreate,
  answer: AppendOutcome,
  url: string,
  isInside = false,
): StoreStep<Result<Submitted, SubmitFailure>> {
  const { idempotency } = create;
  if (idempotency === null || answer.outcome !== "record_conflict")
    throw new Error("A create without a record met one.");
  let { current } = answer;
  for (let tries = 0; tries < idempotencyTriesMax; tries++) {
    const use = current === null ? null : usedBy(current);
    if (use !== null && !(yield* givesWay(create, use.jobId, isInside))) {
      if (use.payloadHash !== idempotency.payloadHash)
        return Result.err(conflict(idempotency.key, use.jobId));
      if (idempotency.needsChain && (yield* isNoChain(use.jobId)))
        return Result.err(chainConflict(idempotency.key, use.jobId));
      return Result.ok({ outcome: "existing", id: use.jobId });
    }
    const next = yield* appendOne(createChange(create, current?.version ?? 0));
    const result = submitted(create, next);
    if (result !== null) return result;
    current = next.outcome === "record_conflict" ? next.current : null;
  }
  const message = `The idempotency key "${idempotency.key}" kept changing hands; create the job again.`;
  return Result.err(new StoreBusy({ url, message }));
}

/** Whether the job of an earlier use lets a new one in: where that is asked for, once its whole chain has ended. */
function* givesWay(
  { idempotency, event }: PreparedCreate,
  jobId: string,
  isInside: boolean,
): StoreStep<boolean> {
  if (idempotency?.scope !== "unfinished") return false;
  const near = yield* follow(jobId, followMax);
  if (near.end === "open" || near.end === "ended") return near.end === "ended";
  if (near.end === "gone" && event.chainId === undefined) return true;
  // A long chain, or one of which a job is gone, is asked for as others see it.
  const chain = { service: event.service, chainId: jobId };
  const open = yield* newestOf({ ...chain, state: openStates });
  if (!isInside) return open === null;
  // A transaction may have come further with it, and may have started it itself.
  const newest = open ?? (yield* newestOf(chain));
  const from = newest === null || near.passed.has(newest) ? near.id : newest;
  const { end } = yield* follow(from, followInsideMax);
  return end === "ended" || (end === "gone" && open === null);
}

/** Where following a chain came to: a job with none after it, one that is not there, or one that is beyond what is followed. */
interface Followed {
  readonly end: "open" | "ended" | "gone" | "beyond";
  readonly id: string;
  readonly passed: ReadonlySet<string>;
}

function* follow(from: string, jobsMax: number): StoreStep<Followed> {
  const passed = new Set<string>();
  let id = from;
  while (passed.size < jobsMax) {
    const loaded = yield* loadOne(id);
    if (loaded === null) return { end: "gone", id, passed };
    const { state, continuedBy } = loaded.job;
    if (continuedBy === undefined) return { end: isEnded(state) ? "ended" : "open", id, passed };
    passed.add(id);
    id = continuedBy;
  }
  return { end: "beyond", id, passed };
}

function* newestOf(filter: JobFilter): StoreStep<string | null> {
  const { entries } = yield* listJobs({ filter, limit: 1 });
  return entries[0]?.id ?? null;
}

/** Whether the job of an earlier use of a key is no chain. */
function* isNoChain(jobId: string): StoreStep<boolean> {
  const loaded = yield* loadOne(jobId);
  return loaded !== null && loaded.job.chainId === undefined;
}

function usedBy(record: StoredRecord): { readonly jobId: string; readonly payloadHash: string } {
  return record.body as { readonly jobId: string; readonly payloadHash: string };
}

function conflict(key: string, existingJobId: string): IdempotencyConflict {
  const message = `The idempotency key "${key}" belongs to job ${existingJobId}, which has a different payload; use a new key for new work.`;
  return new IdempotencyConflict({ key, existingJobId, message });
}

function chainConflict(key: string, existingJobId: string): IdempotencyConflict {
  const message = `The idempotency key "${key}" belongs to job ${existingJobId}, which is no chain; use a new key for a chain, or wait for that job.`;
  return new IdempotencyConflict({ key, existingJobId, message });
}
