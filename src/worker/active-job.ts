/**
 * What a handler gets: the job that it carries out, and the ways to speak while it does.
 */
import type { Continuation, ContinuationOptions } from "../client/continuation.js";
import type { JobContext, LogEntry, Progress } from "../core/job.js";
import type { Json } from "../core/json.js";
import { type AbortReason, JobAborted } from "./abort.js";
import type { BlockerOutcome } from "./blockers.js";
import type { Completed } from "./outcome.js";

export { type AbortReason, JobAborted };

/** A running job's hold on its concurrency key. */
export interface KeyHold {
  /** The readable key, such as `zendesk/acme/tickets`. */
  readonly key: string;
  /** Until when the hold lasts without renewal. */
  readonly leaseUntil: number;
  /** Whether the hold still lasts. */
  readonly isFresh: boolean;
}

/**
 * Completes a job from inside its handler, with the value that the callback gives or with `continueWith(…)`.
 * What it resolves with is what the handler returns.
 */
export type Complete<Value, ContinueWith, Tx = undefined> = (
  callback: (step: CompleteStep<ContinueWith, Tx>) => Value | Promise<Value>,
) => Promise<Completed>;

/** What the callback of `complete` is given. */
export interface CompleteStep<ContinueWith, Tx> {
  /** A transaction of the client that `connect` was given: what it writes commits with the outcome. */
  readonly tx: Tx;
  readonly continueWith: ContinueWith;
}

/**
 * How a handler uses transactions. `atomic`: one transaction from `prepare` to `complete`;
 * `staged`: one for each of them, with time for long work between them.
 */
export type PrepareMode = "atomic" | "staged";

/** Reads, and in staged mode writes, before the work begins. Gives what the callback gives. */
export type Prepare<Tx = undefined> = <Value = void>(
  options: { readonly mode: PrepareMode },
  callback?: (step: { readonly tx: Tx }) => Value | Promise<Value>,
) => Promise<Value>;

/** `prepare` whatever the client. */
export type AnyPrepare = Prepare<unknown>;

/** `complete` where no contract says what the job may continue with. */
export type AnyComplete = Complete<
  unknown,
  (type: string, payload: unknown, options?: ContinuationOptions) => Continuation,
  unknown
>;

/** The job that a handler carries out. Every method may be taken apart from the job. */
export interface ActiveJob<
  Payload,
  Completing = AnyComplete,
  Preparing = AnyPrepare,
  Blockers = { readonly [name: string]: BlockerOutcome },
> {
  readonly id: string;
  readonly type: string;
  /** The queue that it lined up in. */
  readonly queue: string;
  /** When the job was created, in milliseconds since 1970. */
  readonly createdAt: number;
  /** The payload as the job type's schema gives it. */
  readonly payload: Payload;
  /** Request and trace ids, for logs, calls and jobs that follow from this one. */
  readonly context: JobContext;
  /** Which try this is, from 1. */
  readonly tries: number;
  readonly maxTries: number;
  /** Counts the manual retries and replays; the first run is 1. */
  readonly run: number;
  /** Whether the job was started before, so that some of its work may be done already. */
  readonly isRedelivery: boolean;
  /** Aborted with a `JobAborted` when the handler should stop. */
  readonly signal: AbortSignal;
  /** The hold on the job's key, if it has one. */
  readonly key: KeyHold | undefined;
  readonly tags: readonly string[];
  /** How the jobs ended that the definition names as blockers, with their results. */
  readonly blockers: Blockers;
  /** Reads how everything ended that this job has waited for, in the order in which its create named it. */
  readonly loadDependencies: () => Promise<readonly BlockerOutcome[]>;
  /** When the job expires, in milliseconds since 1970. */
  readonly deadline: number | undefined;
  /**
   * How long the try may still take when this is read, until its timeout or the job's deadline. For those who pass
   * the limit on; everybody else listens to `signal`.
   */
  readonly remainingMs: number;
  /** Records how far the handler has come. */
  readonly progress: (progress: Progress) => Promise<void>;
  /** Records a line in the job's history; `"info"` by default. */
  readonly log: (message: string, level?: LogEntry["level"]) => Promise<void>;
  /** Records an event of the handler's own. */
  readonly emit: (topic: string, data?: Json) => Promise<void>;
  /** Renews the hold on the job now, and records that the handler lives. */
  readonly heartbeat: () => Promise<void>;
  /**
   * Says how the handler uses transactions, and reads in one before the work begins. A handler that does without it
   * is staged, or atomic when it calls `complete` before it awaits anything; `prepare` then comes too late and throws.
   *
   * @example
   * const order = await job.prepare({ mode: "staged" }, ({ tx }) => findOrder(tx, job.payload.orderId));
   */
  readonly prepare: Preparing;
  /**
   * Completes the job with a value, or with the next job of its chain, in one transaction with what the callback
   * writes through `tx`, where `connect` was given a source of transactions. The outcome is stored when the promise
   * resolves; it rejects with `JobAlreadyCompleted` where somebody else has ended the job.
   *
   * @example
   * return job.complete(({ continueWith }) => continueWith("ship", { orderId }));
   */
  readonly complete: Completing;
}
