/**
 * Jobs, keys, services and pages as they go over the wire: plain JSON with times as RFC 3339 text.
 */
import type { WorkerRow } from "../client/presence.js";
import { given } from "../client/reads.js";
import type { Job, JobContext, JobState, LogEntry, PolicyOutcome, Progress } from "../core/job.js";
import type { Json } from "../core/json.js";
import { redactJob } from "../core/secrets.js";
import type { JobRow, KeyRow } from "../engine/query.js";

/** A job. */
export interface JobWire {
  readonly id: string;
  readonly service: string;
  readonly type: string;
  readonly typeVersion: number;
  readonly queue: string;
  readonly state: JobState;
  readonly payload: Json;
  readonly result?: Json;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly startedAt?: string;
  /** When it ended, however it did. */
  readonly completedAt?: string;
  readonly runAt: string;
  readonly deadline?: string;
  readonly version: number;
  readonly run: number;
  readonly tries: number;
  readonly maxTries: number;
  readonly priority: number;
  readonly tags: readonly string[];
  readonly context: JobContext;
  readonly lastError?: string;
  /** Why it was skipped, cancelled or released, in words. */
  readonly reason?: string;
  /** The instance that runs it. */
  readonly worker?: string;
  readonly cancelRequested?: true;
  readonly concurrency?: ConcurrencyWire;
  readonly queuePolicy?: PolicyOutcome;
  readonly progress?: Progress;
  readonly logs?: readonly LogWire[];
  readonly chainId?: string;
  readonly parentId?: string;
}

/** A job's place under its concurrency key. */
export interface ConcurrencyWire {
  readonly key: string;
  readonly keyHash: string;
  readonly slotToken?: string;
  readonly heartbeatAt?: string;
  readonly leaseExpiresAt?: string;
  readonly staleTakeoverCount?: number;
}

/** One line that a handler logged. */
export interface LogWire {
  readonly timestamp: string;
  readonly level: LogEntry["level"];
  readonly message: string;
}

/** A concurrency key and what goes on under it. */
export interface KeyWire {
  readonly service: string;
  readonly type: string;
  readonly key: string;
  readonly keyHash: string;
  readonly maxActive: number;
  readonly maxQueuedPerKey: number;
  readonly whenFull: KeyRow["whenFull"];
  readonly active: readonly {
    readonly jobId: string;
    readonly state: "reserved" | "active" | "ended";
    readonly slotToken: string;
    readonly instanceId?: string;
    readonly heartbeatAt?: string;
    readonly leaseExpiresAt?: string;
  }[];
  /** The ids of the first that wait. */
  readonly queued: readonly string[];
  readonly queuedCount: number;
  readonly blocked: boolean;
  readonly staleTakeoverCount: number;
  readonly lastOutcome?: PolicyOutcome & { readonly at: string };
}

/** A service and its live workers. */
export interface ServiceWire {
  readonly name: string;
  /** How many instances are alive. */
  readonly instances: number;
  readonly workers: readonly WorkerWire[];
  /** How many jobs it has in each state. */
  readonly jobs: { readonly [State in JobState]?: number };
}

/** What one instance does for one job type. */
export interface WorkerWire {
  readonly service: string;
  readonly jobType: string;
  readonly instanceId: string;
  readonly concurrency: number;
  readonly active: number;
  readonly version: string;
  /** Its last heartbeat. */
  readonly timestamp: string;
}

/** A page of a live list: later pages may shift while jobs come and go. */
export interface PageWire<Entry> {
  readonly entries: readonly Entry[];
  /** How many entries there are in all. */
  readonly count: number;
  readonly offset: number;
  readonly limit: number;
  /** Where the next page begins; absent on the last one. */
  readonly nextOffset?: number;
}

/** How the admin runtime is. */
export interface HealthWire {
  readonly status: "healthy" | "unhealthy";
  /** The version of Millrace. */
  readonly version: string;
  readonly instance: string;
  readonly startedAt: string;
  readonly checks: readonly HealthCheck[];
}

/** One thing that was looked at. */
export interface HealthCheck {
  readonly name: string;
  readonly status: "ok" | "failed";
  readonly detail?: string;
}

/** The most log lines of a job that are shown: the newest. */
const logsMax = 100;

/** A time as text. */
export function timeText(ms: number): string {
  return new Date(ms).toISOString();
}

function maybeTime(ms: number | undefined): string | undefined {
  return ms === undefined ? undefined : timeText(ms);
}

/** What is known of a job besides its own fold. */
export interface JobSurroundings {
  readonly row?: JobRow | null;
  readonly keyRow?: KeyRow | null;
  readonly logs?: readonly LogEntry[];
}

/** A job for the wire. */
export function jobWire(stored: Job, { row, keyRow, logs }: JobSurroundings = {}): JobWire {
  const job = redactJob(stored);
  const { id, service, type, typeVersion, queue, state, payload, version, run, tries } = job;
  const { maxTries, priority, tags, context } = job;
  return {
    ...{ id, service, type, typeVersion, queue, state, payload, version, run, tries },
    ...{ maxTries, priority, tags, context },
    createdAt: timeText(job.createdAt),
    updatedAt: timeText(job.updatedAt),
    runAt: timeText(job.runAt),
    ...given({
      result: job.result,
      startedAt: maybeTime(job.startedAt),
      completedAt: maybeTime(job.endedAt),
      deadline: maybeTime(job.deadline),
      lastError: job.error?.message,
      reason: job.reason,
      worker: job.worker,
      cancelRequested: job.cancelRequest && (true as const),
      concurrency: concurrencyWire(job, row, keyRow),
      queuePolicy: job.policy,
      progress: job.progress,
      logs: logs?.slice(-logsMax).map(logWire),
      chainId: job.chainId,
      parentId: job.parentId,
    }),
  };
}

function concurrencyWire(
  { key, state, token }: Job,
  row: JobRow | null | undefined,
  keyRow: KeyRow | null | undefined,
): ConcurrencyWire | undefined {
  if (key === undefined) return undefined;
  return {
    key: key.key,
    keyHash: key.hash,
    ...given({
      slotToken: state === "active" ? String(token) : undefined,
      heartbeatAt: maybeTime(row?.heartbeatAt),
      leaseExpiresAt: maybeTime(row?.leaseUntil),
      staleTakeoverCount: keyRow?.takeovers,
    }),
  };
}

function logWire({ at, level, message }: LogEntry): LogWire {
  return { timestamp: timeText(at), level, message };
}

/** A key for the wire. */
export function keyWire(row: KeyRow): KeyWire {
  const { service, type, key, hash, maxActive, maxQueued, whenFull } = row;
  const { queued, queuedCount, blocked, takeovers, lastOutcome } = row;
  return {
    ...{ service, type, key, keyHash: hash, maxActive, maxQueuedPerKey: maxQueued, whenFull },
    ...{ queued, queuedCount, blocked, staleTakeoverCount: takeovers },
    active: row.active.map(({ jobId, state, token, worker, heartbeatAt, leaseUntil }) => ({
      jobId,
      state,
      slotToken: String(token),
      ...given({
        instanceId: worker,
        heartbeatAt: maybeTime(heartbeatAt),
        leaseExpiresAt: maybeTime(leaseUntil),
      }),
    })),
    ...(lastOutcome && { lastOutcome: { ...lastOutcome, at: timeText(lastOutcome.at) } }),
  };
}

/** What the live ones of some workers do, type by type. */
export function workerWires(workers: readonly WorkerRow[]): readonly WorkerWire[] {
  return workers
    .filter(({ fresh }) => fresh)
    .flatMap(({ service, instance, version, heartbeatAt, types }) =>
      types.map(({ type, concurrency, active }) => ({
        service,
        jobType: type,
        instanceId: instance,
        concurrency,
        active,
        version,
        timestamp: timeText(heartbeatAt),
      })),
    );
}
