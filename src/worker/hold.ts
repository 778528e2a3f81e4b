/**
 * A worker's hold on one job: the job as it was claimed, the lease under its token,
 * and the signal through which its handler hears that it should stop.
 */
import type { Job, JobKey } from "../core/job.js";
import { type AbortReason, type JobAborted, jobAborted } from "./abort.js";
import type { WorkerLane } from "./lane.js";

/** The share of a lease after which a worker no longer trusts a hold that it could not renew. */
const fenceShare = 2 / 3;

/** Times with `At` are on the worker's monotonic clock, unless they say otherwise. */
export class Hold {
  /** Whether the handler runs, the outcome is being stored, is stored while the handler still runs, or all is done. */
  phase: "running" | "settling" | "settled" | "over" = "running";
  /** What the handler's own call of `complete` came to, once it has called it. */
  completion: Promise<unknown> | undefined;
  /** Whether that call is under way. */
  isCompleting = false;
  /** Why the continuation that the handler asked for can never be stored, if that is so. */
  lastingFault: Error | undefined;
  /** Whether the handler has come to its first await, after which it can no longer choose to be atomic. */
  isUnderWay = false;
  /** Rolls back the transaction that the handler has open, if it has one. */
  letGo: (() => Promise<void>) | undefined;
  /** Whether a transaction of the handler's locks the lease, or has, so that a cancel may lie beside the job. */
  locksLease = false;
  /** Why the job is to be cancelled, where the request could not be appended to it. */
  cancelReason: string | undefined;
  /** The store says that the job is no longer this worker's, or the worker cannot be sure that it is. */
  isLost = false;
  /** The handler ignored its signal for longer than the grace time, and its place was given away. */
  abandoned = false;
  /** The last renewal failed because of the store. */
  renewalFailed = false;
  /** Notes that are on their way to the store. */
  notesUnderWay = 0;
  /** Called when the last of them has arrived. */
  whenQuiet: (() => void) | undefined;
  /** When a handler that was asked to stop is abandoned. */
  abandonAt = Number.POSITIVE_INFINITY;
  #aborted: JobAborted | undefined;
  #controller: AbortController | undefined;

  constructor(
    readonly job: Job,
    readonly lane: WorkerLane,
    /** When the claim or the last successful renewal was asked for. */
    public renewedAt: number,
    /** Until when the lease holds, on the store's clock. */
    public leaseUntil: number,
    readonly timeoutAt: number,
    readonly deadlineAt: number,
  ) {}

  get key(): JobKey {
    return { service: this.job.service, type: this.job.type, id: this.job.id };
  }

  /** When the worker stops trusting the hold. */
  get fenceAt(): number {
    return this.renewedAt + this.lane.settings.leaseMs * fenceShare;
  }

  /** When the lease has lapsed for sure, as far as this worker can tell. */
  get lapsesAt(): number {
    return this.renewedAt + this.lane.settings.leaseMs;
  }

  /** Why the handler was asked to stop, if it was. */
  get aborted(): JobAborted | undefined {
    return this.#aborted;
  }

  /** The handler's signal, made when somebody first asks for it because most handlers never do. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#aborted) this.#controller.abort(this.#aborted);
    }
    return this.#controller.signal;
  }

  /** Asks the handler to stop. Only the first reason counts. */
  abort(reason: AbortReason): void {
    if (this.#aborted) return;
    this.#aborted = jobAborted(this.job.id, reason);
    this.#controller?.abort(this.#aborted);
  }
}
