/**
 * The keeper: tends the jobs of a service that nobody else tends. Every started service carries
 * one and one of them leads. It is never on the path of a claim or a settlement: while none runs,
 * what waits for it waits.
 */
import { createClient } from "../client/client.js";
import type { Runtime } from "../client/runtime.js";
import type { ServiceContract } from "../contract/definition.js";
import { recordId } from "../engine/record.js";
import { honourCancels } from "./canceller.js";
import type { DutyDone, DutyRound } from "./duty.js";
import { EndHooks } from "./end-hooks.js";
import { hooksDone } from "./feed-place.js";
import { isFit } from "./fitness.js";
import { expireOverdue } from "./janitor.js";
import { Leadership } from "./leadership.js";
import {
  discardsAny,
  discardUnkept,
  prune,
  type RetentionRules,
  retentionRules,
} from "./pruner.js";
import { reap } from "./reaper.js";
import { resolve } from "./resolver.js";
import { Scheduler } from "./scheduler.js";
import { Tickets } from "./tickets.js";
import { WebhookDuty } from "./webhooks.js";

/** How often a keeper does what. */
export interface KeeperTimings {
  /** How long a leader may be silent before another takes over. */
  readonly ttlMs?: number;
  /** How often a leader renews its leadership. */
  readonly renewMs?: number;
  /** How often lapsed leases, deadlines, blocked jobs and schedules are looked for, and the outbox is looked into. */
  readonly tickMs?: number;
  /** How soon after another the ends of jobs make the keeper look for jobs that waited for them. */
  readonly resolveMs?: number;
  /** How often retention is applied. */
  readonly pruneMs?: number;
  /** How long the trace of a removed job stays in the feed. */
  readonly tombstoneMs?: number;
}

/** What holds where the timings say nothing. */
export const keeperDefaults: Required<KeeperTimings> = {
  ttlMs: 5_000,
  renewMs: 1_500,
  tickMs: 1_000,
  resolveMs: 100,
  pruneMs: 60_000,
  tombstoneMs: 7 * 24 * 60 * 60 * 1_000,
};

/**
 * When a new leader applies retention first: it has waited for longer, and what runs out by the second has not. Retention
 * asks for counts, and a leader that has just started may have a burst of work before it.
 */
const pruneFirstMs = 15_000;

/** After how many rounds in a row that failed, where others could do better, a leader gives way. */
const unfitRoundsMax = 3;

/** How many times as long as a look for blocked jobs took the keeper waits before the next. */
const resolvePauseShare = 5;

/** What a keeper is made of. */
export interface KeeperOptions extends KeeperTimings {
  readonly runtime: Runtime;
  readonly contract: ServiceContract;
}

/** Tends the jobs of a service, while it leads. */
export interface Keeper {
  readonly isLeader: boolean;
  /** Stands as a candidate; resolves after the first look, whoever leads. */
  start(): Promise<void>;
  /** Ends the duty under way and steps down. */
  stop(): Promise<void>;
  /** Does one round of all duties now, whoever leads, retention included. */
  tick(): Promise<void>;
}

/** Makes a keeper. */
export function createKeeper(options: KeeperOptions): Keeper {
  return new ServiceKeeper(options);
}

class ServiceKeeper implements Keeper {
  readonly #runtime: Runtime;
  readonly #timings: Required<KeeperTimings>;
  readonly #rules: RetentionRules;
  readonly #discards: boolean;
  readonly #leadership: Leadership;
  readonly #tickets: Tickets;
  readonly #endHooks: EndHooks;
  readonly #scheduler: Scheduler;
  readonly #webhooks: WebhookDuty;
  #isStopped = false;
  #unfitRounds = 0;
  /** What has gone wrong since all went well; each kind of it is told once. */
  readonly #told = new Set<string>();
  #pruneAt = Number.POSITIVE_INFINITY;
  #callOff: (() => void) | undefined;
  #callOffResolve: (() => void) | undefined;
  #stopHints: (() => void) | undefined;
  #resolvedAt = Number.NEGATIVE_INFINITY;
  #round: Promise<void> = Promise.resolve();
  #started: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;

  constructor({ runtime, contract, ...timings }: KeeperOptions) {
    this.#runtime = runtime;
    this.#timings = { ...keeperDefaults, ...timings };
    this.#rules = retentionRules(contract);
    this.#discards = discardsAny(this.#rules);
    const { ttlMs, renewMs } = this.#timings;
    this.#leadership = new Leadership({
      runtime,
      ttlMs,
      renewMs,
      record: recordId.keeper(runtime.service),
      does: "keeps the service",
      isFit: () => isFit(runtime),
      onGained: () => {
        this.#unfitRounds = 0;
        this.#pruneAt = runtime.clock.monotonic() + Math.min(pruneFirstMs, this.#timings.pruneMs);
        this.#schedule(0);
        this.#tickets.start();
        this.#scheduler.start();
      },
    });
    this.#endHooks = new EndHooks({ runtime, contract, ttlMs, renewMs });
    this.#tickets = new Tickets(runtime, this.#mayGoOn);
    const client = createClient(runtime, contract);
    this.#scheduler = new Scheduler(client, this.#timings.tickMs, this.#mayGoOn);
    this.#webhooks = new WebhookDuty(runtime, this.#timings.tickMs, this.#mayGoOn);
  }

  get isLeader(): boolean {
    return this.#leadership.isHeld;
  }

  async start(): Promise<void> {
    if (this.#isStopped) throw new Error("The keeper was stopped; make a new one.");
    this.#stopHints ??= this.#runtime.engine.wake("ended", () => this.#onEnded());
    this.#started ??= this.#endHooks
      .start()
      .then(() => this.#leadership.start())
      .then(() => {
        if (!this.isLeader) this.#scheduler.start();
      });
    await this.#started;
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  tick(): Promise<void> {
    const round = { runtime: this.#runtime, mayGoOn: () => true, onFault: this.#onFault };
    return this.#oneAtATime(async () => {
      await this.#endHooks.round();
      await this.#scheduler.fire(round);
      await this.#duties(round, true);
      await this.#endHooks.round();
    });
  }

  async #stop(): Promise<void> {
    this.#isStopped = true;
    this.#callOff?.();
    this.#callOffResolve?.();
    this.#stopHints?.();
    await this.#tickets.stop();
    await this.#endHooks.stop();
    await this.#scheduler.stop();
    await this.#round;
    await this.#webhooks.stop();
    await this.#leadership.stop();
  }

  #schedule(delayMs: number): void {
    this.#callOff?.();
    if (this.#isStopped) return;
    this.#callOff = this.#runtime.clock.after(delayMs, () => {
      this.#callOff = undefined;
      void this.#oneAtATime(() => this.#lead());
    });
  }

  /** A job has ended, and others may have waited for it. Many ends in a short time cause one look. */
  #onEnded(): void {
    if (this.#callOffResolve !== undefined || !this.#mayGoOn()) return;
    const { clock } = this.#runtime;
    const waitMs = Math.max(this.#resolvedAt + this.#timings.resolveMs - clock.monotonic(), 0);
    this.#callOffResolve = clock.after(waitMs, () => {
      void this.#oneAtATime(() => this.#resolve());
    });
  }

  /** A look that took long is not soon followed by another, so that many blocked jobs do not keep the store busy. */
  async #resolve(): Promise<void> {
    const { clock, logger } = this.#runtime;
    this.#callOffResolve = undefined;
    if (!this.#mayGoOn()) return;
    const startedAt = clock.monotonic();
    try {
      await resolve({ runtime: this.#runtime, mayGoOn: this.#mayGoOn, onFault: this.#onFault });
    } catch (error) {
      // The next round of all duties tries again, and says so if it fails, too.
      logger.warn({ error }, "The keeper could not look for blocked jobs.");
    }
    const endedAt = clock.monotonic();
    this.#resolvedAt = endedAt + (endedAt - startedAt) * resolvePauseShare;
  }

  readonly #mayGoOn = () => !this.#isStopped && this.#leadership.isHeld;

  /** Tells of jobs that the store fails at; they are found again in the next round. */
  readonly #onFault = (fault: unknown) =>
    this.#tell(fault, "The keeper could not move on every job that was due; it keeps trying.");

  #tell(error: unknown, message: string): void {
    const kind = `${error instanceof Error ? error.name : ""} ${message}`;
    if (!this.#told.has(kind)) this.#runtime.logger.error({ error }, message);
    this.#told.add(kind);
  }

  /** One round as the leader. Who leads no longer stops here, until leadership is gained again. */
  async #lead(): Promise<void> {
    const mayGoOn = this.#mayGoOn;
    if (!mayGoOn()) return;
    const { clock } = this.#runtime;
    let isWell = true;
    const onFault = (fault: unknown) => {
      isWell = false;
      this.#onFault(fault);
    };
    try {
      const prunes = clock.monotonic() >= this.#pruneAt;
      const done = await this.#duties({ runtime: this.#runtime, mayGoOn, onFault }, prunes);
      if (prunes && !done.isFull) this.#pruneAt = clock.monotonic() + this.#timings.pruneMs;
      if (isWell) this.#told.clear();
      this.#unfitRounds = 0;
    } catch (error) {
      this.#tell(error, "The keeper failed; it keeps trying.");
      await this.#giveWayIfUnfit();
    }
    this.#schedule(this.#timings.tickMs);
  }

  /** Whose view is away or does not catch up lets others try, whose views may be better. */
  async #giveWayIfUnfit(): Promise<void> {
    const { logger, instance } = this.#runtime;
    const couldBeBetter = !(await isFit(this.#runtime).catch(() => true));
    this.#unfitRounds = couldBeBetter ? this.#unfitRounds + 1 : 0;
    if (this.#unfitRounds < unfitRoundsMax) return;
    this.#unfitRounds = 0;
    logger.warn({ instance }, "The keeper gives way to another process, whose view may be better.");
    await this.#leadership.giveWay();
  }

  /** Gives what pruning left undone, so that it goes on in the next round. */
  async #duties(round: DutyRound, prunes: boolean): Promise<DutyDone> {
    const removes = prunes || this.#discards;
    const readUntil = await this.#webhooks.tend(removes);
    const doneUntil = removes ? await hooksDone(this.#runtime) : () => readUntil;
    const retention = {
      ...this.#rules,
      readUntil,
      mayGoUntil: (type: string) => Math.min(doneUntil(type), readUntil),
    };
    // Together, so that a store that batches looks once for all of them.
    await Promise.all([
      reap(round),
      expireOverdue(round),
      resolve(round),
      discardUnkept(round, retention),
      this.#tickets.tend(),
      honourCancels(round),
    ]);
    if (!prunes) return { changed: 0, isFull: false };
    return await prune(round, retention, this.#timings.tombstoneMs);
  }

  #oneAtATime(work: () => Promise<void>): Promise<void> {
    const round = this.#round.then(work);
    this.#round = round.catch(() => {});
    return round;
  }
}
