/**
 * The engine contract: what Millrace asks of a store. Engines store and compare; they never decide.
 * Rules that depend on what is stored (admission, slots, verdicts of a claim) are functions of `core`
 * that an engine calls with the facts it has read.
 */
import type { Admission } from "../core/admission.js";
import type { CircleRefusal } from "../core/circle.js";
import type { JobEvent } from "../core/event.js";
import type { Job, JobKey, JobState, PolicyOutcome } from "../core/job.js";
import type { Lane } from "../core/order.js";
import type { Capabilities } from "./capabilities.js";
import type { StoreError } from "./errors.js";
import type { Queries, QueryName } from "./query.js";
import type { RecordWrite, StoredRecord, SwapOutcome } from "./record.js";
import type { CallerTransaction, SyncTransaction } from "./transaction.js";

/** The most changes, notes, renewals or claimed jobs that one call may carry. */
export const batchMax = 1_000;

/** What a change was decided on. Version 0 means that the job did not exist. */
export interface Expect {
  readonly version: number;
  readonly token?: number;
}

/** One event to append, with the records that must change together with it. */
export interface Change {
  readonly job: JobKey;
  readonly expect: Expect;
  readonly event: JobEvent;
  /**
   * The id was made for this create, so that no job can have had it before. Nobody has to look for a deleted one whose worker
   * has not let go; should the id be taken after all, the create is refused as any other.
   */
  readonly isFresh?: true;
  readonly records?: {
    readonly before: readonly RecordWrite[];
    readonly after: readonly RecordWrite[];
  };
  /**
   * What follows from the event, in order: what happens to a new job at once, the create of a continuation, and what
   * happens to that at once.
   * It is stored if and only if the event is. A continuation that a full key refuses, or would answer with
   * another job, is created and `skipped`, and what follows from it in turn is dropped.
   */
  readonly follow?: readonly Change[];
}

/** What became of a change. Only `appended` changed a job. */
export type AppendOutcome =
  | { readonly outcome: "appended"; readonly policy?: PolicyOutcome }
  /** The job has moved on, is under another token, or is gone: load it and decide again. */
  | { readonly outcome: "conflict" }
  /** A `created` event met a job with that id, or one that was deleted while its worker has not let go. */
  | { readonly outcome: "exists" }
  /** A record that had to change was not at the version that the writer saw. */
  | { readonly outcome: "record_conflict"; readonly current: StoredRecord | null }
  /**
   * A job was to wait for one that does not exist, or for a chain that waits for the job's own, or for so many behind one
   * another that nobody can tell.
   */
  | {
      readonly outcome: "bad_blocker";
      readonly reason: "missing" | CircleRefusal["reason"];
      readonly blockerId: string;
    }
  /** Storing this change failed, and this one alone. */
  | { readonly outcome: "faulted"; readonly error: StoreError }
  /** The key's policy refused a `created` event, or answered it with another job. */
  | {
      readonly outcome: "not_admitted";
      readonly admission: Extract<Admission, { outcome: "rejected" | "coalesced" }>;
    };

/** A job as folded from its log, with the log if it was asked for. */
export interface LoadedJob {
  readonly job: Job;
  readonly events?: readonly JobEvent[];
}

/** One place to claim from. */
export interface ClaimLane {
  readonly lane: Lane;
  readonly service: string;
  readonly queue: string;
  readonly type: string;
  /** How many jobs of this lane the worker can take. */
  readonly free: number;
  readonly leaseMs: number;
  /** Cluster-wide limits of jobs that hold a lease, or that held one and whose worker has not confirmed. */
  readonly typeMaxActive?: number;
  readonly queueMaxActive?: number;
}

/** A worker's wish for jobs. */
export interface ClaimAsk {
  readonly worker: string;
  readonly lanes: readonly ClaimLane[];
  /** The most jobs over all lanes. */
  readonly limit: number;
}

/** A job that is now active under a fresh token, as folded with its `started` event. */
export interface ClaimedJob {
  readonly job: Job;
  readonly leaseUntil: number;
}

/** What a claim gave, and when to ask again if nothing wakes the worker before. */
export interface ClaimAnswer {
  readonly jobs: readonly ClaimedJob[];
  /** The earliest time at which a waiting job of these lanes becomes due; `null` when none does. */
  readonly nextDueAt: number | null;
}

/** A job to hold: under the token of its lease, or without one wherever it stands. */
export interface JobHold {
  readonly job: JobKey;
  readonly token?: number;
}

/** The lease that a token stands for. */
export interface TokenLease extends JobHold {
  readonly token: number;
}

/** A lease to renew. */
export interface HeldLease extends TokenLease {
  readonly leaseMs: number;
}

/** What became of a held lease. `lost`: the job is under another token, waits again, or is gone. */
export type RenewOutcome =
  | { readonly outcome: "held"; readonly leaseUntil: number; readonly cancelRequested: boolean }
  | { readonly outcome: "ended"; readonly state: JobState }
  | { readonly outcome: "lost"; readonly state: JobState | null };

/** What the keeper looks for. */
export type DueAsk =
  /** Active jobs whose lease has lapsed and whose key is not blocked. */
  | { readonly kind: "lapsed"; readonly service: string }
  /** Unfinished jobs whose deadline has come. */
  | { readonly kind: "deadline"; readonly service: string }
  /** Blocked jobs that wait for nothing more, or of whose blockers one has ended badly. */
  | { readonly kind: "blocked"; readonly service: string }
  /** Ended jobs that retention lets go and that no unfinished job names as its blocker. */
  | {
      readonly kind: "retention";
      readonly service: string;
      readonly type: string;
      readonly state: JobState;
      readonly endedBefore: number;
    };

/** A job whose time may have come: a hint, append decides. */
export interface DueJob extends JobKey {
  readonly version: number;
  readonly token: number;
}

/** What a store does inside a synchronous transaction of the caller's: done when the call returns. */
export interface SyncStore {
  /** Loads jobs that are about to be changed: the transaction has its turn to write. */
  load(ids: readonly string[]): readonly (LoadedJob | null)[];
  append(changes: readonly Change[]): readonly AppendOutcome[];
  settle(changes: readonly Change[]): readonly AppendOutcome[];
  /** The same of the read model, which shows what the transaction has done. */
  query<Name extends QueryName>(name: Name, ask: Queries[Name]["ask"]): Queries[Name]["answer"];
}

/** Whether a reader of the feed waits for more: `live`, or ends with what is stored. */
export type FeedExtent = "live" | "stored";

/** An event with its place in the feed. */
export interface FeedItem {
  /** Opaque; give it to `tail` to go on after this event. */
  readonly cursor: string;
  readonly event: JobEvent;
}

/** How much a process's own side of the store has to do. An engine gives the numbers that it has. */
export interface EngineHealth {
  /** Connections to the server that are open, and how many of them are in use. */
  readonly connectionsOpen?: number;
  readonly connectionsUsed?: number;
  /** Calls that wait for a connection. */
  readonly connectionsWaitedFor?: number;
  /** Calls that wait for the batch under way before they go out as the next. */
  readonly writesQueued?: number;
  readonly readsQueued?: number;
}

/** What a wake-up hints at: something may be claimable, a job ended, or one was asked to stop. */
export type WakeTopic = "ready" | "ended" | "cancel";

export interface Engine {
  readonly url: string;
  readonly capabilities: Capabilities;
  /** How many claims a busy worker is to keep under way; two where nothing is said. */
  readonly claimsAtOnce?: number;

  /** Makes the store usable. Idempotent, and safe when many processes start at once. */
  provision(): Promise<void>;

  /** The store's clock in milliseconds, which leases, due times and deadlines use. */
  now(): number;

  /**
   * Folds jobs from their logs, in the order of the ids; `null` for one that does not exist.
   * Sees every append that this process was told of; others' may lag, and an append tells.
   * With a transaction, which is about to change them, it reads there, and sees what that has done. Where one transaction
   * writes at a time it waits for its turn.
   */
  load(
    ids: readonly string[],
    options?: { readonly history?: boolean; readonly tx?: CallerTransaction },
  ): Promise<readonly (LoadedJob | null)[]>;

  /**
   * Appends events. Each change is all or nothing at its expectation and independent of the others;
   * it is durable when the promise resolves. At most one change per job in a call.
   * A `created` event with a key is admitted under the key's policy by `core`'s `admit`,
   * and a job that it replaces is `skipped` in the same step. A `deleted` event removes the job and its log.
   * A `created` event with blockers is refused unless each of them exists, also by an earlier change of this call.
   * A shared store without transactions answers `exists` also for a `created` event that was decided before a job of its id was
   * deleted, as long as the `deleted` event lies in the log: it may be a late repetition of the very job.
   * Ending an active job from outside keeps its key and cap slots until its worker confirms or its lease lapses,
   * and the id of one that was deleted is taken for as long. What the keeper gives under a token says that the
   * lease of that token has lapsed, and is a `conflict` where it has been renewed.
   *
   * With a transaction of the caller's everything happens there, is durable when the caller commits and gone when
   * it rolls back; hints go out after the commit. An engine without the capability throws `TransactionsNotSupported`,
   * a transaction that cannot be used `TransactionRefused`, and one that must be run again `TransactionConflict`.
   */
  append(changes: readonly Change[], tx?: CallerTransaction): Promise<readonly AppendOutcome[]>;

  /**
   * Appends notes (progress, logs, emitted events, heartbeats, ignored outcomes). Durable; no version.
   * A note that the fold would ignore is not stored: `false`. An ignored outcome frees what its token still holds.
   */
  note(notes: readonly JobEvent[]): Promise<readonly boolean[]>;

  /**
   * Makes what claims from lanes need in the store, before a worker's first claim, and rejects where the store refuses it: such
   * a worker must not start, because it would be given nothing. Claims from other lanes are prepared as they come.
   * Only of a store that keeps something for each lane.
   */
  prepareClaims?(lanes: readonly Omit<ClaimLane, "free">[]): Promise<void>;

  /**
   * Hands out claimable jobs in order, at most the free places, within every cap. Each is durably `started`
   * under a fresh token and is nobody else's until it is settled or its lease lapses.
   * A job whose deadline has come is `expired` instead. Nothing is claimed from a paused queue.
   */
  claim(ask: ClaimAsk): Promise<ClaimAnswer>;

  /**
   * Does what time brings to a service: offers jobs whose time has come, and gives out slots that came free unnoticed.
   * Asked by the keeper that leads the service, and only of a store whose claims do not do this themselves.
   * Gives when there will be more to do, `null` when nothing is to come.
   */
  tend?(service: string): Promise<number | null>;

  /** Extends leases and the slots that go with them. */
  renew(held: readonly HeldLease[]): Promise<readonly RenewOutcome[]>;

  /**
   * Appends outcomes by version and token, then frees lease and slots and lets the next of the key in.
   * With a transaction of the caller's, as `append` has it.
   */
  settle(changes: readonly Change[], tx?: CallerTransaction): Promise<readonly AppendOutcome[]>;

  /**
   * Locks the lease of a token until the caller's transaction ends, so that nobody else ends the job before it does;
   * renewals and the reaper take a locked lease as held. Gives whether the lease stands.
   * Without a token a job that has not ended is locked wherever it stands: claims pass it over, and commands from outside
   * are refused as busy. Gives whether it is locked; one that ends or moves on meanwhile is not.
   * A store that lets only one transaction write locks nothing here, and the settlement or the append compares.
   */
  hold(hold: JobHold, tx: CallerTransaction): Promise<boolean>;

  /** The store inside a synchronous transaction. Throws like `append` with one. */
  within(tx: SyncTransaction): SyncStore;

  /** Reads records, in the order of the ids. */
  records(ids: readonly string[]): Promise<readonly (StoredRecord | null)[]>;

  /** Compares and sets each record on its own. */
  swap(writes: readonly RecordWrite[]): Promise<readonly SwapOutcome[]>;

  /** Jobs whose time has come, at most `limit`. */
  due(ask: DueAsk, limit: number): Promise<readonly DueJob[]>;

  /** Asks the read model. */
  query<Name extends QueryName>(
    name: Name,
    ask: Queries[Name]["ask"],
  ): Promise<Queries[Name]["answer"]>;

  /**
   * The feed of all events after a cursor (from the beginning without one), then live, until the signal aborts; with the
   * extent `stored` it ends as soon as nothing more is stored. No gaps; per-job order. Cursors are the
   * store's own: two readers may hold different ones for the same event, and events of several jobs that were stored at
   * the same moment may come in either order.
   */
  tail(cursor: string | null, signal: AbortSignal, extent?: FeedExtent): AsyncIterable<FeedItem>;

  /** The cursor of the newest event. */
  head(): Promise<string>;

  /** Calls back on hints, which may be lost or repeated, and may come from other processes. Gives the way to stop. */
  wake(topic: WakeTopic, on: () => void): () => void;

  /**
   * Forgets `deleted` events older than a time, a bounded number of them. Gives how many. The head never falls by it; a
   * store that tells its head by the newest event keeps that one.
   */
  prune(before: number): Promise<number>;

  /** The only service whose jobs may be seen, where the store was opened for one. */
  readonly scope?: string;

  /** How busy this process's side of the store is now. Costs nothing. */
  health?(): EngineHealth;

  /** How many events a read model that follows the log lies behind it. Asked only of a store that has such a one. */
  viewStatus?(): Promise<{ readonly lag: number }>;

  /** Carries out what was asked before, then lets go of the store. Idempotent. */
  close(): Promise<void>;
}
