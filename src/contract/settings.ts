/**
 * The settings of a job type: what a definition may say, and what holds where it says nothing.
 */
import type { EndedState, JobSecrets, StalePolicy, WhenFull } from "../core/job.js";
import type { Backoff } from "../core/retry.js";
import { type IsolateOptions, type IsolateSettings, resolveIsolate } from "./isolate.js";

/** How failed tries are tried again. */
export interface RetryOptions {
  /** How often a job is tried before it is `dead`; 5 by default. */
  readonly maxTries?: number;
  /** How long to wait between tries; `"default"` is 5 s, 30 s, 2 min, 10 min, 30 min. */
  readonly backoff?: Backoff;
}

/** How many jobs with the same key may run at once. */
export interface KeyConcurrencyOptions {
  /** Constants and JSON Pointers into the payload, such as `["zendesk", "/origin", "tickets"]`. */
  readonly key: readonly string[];
  /** How many may be active at once over all processes; 1 by default. */
  readonly maxActive?: number;
  /** How often a running job renews its hold on the key; 10 s by default. */
  readonly heartbeatIntervalMs?: number;
  /** How long a hold lasts without renewal; 30 s by default. */
  readonly heartbeatTtlMs?: number;
  /** What becomes of an active job whose hold lapses; `"fail-stale"` by default. */
  readonly stalePolicy?: StalePolicy;
}

/** The queue that a job type lines up in. */
export interface QueueOptions {
  /** The queue's name; the type's own by default. Types that name the same queue share its limits. */
  readonly name?: string;
  /** How many jobs of the queue may be active at once over all processes. */
  readonly maxActive?: number;
  /** How many jobs may wait behind the active ones of a key; 0 by default. */
  readonly maxQueuedPerKey?: number;
  /** What a create does when its key is full; `"reject"` by default. */
  readonly whenFull?: WhenFull;
  /** How old a job may grow before it expires, unless its own deadline comes first. */
  readonly maxAgeMs?: number;
}

/** How long ended jobs are kept, per state in milliseconds; 0 discards at once, `Infinity` keeps for good. */
export type RetentionOptions = { readonly [State in EndedState]?: number };

/** Every option of a job type but its schemas. */
export interface JobOptions {
  /** The version of the payload's shape; 1 by default. */
  readonly version?: number;
  readonly retry?: RetryOptions;
  /** How long one try may take; 1 hour by default. */
  readonly timeoutMs?: number;
  /** How long a worker's hold lasts without renewal; 30 s by default. */
  readonly leaseMs?: number;
  /** How many jobs of the type one process runs at once; 10 by default. */
  readonly concurrency?: number;
  /** How many jobs of the type may be active at once over all processes. */
  readonly maxActive?: number;
  readonly keyConcurrency?: KeyConcurrencyOptions;
  readonly queue?: QueueOptions;
  /** How long after its creation a job expires. */
  readonly deadlineMs?: number;
  /** Higher goes first; 0 by default. */
  readonly priority?: number;
  /** Whether progress is recorded; true by default. */
  readonly progress?: boolean;
  /** Whether log lines are recorded; true by default. */
  readonly logs?: boolean;
  /** Whether exhausted tries end as `dead`; true by default, otherwise as `failed`. */
  readonly deadLetter?: boolean;
  readonly retention?: RetentionOptions;
  /** The job types of the service that a job of this type may continue with; none by default. */
  readonly continuations?: readonly string[];
  /** The jobs that one of this type waits for: each with a name, and the type of the service that it is of. */
  readonly blockers?: { readonly [name: string]: string };
  /**
   * The fields of payload and result that are not to be shown, as JSON Pointers; `*` stands for every entry.
   * Handlers and creators get them; lists, events and logs for people do not.
   */
  readonly secret?: JobSecrets;
  /**
   * Runs every try in a process of its own, under these limits or, with `true`, under the defaults. The handler is then
   * a namespace or a program: `handle({ module })` or `handle({ exec })`.
   */
  readonly isolate?: true | IsolateOptions;
}

/** The settings of a job type with every default filled in. */
export interface JobSettings {
  readonly version: number;
  readonly maxTries: number;
  readonly backoff: Backoff;
  readonly timeoutMs: number;
  /** For a keyed type this is the key's `heartbeatTtlMs`: one lease holds both. */
  readonly leaseMs: number;
  readonly renewMs: number;
  readonly concurrency: number;
  readonly maxActive?: number;
  readonly keyConcurrency?: Required<KeyConcurrencyOptions>;
  readonly queue: QueueOptions & { readonly maxQueuedPerKey: number; readonly whenFull: WhenFull };
  readonly deadlineMs?: number;
  readonly priority: number;
  readonly progress: boolean;
  readonly logs: boolean;
  readonly deadLetter: boolean;
  readonly retention: { readonly [State in EndedState]: number };
  readonly continuations: readonly string[];
  readonly blockers?: { readonly [name: string]: string };
  readonly secret?: JobSecrets;
  readonly isolate?: IsolateSettings;
}

const secondMs = 1_000;
const dayMs = 24 * 60 * 60 * secondMs;

/** What holds where a definition says nothing. */
export const jobDefaults = {
  version: 1,
  maxTries: 5,
  backoff: "default",
  timeoutMs: 60 * 60 * secondMs,
  leaseMs: 30 * secondMs,
  concurrency: 10,
  priority: 0,
  keyMaxActive: 1,
  heartbeatIntervalMs: 10 * secondMs,
  heartbeatTtlMs: 30 * secondMs,
  stalePolicy: "fail-stale",
  maxQueuedPerKey: 0,
  whenFull: "reject",
} as const;

/** How long ended jobs are kept where nothing else is said. */
export const retentionDefaults: { readonly [State in EndedState]: number } = {
  completed: 7 * dayMs,
  skipped: 7 * dayMs,
  failed: 30 * dayMs,
  cancelled: 30 * dayMs,
  expired: 30 * dayMs,
  stale: 30 * dayMs,
  unreachable: 30 * dayMs,
  dead: 90 * dayMs,
  dismissed: 90 * dayMs,
};

/** Fills in the defaults. */
export function resolveSettings(options: JobOptions): JobSettings {
  const key = options.keyConcurrency;
  const leaseMs = key
    ? (key.heartbeatTtlMs ?? jobDefaults.heartbeatTtlMs)
    : (options.leaseMs ?? jobDefaults.leaseMs);
  const renewMs = key
    ? (key.heartbeatIntervalMs ?? Math.min(jobDefaults.heartbeatIntervalMs, leaseMs / 3))
    : leaseMs / 3;
  return {
    version: options.version ?? jobDefaults.version,
    maxTries: options.retry?.maxTries ?? jobDefaults.maxTries,
    backoff: options.retry?.backoff ?? jobDefaults.backoff,
    timeoutMs: options.timeoutMs ?? jobDefaults.timeoutMs,
    leaseMs,
    renewMs,
    concurrency: options.concurrency ?? jobDefaults.concurrency,
    ...(options.maxActive === undefined ? null : { maxActive: options.maxActive }),
    ...(key && {
      keyConcurrency: {
        key: key.key,
        maxActive: key.maxActive ?? jobDefaults.keyMaxActive,
        heartbeatIntervalMs: renewMs,
        heartbeatTtlMs: leaseMs,
        stalePolicy: key.stalePolicy ?? jobDefaults.stalePolicy,
      },
    }),
    queue: {
      ...options.queue,
      maxQueuedPerKey: options.queue?.maxQueuedPerKey ?? jobDefaults.maxQueuedPerKey,
      whenFull: options.queue?.whenFull ?? jobDefaults.whenFull,
    },
    ...(options.deadlineMs === undefined ? null : { deadlineMs: options.deadlineMs }),
    priority: options.priority ?? jobDefaults.priority,
    progress: options.progress ?? true,
    logs: options.logs ?? true,
    deadLetter: options.deadLetter ?? true,
    retention: { ...retentionDefaults, ...options.retention },
    continuations: options.continuations ?? [],
    ...(options.blockers === undefined ? null : { blockers: options.blockers }),
    ...(options.secret === undefined ? null : { secret: options.secret }),
    ...(options.isolate === undefined ? null : { isolate: resolveIsolate(options.isolate) }),
  };
}
