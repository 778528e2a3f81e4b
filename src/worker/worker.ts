/**
 * A worker: claims jobs, carries them out and settles them, until it is stopped.
 * `attempt.ts` tells what happens to one job; this file puts the parts together.
 */
import type { Client } from "../client/client.js";
import { inTime, lastCall } from "../client/in-time.js";
import { keepAlive } from "../client/keep-alive.js";
import type { Runtime } from "../client/runtime.js";
import type { TransactionSource } from "../client/transactions/source.js";
import type { ClaimedJob } from "../engine/engine.js";
import { jobFields } from "../engine/logger.js";
import { type AttemptOutcome, runAttempt } from "./attempt.js";
import { Claims } from "./claims.js";
import { conclude } from "./conclude.js";
import { Discovery } from "./discovery.js";
import { Hold } from "./hold.js";
import { Holds } from "./holds.js";
import { WorkerHooks } from "./hooks.js";
import type { Handler, WorkerJob, WorkerLane } from "./lane.js";
import { Lanes } from "./lanes.js";
import { Leases } from "./leases.js";
import { MiddlewareStack } from "./middleware.js";
import { Notes } from "./notes.js";
import { Presence } from "./presence.js";
import { QueueLimits } from "./queue-limits.js";
import type { Router } from "./route.js";
import type { RunningJobParts } from "./running-job.js";
import { Settlements } from "./settlements.js";
import { tryTransactions } from "./trial.js";
import { triedOf } from "./tried.js";

export type { Handler, WorkerJob };

/** How long a handler that was asked to stop keeps its place, unless the options say otherwise. */
export const graceDefaultMs = 10_000;

/** How many outcomes for each of its places may wait for the store before the worker claims no more. */
const unsettledShareMax = 4;

/** What a worker is made of. */
export interface WorkerOptions {
  readonly client: Client;
  /** One entry for each type and version. */
  readonly jobs: readonly WorkerJob[];
  /** Handlers for types that no contract names. */
  readonly router?: Router;
  /** The middleware of the whole service; none by default. */
  readonly middleware?: MiddlewareStack;
  /** How many jobs of all types the process runs at once; the sum over the types by default. */
  readonly concurrency?: number;
  /** How long handlers that were asked to stop may take; 10 s by default. */
  readonly graceMs?: number;
  /** The version that the worker's presence names. */
  readonly packageVersion?: string;
  /** Where the transactions of handlers come from. */
  readonly transactions?: TransactionSource<unknown>;
}

/** Where a worker is in its life. It is started once and stopped once. */
export type WorkerState = "new" | "running" | "stopping" | "stopped";

/** Claims jobs and carries them out. */
export interface Worker {
  readonly state: WorkerState;
  /** How many jobs it has in hand: running, or not yet settled. */
  readonly active: number;
  /**
   * Announces the worker and begins to claim. Where the store refuses what claims need, or the transactions of handlers, it
   * rejects, and the worker is stopped. A worker whose transactions are refused later, because the start did not wait for that, says so
   * in its log and stops.
   */
  start(): Promise<void>;
  /**
   * Claims no more, asks running handlers to stop (`shutdown`) and waits for them, at most for the
   * grace time. A handler that throws gives its job back without spending a try; one that returns
   * completes it. The job of a handler that does neither in time is not given back, because it
   * still runs: its lease lapses and the keeper frees it.
   */
  stop(): Promise<void>;
}

/** Makes a worker. Throws when two handlers are given for the same version of a type. */
export function createWorker(options: WorkerOptions): Worker {
  return new JobWorker(options);
}

class JobWorker implements Worker {
  readonly #runtime: Runtime;
  readonly #parts: RunningJobParts;
  readonly #lanes: Lanes;
  readonly #concurrency: number | undefined;
  readonly #graceMs: number;
  readonly #holds: Holds;
  readonly #leases: Leases;
  readonly #notes: Notes;
  readonly #settlements: Settlements;
  readonly #hooks: WorkerHooks;
  readonly #claims: Claims;
  readonly #limits: QueueLimits;
  readonly #presence: Presence;
  readonly #discovery: Discovery | undefined;
  #state: WorkerState = "new";
  #running = 0;
  #isAnnounced = false;
  #onDrained: (() => void) | undefined;
  #stopListening: (() => void) | undefined;
  #stopped: Promise<void> | undefined;

  constructor(options: WorkerOptions) {
    const { client, graceMs = graceDefaultMs, packageVersion = "unknown", router } = options;
    const { runtime } = client;
    const lanes = new Lanes(options.jobs);
    this.#lanes = lanes;
    this.#runtime = runtime;
    this.#graceMs = graceMs;
    this.#concurrency = options.concurrency;
    this.#holds = new Holds({ runtime, graceMs, onAbandoned: (hold) => this.#freePlace(hold) });
    const renewals = [...lanes].map((lane) => lane.renewMs);
    const renewMs = Math.min(...renewals, router?.renewMs ?? Number.POSITIVE_INFINITY);
    this.#leases = new Leases(runtime, this.#holds, renewMs);
    this.#notes = new Notes(runtime, this.#holds);
    this.#hooks = new WorkerHooks(runtime);
    this.#settlements = new Settlements({
      runtime,
      onStored: (hold, job, event) => this.#hooks.stored(hold, job, event),
      onSent: () => this.#claims.poke(),
      onOver: (hold) => this.#over(hold),
    });
    this.#parts = {
      client,
      notes: this.#notes,
      leases: this.#leases,
      settlements: this.#settlements,
      hooks: this.#hooks,
      transactions: options.transactions,
      middleware: options.middleware ?? new MiddlewareStack(),
    };
    this.#limits = new QueueLimits(runtime, lanes);
    this.#claims = new Claims({
      runtime,
      lanes,
      limits: this.#limits,
      free: () => Math.min(this.#places() - this.#running, this.#unsettledFree()),
      onClaimed: (lane, claimed, askedAt) => this.#take(lane, claimed, askedAt),
    });
    this.#presence = new Presence({
      runtime,
      lanes,
      packageVersion,
      concurrency: () => this.#places(),
    });
    const onFound = () => this.#found();
    this.#discovery = router && new Discovery({ client, lanes, router, onFound });
  }

  get state(): WorkerState {
    return this.#state;
  }

  get active(): number {
    return this.#running + this.#settlements.unsettled;
  }

  async start(): Promise<void> {
    if (this.#state !== "new") {
      throw new Error(`The worker is ${this.#state}; a worker is started once. Make a new one.`);
    }
    this.#state = "running";
    await this.#discovery?.start();
    try {
      const prepared = this.#runtime.engine.prepareClaims?.([...this.#lanes].map(({ ask }) => ask));
      const { transactions } = this.#parts;
      const tried =
        transactions &&
        tryTransactions(this.#runtime, transactions, (refusal) => this.#giveUp(refusal));
      await Promise.all([tried, prepared, this.#presence.start(), this.#limits.start()]);
    } catch (fault) {
      await this.stop();
      throw fault;
    }
    this.#isAnnounced = true;
    if (this.#state !== "running") return;
    this.#stopListening = this.#runtime.engine.wake("cancel", () => this.#leases.hint());
    this.#claims.start();
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  /** Handlers cannot use their transactions, which the trial has found after the start: their jobs would fail until they are dead. */
  #giveUp(refusal: Error): void {
    if (this.#state !== "running") return;
    const message = `The transactions of handlers cannot be used: ${refusal.message} The worker stops.`;
    this.#runtime.logger.error({ error: refusal }, message);
    // How a stop failed is told to whoever stops the service.
    this.stop().catch(() => {});
  }

  async #stop(): Promise<void> {
    const wasStarted = this.#state === "running";
    this.#state = "stopping";
    const release = keepAlive();
    try {
      if (wasStarted) await this.#drain();
    } finally {
      this.#stopListening?.();
      this.#leases.stop();
      this.#holds.stop();
      release();
      this.#state = "stopped";
    }
  }

  async #drain(): Promise<void> {
    const { clock, logger } = this.#runtime;
    const beganAt = clock.monotonic();
    if (this.#running > 0) {
      logger.info({ running: this.#running }, "The worker stops and waits for its handlers.");
    }
    for (const hold of this.#holds) this.#holds.abort(hold, "shutdown");
    await this.#discovery?.stop();
    const claim = "a claim is under way: the store does not answer";
    await this.#inTime(this.#claims.stop(), beganAt + this.#graceMs, claim);
    // Handlers that do not stop are abandoned after the grace time, which ends this wait, too.
    if (this.#running > 0) {
      await new Promise<void>((resolve) => {
        this.#onDrained = resolve;
      });
    }
    // A store that is away is waited for once, not for each thing that it should be told.
    const endsAt = clock.monotonic() + lastCall(clock, beganAt, this.#graceMs);
    const outcomes = "outcomes are not stored: the store does not answer";
    await this.#inTime(this.#settlements.idle(), endsAt, outcomes);
    await this.#inTime(this.#hooks.idle(), endsAt, "hooks have not returned");
    const presence = "its presence is not withdrawn: the store does not answer";
    await this.#inTime(this.#presence.stop(), endsAt, presence);
  }

  /** A store or a hook that does not answer must not hold up the end of the process for long. */
  async #inTime(work: Promise<void>, endsAt: number, otherwise: string): Promise<void> {
    const { clock, logger } = this.#runtime;
    if (await inTime(clock, work, Math.max(endsAt - clock.monotonic(), 0))) return;
    const fields = { outcomes: this.#settlements.unsettled };
    logger.error(fields, `The worker stops while ${otherwise}.`);
  }

  /** Begins the attempt of a claimed job. What a claim brings after the stop goes back unseen. */
  #take(lane: WorkerLane, claimed: ClaimedJob, askedAt: number): void {
    const { clock, engine } = this.#runtime;
    const { job, leaseUntil } = claimed;
    const now = clock.monotonic();
    const deadlineAt =
      job.deadline === undefined ? Number.POSITIVE_INFINITY : now + job.deadline - engine.now();
    const timeoutAt = now + lane.settings.timeoutMs;
    const hold = new Hold(job, lane, askedAt, leaseUntil, timeoutAt, deadlineAt);
    lane.running++;
    this.#running++;
    this.#holds.add(hold);
    this.#leases.watch();
    if (this.#state === "running") this.#attempt(hold);
    else this.#giveBack(hold);
  }

  #attempt(hold: Hold): void {
    const recorder = this.#runtime.telemetry?.recorder();
    const outcome = recorder
      ? recorder.process(
          hold.job,
          async () => runAttempt(hold, this.#parts),
          (tried) => triedOf(hold, tried),
        )
      : runAttempt(hold, this.#parts);
    if (outcome instanceof Promise) void outcome.then((later) => this.#finish(hold, later));
    else this.#finish(hold, outcome);
  }

  #giveBack(hold: Hold): void {
    hold.abort("shutdown");
    this.#finish(hold, { kind: "given_back" });
  }

  /** The handler has returned: hands the outcome over and frees the place. */
  #finish(hold: Hold, outcome: AttemptOutcome): void {
    if (hold.abandoned) this.#reportReturn(hold, outcome);
    else this.#freePlace(hold);
    if (outcome.kind === "settled") {
      this.#holds.remove(hold);
      this.#claims.poke();
      return;
    }
    hold.phase = "settling";
    this.#settlements.add(hold, conclude(hold, outcome, this.#runtime));
  }

  #freePlace(hold: Hold): void {
    hold.lane.running--;
    this.#running--;
    if (hold.abandoned) this.#claims.poke();
    if (this.#running === 0) this.#onDrained?.();
  }

  #reportReturn(hold: Hold, outcome: AttemptOutcome): void {
    const fields = { ...jobFields(hold.job), outcome: outcome.kind };
    this.#runtime.logger.warn(fields, "A handler that had been abandoned has returned.");
  }

  #over(hold: Hold): void {
    if (hold.phase === "settling") this.#holds.remove(hold);
    if (this.#unsettledFree() === 1) this.#claims.poke();
  }

  #unsettledFree(): number {
    return unsettledShareMax * this.#places() - this.#settlements.unsettled;
  }

  /** How many jobs of all types run at once. Routes may add lanes at any time. */
  #places(): number {
    return this.#concurrency ?? this.#lanes.concurrency;
  }

  /** Lanes of routes were found. */
  #found(): void {
    if (!this.#isAnnounced) return;
    void this.#presence.renew();
    this.#claims.poke();
  }
}
