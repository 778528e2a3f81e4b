/**
 * Lifecycle events: the only things that change a job. An event is plain JSON and carries
 * everything that a reader needs to know what happened to which job.
 */
import type {
  Actor,
  Aggregate,
  Blocker,
  HookName,
  JobContext,
  JobError,
  JobKeyPolicy,
  JobSecrets,
  JobSignature,
  JobState,
  LogEntry,
  PolicyOutcome,
  Progress,
} from "./job.js";
import type { Json } from "./json.js";

/** What every event carries, whatever happened. */
export interface EventEnvelope {
  readonly id: string;
  readonly jobId: string;
  readonly service: string;
  readonly type: string;
  /** The job's version after this event. Notes and tickets repeat the version that they were written at. */
  readonly version: number;
  readonly run: number;
  readonly tries: number;
  readonly state: JobState;
  readonly previousState: JobState | null;
  readonly at: number;
  readonly actor: Actor;
  readonly context: JobContext;
}

/** What a `created` event says of the new job. */
export interface CreatedData {
  readonly typeVersion: number;
  readonly queue: string;
  readonly payload: Json;
  readonly maxTries: number;
  readonly priority: number;
  readonly runAt: number;
  readonly deadLetter: boolean;
  readonly tags: readonly string[];
  readonly blockers: readonly Blocker[];
  readonly deadline?: number;
  readonly key?: JobKeyPolicy;
  readonly policy?: PolicyOutcome;
  readonly idempotencyKey?: string;
  readonly chainId?: string;
  readonly parentId?: string;
  readonly agent?: string;
  readonly signature?: JobSignature;
  readonly secret?: JobSecrets;
}

/** The job that continues a chain, named by the job that it continues. */
export interface Continuation {
  readonly jobId: string;
  readonly type: string;
}

/** What each kind of event adds to the envelope. */
export interface EventData {
  created: CreatedData;
  ready: { readonly cause: "due" | "slot_freed" | "swept" };
  unblocked: object;
  unreachable: { readonly blockerId: string };
  acknowledged: { readonly agent: string };
  started: { readonly token: number; readonly worker: string };
  progress: { readonly token: number; readonly progress: Progress };
  logged: { readonly token: number; readonly entries: readonly LogEntry[] };
  emitted: { readonly token: number; readonly topic: string; readonly data?: Json };
  heartbeat: { readonly token: number };
  retry: { readonly token: number; readonly error: JobError; readonly runAt: number };
  released: {
    readonly token: number;
    readonly cause: "shutdown" | "snooze" | "deferral";
    readonly runAt: number;
    readonly reason?: string;
  };
  completed: {
    readonly token?: number;
    readonly result?: Json;
    readonly continuation?: Continuation;
    readonly completedBy: string | null;
    readonly aggregate?: Aggregate;
    /** What of the job is not to be shown, so that who sees the event alone knows it. */
    readonly secret?: JobSecrets;
  };
  failed: { readonly token?: number; readonly error: JobError; readonly aggregate?: Aggregate };
  cancelRequested: { readonly reason?: string };
  cancelled: { readonly token?: number; readonly reason?: string };
  expired: { readonly deadline: number };
  skipped: {
    readonly token?: number;
    readonly reason: string;
    readonly replacedBy?: string;
    readonly aggregate?: Aggregate;
  };
  stale: { readonly token: number; readonly cause: "lapsed" | "key_released" };
  keyBlocked: { readonly token: number };
  staleCompletionIgnored: { readonly token: number; readonly outcome: string };
  hookFailed: { readonly hook: HookName; readonly error: JobError };
  dead: { readonly token?: number; readonly error: JobError };
  retried: { readonly runAt: number; readonly forced?: true };
  dismissed: { readonly reason?: string };
  deleted: { readonly reason: string };
}

export type EventName = keyof EventData;

/** An event of one name. */
export type EventOf<Name extends EventName> = EventEnvelope & {
  readonly name: Name;
} & EventData[Name];

/** Any lifecycle event. */
export type JobEvent = { [Name in EventName]: EventOf<Name> }[EventName];
