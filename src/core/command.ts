/**
 * Commands: what somebody wants of a job. `decide` turns one into an event or refuses it.
 * A command carries the id of the event that it may become and who gives it.
 */
import type { Continuation, CreatedData } from "./event.js";
import type {
  Actor,
  Aggregate,
  HookName,
  JobContext,
  JobError,
  JobKey,
  LogEntry,
  Progress,
} from "./job.js";
import type { Json } from "./json.js";

/** The event that a command becomes has this id and this actor. */
export interface Origin {
  readonly eventId: string;
  readonly actor: Actor;
}

/** What a worker knows of its attempt: the token that it holds. */
interface Held {
  readonly token: number;
}

/** What each command needs to be decided. */
export interface CommandData {
  create: CreatedData & JobKey & { readonly context: JobContext };
  ready: { readonly cause: "due" | "slot_freed" | "swept" };
  unblock: object;
  blockerEndedBadly: { readonly blockerId: string };
  acknowledge: { readonly agent: string };
  start: { readonly worker: string };
  progress: Held & { readonly progress: Progress };
  log: Held & { readonly entries: readonly LogEntry[] };
  emit: Held & { readonly topic: string; readonly data?: Json };
  heartbeat: Held;
  /** Succeeded. Without a token it is a completion by nobody. */
  complete: {
    readonly token?: number;
    readonly result?: Json;
    readonly continuation?: Continuation;
    readonly completedBy: string | null;
    readonly aggregate?: Aggregate;
  };
  /** The try failed. `retryAt` is when the next one would run; the rules say whether there is one. */
  fail: Held & { readonly error: JobError; readonly retryAt: number };
  /** Retrying cannot help. */
  terminate: { readonly token?: number; readonly error: JobError; readonly aggregate?: Aggregate };
  release: Held & {
    readonly cause: "shutdown" | "snooze" | "deferral";
    readonly runAt: number;
    readonly reason?: string;
  };
  skip: {
    readonly token?: number;
    readonly reason: string;
    readonly replacedBy?: string;
    readonly aggregate?: Aggregate;
  };
  /** Ends a waiting job at once and asks an active one to stop; `force` ends an active one too. */
  cancel: { readonly reason?: string; readonly force?: boolean };
  /** The worker honours a cancel request. */
  confirmCancel: Held & { readonly reason?: string };
  expire: object;
  /** The lease of this token has lapsed. `retryAt` is when a next try would run. */
  lapse: Held & { readonly retryAt: number };
  /** A waiting job was offered to workers far too often, and none of them could even start it. */
  exhaust: { readonly error: JobError };
  /** An admin releases a key that a lapsed job blocks. */
  releaseKey: object;
  /** An outcome came under an old token. */
  reportStale: Held & { readonly outcome: string };
  /** A hook threw or took too long, which changes nothing of the job. */
  reportHook: { readonly hook: HookName; readonly error: JobError };
  retry: { readonly runAt: number; readonly force?: boolean };
  dismiss: { readonly reason?: string };
  delete: { readonly reason: string; readonly force?: boolean };
}

export type CommandName = keyof CommandData;

/** Any command. */
export type Command = {
  [Name in CommandName]: { readonly command: Name } & Origin & CommandData[Name];
}[CommandName];

/** A command of one name. */
export type CommandOf<Name extends CommandName> = Extract<Command, { readonly command: Name }>;
