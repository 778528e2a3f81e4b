/**
 * The job: what folding its log of events gives. Plain data, JSON all the way through.
 * Times are milliseconds since 1970 on the store's clock.
 */
import type { Json } from "./json.js";

/** The states in which a job can still run. */
export const openStates = ["pending", "blocked", "active", "retry"] as const;

/** The states that are terminal for workers. */
export const endedStates = [
  "completed",
  "failed",
  "cancelled",
  "expired",
  "skipped",
  "stale",
  "dead",
  "dismissed",
  "unreachable",
] as const;

/** The largest whole number of a caller's (a version of a type, a token) that every store can hold: 32 bits with a sign. */
export const integerMax = 2_147_483_647;

/** All thirteen states. */
export const jobStates = [...openStates, ...endedStates] as const;

export type EndedState = (typeof endedStates)[number];
export type JobState = (typeof jobStates)[number];

const ended: ReadonlySet<JobState> = new Set(endedStates);

/** Whether a state is terminal for workers. */
export function isEnded(state: JobState): state is EndedState {
  return ended.has(state);
}

/** Names one job. The id alone is unique; service and type say where it lives. */
export interface JobKey {
  readonly service: string;
  readonly type: string;
  readonly id: string;
}

/** Who caused an event, such as `worker:web-1`, `client:api`, `keeper:web-2` or `admin:anna`. */
export type Actor = `${"client" | "worker" | "keeper" | "admin"}:${string}`;

/** Who acts for a worker that speaks HTTP. It has no code of the contract's, so that others call its hooks. */
export function httpWorker(instance: string): Actor {
  return `worker:http/${instance}`;
}

/** Whether whoever caused an event calls the hooks of its outcome itself. */
export function callsHooks(actor: Actor): boolean {
  return actor.startsWith("worker:") && !actor.startsWith("worker:http/");
}

/** Where a job's work belongs in a larger request. Never changes after creation. */
export interface JobContext {
  readonly requestId: string;
  readonly traceId: string;
  readonly traceparent: string;
  readonly tracestate?: string;
}

/** Why a try or a job failed. Never holds a stack trace. */
export interface JobError {
  readonly message: string;
  readonly name?: string;
  readonly code?: string;
  /**
   * What happened to the try: it threw, timed out, lost its lease, had a bad payload or result, or was terminated;
   * or there was none, however often the job was offered. `hook` is of a hook, which changes nothing of the job.
   */
  readonly reason:
    | "error"
    | "timeout"
    | "orphaned"
    | "payload"
    | "result"
    | "terminated"
    | "signature"
    | "encryption"
    | "children"
    | "deliveries"
    | "hook";
}

/** The functions of the user's that are called around a job. */
export type HookName = "onStart" | "onSuccess" | "onFail" | "onEnd";

/** How far a running job has come. Every part is optional. */
export interface Progress {
  readonly step?: string;
  readonly message?: string;
  readonly current?: number;
  readonly total?: number;
}

/** One line that a handler logged. */
export interface LogEntry {
  readonly at: number;
  readonly level: "info" | "warn" | "error";
  readonly message: string;
}

/** What happens to an active keyed job whose lease lapses. */
export type StalePolicy = "fail-stale" | "requeue" | "block";

/** What happens to a create when its key is full. */
export type WhenFull = "reject" | "coalesce" | "replace-oldest";

/** The concurrency key of a job with the limits that it was created under. */
export interface JobKeyPolicy {
  /** The readable key, such as `zendesk/acme/tickets`. */
  readonly key: string;
  /** A stable hash of service, type and key segments; names the key's slots. */
  readonly hash: string;
  readonly maxActive: number;
  readonly maxQueued: number;
  readonly whenFull: WhenFull;
  readonly stalePolicy: StalePolicy;
}

/** What the queue policy did with a create. */
export interface PolicyOutcome {
  readonly outcome: "accepted" | "rejected" | "coalesced" | "replaced";
  readonly reason?: string;
  readonly existingJobId?: string;
  readonly replacedJobId?: string;
}

/** A job or a chain that must end before another job may run. */
export interface Blocker {
  /** The id of the job, or of the chain. */
  readonly jobId: string;
  /** It names a chain, which ends with its last job. */
  readonly chain?: true;
  /** The name under which the contract knows it. */
  readonly name?: string;
  /** What a bad end of the blocker means: the waiting job becomes `unreachable`, or goes on. */
  readonly onBadEnd: "unreachable" | "continue";
}

/** The outcome of a parent over its children. */
export type Aggregate = "completed" | "failed" | "partial_failure" | "skipped";

/** Somebody asked an active job to stop. */
export interface CancelRequest {
  readonly at: number;
  readonly by: Actor;
  readonly reason?: string;
}

/** The signature that a job bears. Times are milliseconds since 1970. */
export interface JobSignature {
  /** When it was signed. */
  readonly createdAt: number;
  /** From when on the job may not be started any more. */
  readonly expiresAt?: number;
  /** The 64 bytes of Ed25519, in hexadecimal. */
  readonly value: string;
}

/** The fields of a job's payload and result that are secret, as JSON Pointers. */
export interface JobSecrets {
  readonly payload?: readonly string[];
  readonly result?: readonly string[];
}

/** A job, folded from its events. */
export interface Job extends JobKey {
  readonly typeVersion: number;
  readonly queue: string;
  readonly state: JobState;
  /** Counts the accepted state-changing events; an append names the version that it was decided on. */
  readonly version: number;
  /** Counts up with each manual retry or replay; the first run is 1. */
  readonly run: number;
  /** Starts minus releases in this run. */
  readonly tries: number;
  readonly maxTries: number;
  /** The newest fencing token; grows with each start, over all runs. */
  readonly token: number;
  readonly priority: number;
  readonly runAt: number;
  readonly deadline?: number;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly startedAt?: number;
  readonly endedAt?: number;
  readonly payload: Json;
  readonly result?: Json;
  readonly error?: JobError;
  /** Why the job was skipped, cancelled or released, in words. */
  readonly reason?: string;
  readonly context: JobContext;
  readonly tags: readonly string[];
  readonly key?: JobKeyPolicy;
  readonly policy?: PolicyOutcome;
  readonly idempotencyKey?: string;
  /** Whether exhausted tries end as `dead` (the default) or as `failed`. */
  readonly deadLetter: boolean;
  /** The instance that runs it, while it is active. */
  readonly worker?: string;
  readonly cancelRequest?: CancelRequest;
  /** Its keyed lease lapsed under the `block` policy; the key stays taken until it is released. */
  readonly keyBlocked?: true;
  readonly progress?: Progress;
  readonly acknowledgedBy?: string;
  readonly acknowledgedAt?: number;
  readonly blockers: readonly Blocker[];
  readonly chainId?: string;
  readonly continuedBy?: string;
  readonly parentId?: string;
  readonly agent?: string;
  /** The signature of whoever created it; manual retries keep it. */
  readonly signature?: JobSignature;
  /** What of it is not to be shown. */
  readonly secret?: JobSecrets;
  readonly aggregate?: Aggregate;
  /** The instance that completed it; `null` when it was completed without a worker. */
  readonly completedBy?: string | null;
}
