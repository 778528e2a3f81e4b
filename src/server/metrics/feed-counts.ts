/**
 * Folds the feed into counters and histograms. The feed tells what happened in the whole cluster, whichever process did it.
 */
import type { EventOf, JobEvent } from "../../core/event.js";
import { type EndedState, isEnded } from "../../core/job.js";
import type { Catalog } from "./catalog.js";
import { JobTimes, type TimedJob } from "./job-times.js";
import type { LabelLimit } from "./label-limit.js";

/** What an event is counted with. */
interface TypeLabels {
  readonly service: string;
  readonly type: string;
}

type TypeLimit = LabelLimit<"service", "type">;

/** Counts events. */
export class FeedCounts {
  readonly #catalog: Catalog;
  readonly #types: TypeLimit;
  readonly #times: JobTimes;

  constructor(catalog: Catalog, types: TypeLimit, times = new JobTimes()) {
    this.#catalog = catalog;
    this.#types = types;
    this.#times = times;
  }

  /** Takes in the next event of the feed. */
  count(event: JobEvent): void {
    const labels = this.#types.of(event.service, event.type);
    this.#catalog.events.inc({ name: event.name });
    switch (event.name) {
      case "created":
        this.#catalog.jobsCreated.inc(labels);
        this.#created(event);
        break;
      case "unblocked":
        this.#waits(event, event.at);
        break;
      case "started":
        this.#started(event, labels);
        break;
      case "retry":
        this.#catalog.retries.inc({ ...labels, reason: event.error.reason });
        this.#tried(event, labels);
        this.#waits(event, event.runAt);
        break;
      case "released":
        this.#tried(event, labels);
        this.#waits(event, event.runAt);
        break;
      case "retried":
        this.#waits(event, event.runAt);
        break;
      case "completed":
      case "failed":
      case "cancelled":
      case "expired":
      case "skipped":
      case "stale":
      case "dead":
      case "unreachable":
        this.#tried(event, labels);
        this.#ended(event.jobId, event.name, labels);
        break;
      case "staleCompletionIgnored":
        this.#catalog.outcomesIgnored.inc(labels);
        break;
      case "deleted":
        this.#deleted(event, labels);
        break;
      case "keyBlocked":
      case "ready":
      case "acknowledged":
      case "progress":
      case "logged":
      case "emitted":
      case "heartbeat":
      case "cancelRequested":
      case "hookFailed":
      case "dismissed":
        break;
      default:
        event satisfies never;
    }
    if (isLapse(event)) this.#catalog.leasesLapsed.inc({ ...labels, outcome: event.name });
  }

  #created(event: EventOf<"created">): void {
    const isTimed = this.#times.set(event.jobId, {
      isRunning: false,
      since: event.state === "blocked" ? null : Math.max(event.runAt, event.at),
      isKeyed: event.key !== undefined,
    });
    if (!isTimed) this.#catalog.jobsUntracked.inc();
  }

  /** The job waits again; a job that the feed has not told of before is none that could be timed. */
  #waits({ jobId, at }: JobEvent, claimableAt: number): void {
    const isKeyed = this.#times.get(jobId)?.isKeyed ?? false;
    this.#times.set(jobId, { isRunning: false, since: Math.max(claimableAt, at), isKeyed });
  }

  #started({ jobId, at }: JobEvent, labels: TypeLabels): void {
    this.#catalog.triesStarted.inc(labels);
    const job = this.#times.get(jobId);
    const seconds = job && !job.isRunning ? secondsSince(job, at) : null;
    if (seconds !== null) {
      this.#catalog.jobWait.observe(labels, seconds);
      if (job?.isKeyed) this.#catalog.keyWait.observe(labels, seconds);
    }
    this.#times.set(jobId, { isRunning: true, since: at, isKeyed: job?.isKeyed ?? false });
  }

  /** A try has ended, if one was under way. */
  #tried({ jobId, at, name }: JobEvent, labels: TypeLabels): void {
    const job = this.#times.get(jobId);
    const seconds = job?.isRunning ? secondsSince(job, at) : null;
    if (seconds !== null) this.#catalog.tryDuration.observe({ ...labels, outcome: name }, seconds);
  }

  #ended(jobId: string, state: EndedState, labels: TypeLabels): void {
    this.#catalog.jobsEnded.inc({ ...labels, state });
    this.#times.end(jobId);
  }

  /**
   * A worker removes a job of a type that keeps nothing as soon as it has ended, and its log with it, perhaps before
   * anybody has read it. What then is left to tell of its life is this event.
   */
  #deleted({ jobId, actor, previousState }: JobEvent, labels: TypeLabels): void {
    const isKnown = this.#times.get(jobId) !== undefined;
    const wasSeen = this.#times.forget(jobId);
    const isDiscard = actor.startsWith("worker:");
    if (wasSeen || !isDiscard || previousState === null || !isEnded(previousState)) return;
    if (!isKnown) this.#catalog.jobsCreated.inc(labels);
    this.#catalog.jobsEnded.inc({ ...labels, state: previousState });
  }
}

function secondsSince({ since }: TimedJob, at: number): number | null {
  return since === null ? null : Math.max(at - since, 0) / 1_000;
}

/** Whether an event says that the lease of a worker has lapsed. */
function isLapse(event: JobEvent): boolean {
  switch (event.name) {
    case "retry":
    case "dead":
      return event.error.reason === "orphaned";
    case "stale":
      return event.cause === "lapsed";
    case "keyBlocked":
      return true;
    case "cancelled":
      return event.previousState === "active" && event.actor.startsWith("keeper:");
    default:
      return false;
  }
}
