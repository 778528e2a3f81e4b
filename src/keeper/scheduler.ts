/**
 * The scheduler: while this keeper leads, it makes the jobs of schedules when their instants come. The id of a job follows
 * from its instant, and the schedule's record, which moves on with the job's creation, says up to where instants were
 * decided about. So each is fired once, whoever leads, however many do, and wherever clocks go.
 *
 * Jobs that are signed or encrypted need keys. A leader without them leaves their instants alone, and a keeper that has
 * some makes those that it finds left, although it does not lead.
 */
import type { Client } from "../client/client.js";
import { prepareCreate } from "../client/prepare.js";
import {
  firedOptions,
  lacksKeys,
  needsKeys,
  schedulePayload,
  scheduleTarget,
} from "../client/schedule-jobs.js";
import {
  listSchedules,
  type PlacedSchedule,
  type SkipReason,
  type StoredSchedule,
  scheduleWrite,
} from "../client/stored-schedule.js";
import { createChange } from "../client/submit.js";
import { cronReader } from "../contract/cron.js";
import { schedulesMax } from "../contract/schedules.js";
import { isEnded } from "../core/job.js";
import { nextInstant, planDue, scheduledJobId } from "../core/schedule.js";
import type { AppendOutcome } from "../engine/engine.js";
import { isStoreError, StoreFailed } from "../engine/errors.js";

/** How many schedules are fired at once. */
const firedTogetherMax = 50;

/** How soon it looks again at a schedule that others have changed meanwhile. */
const changedMs = 50;

/** How many times as long it waits while there are no schedules at all, because most services have none. */
const idleShare = 5;

/** How long the leader has before a keeper with keys takes an instant for left. */
const leftMs = 2_000;

/** How often in a row the store may fail on a schedule's jobs before its instants are passed over. */
const failuresMax = 5;

/** On whose behalf instants are fired. */
interface Round {
  readonly mayGoOn: () => boolean;
  /** Whether it takes what a leader without keys has left, and nothing else. */
  readonly onlyLeft?: boolean;
}

/** Fires the schedules of a service. */
export class Scheduler {
  readonly #client: Client;
  readonly #lookMs: number;
  readonly #leads: () => boolean;
  /** The schedules of which was said that others have to fire them. */
  readonly #left = new Set<string>();
  /** How often in a row jobs of a schedule could not be made. */
  readonly #failures = new Map<string, number>();
  #callOff: (() => void) | undefined;
  #looking: Promise<void> | null = null;
  #isFailing = false;
  #isStopped = false;
  #hasSchedules = false;

  /** It looks by itself every `lookMs`, and earlier when an instant comes. */
  constructor(client: Client, lookMs: number, leads: () => boolean) {
    this.#client = client;
    this.#lookMs = lookMs;
    this.#leads = leads;
  }

  /** Looks now, and goes on as long as this process leads, or has keys that a leader may lack. */
  start(): void {
    this.#callOff?.();
    if (this.#isStopped || this.#looking !== null) return;
    this.#looking = this.#look().finally(() => {
      this.#looking = null;
    });
  }

  /** Looks no more, and waits for the look that is under way. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#callOff?.();
    await this.#looking;
  }

  /** Fires what has come due. Gives when the next instant comes, as far as is known now; `null` when none does. */
  async fire(round: Round): Promise<number | null> {
    const { runtime } = this.#client;
    await runtime.encryptionDemand?.look();
    const placed = await listSchedules(runtime);
    const taken = placed.filter(({ schedule }) => !round.onlyLeft || needsKeys(runtime, schedule));
    this.#hasSchedules = taken.length > 0;
    const enabled = taken.filter(({ schedule }) => schedule.enabled && !this.#isLeft(schedule));
    let nextAt: number | null = null;
    let fault: { readonly error: unknown } | null = null;
    for (let start = 0; start < enabled.length && round.mayGoOn(); start += firedTogetherMax) {
      const some = enabled.slice(start, start + firedTogetherMax);
      const nexts = await Promise.allSettled(some.map((each) => this.#fireOne(each, round)));
      for (const next of nexts) {
        if (next.status === "rejected") fault ??= { error: next.reason };
        else if (next.value !== null) nextAt = Math.min(next.value, nextAt ?? next.value);
      }
    }
    // What is wrong with one schedule must not reach the others: it is told once all have had their turn.
    if (fault !== null) throw fault.error;
    return nextAt;
  }

  async #look(): Promise<void> {
    const { engine, clock, logger, vault, signing } = this.#client.runtime;
    const onlyLeft = !this.#leads();
    if (onlyLeft && vault === undefined && !signing?.canSign) return;
    const mayGoOn = onlyLeft ? () => !this.#isStopped : this.#leads;
    let delayMs = this.#lookMs;
    try {
      const nextAt = await this.fire({ mayGoOn, onlyLeft });
      if (!this.#hasSchedules) delayMs *= idleShare;
      if (nextAt !== null) delayMs = Math.min(Math.max(nextAt - engine.now(), 0), delayMs);
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing)
        logger.error({ error }, "Schedules could not be fired; it is tried again.");
      this.#isFailing = true;
    }
    if (!this.#isStopped) this.#callOff = clock.after(delayMs, () => this.start());
  }

  /** Whether a schedule has to wait for a process that has its keys. */
  #isLeft(schedule: StoredSchedule): boolean {
    const { runtime } = this.#client;
    const { name } = schedule;
    if (!lacksKeys(runtime, schedule)) {
      this.#left.delete(name);
      return false;
    }
    if (this.#left.size < schedulesMax && !this.#left.has(name)) {
      this.#left.add(name);
      const message = "A schedule is left to a process that holds the keys of its jobs.";
      runtime.logger.warn({ service: runtime.service, schedule: name }, message);
    }
    return true;
  }

  /** Gives when to look at this schedule again. */
  async #fireOne(
    placed: PlacedSchedule,
    { mayGoOn, onlyLeft = false }: Round,
  ): Promise<number | null> {
    const { engine } = this.#client.runtime;
    const lagMs = onlyLeft ? leftMs : 0;
    const now = engine.now() - lagMs;
    const plan = planDue(placed.schedule, now, cronReader);
    let at: PlacedSchedule | null = placed;
    for (const instant of plan?.fire ?? []) {
      if (at === null || !mayGoOn()) return engine.now() + changedMs;
      at = await this.#fireInstant(at, instant);
    }
    if (plan !== null && plan.missed !== null && at !== null) {
      const missed = skipped(at.schedule, plan.missed, "missed");
      at = await this.#write(at, { ...missed, decidedUntil: plan.until });
    }
    // Somebody else has changed it: the next look sees how.
    if (at === null) return engine.now() + changedMs;
    const { timing, decidedUntil } = at.schedule;
    const next = nextInstant(timing, Math.max(now, decidedUntil), cronReader);
    return next === null ? null : next + lagMs;
  }

  /** Makes the job of an instant, or passes it over. Gives the schedule after it; `null` if others have changed it. */
  async #fireInstant(placed: PlacedSchedule, instant: number): Promise<PlacedSchedule | null> {
    const { schedule } = placed;
    const { name } = schedule;
    try {
      const after = await this.#makeJob(placed, instant);
      this.#failures.delete(name);
      return after;
    } catch (error) {
      if (!this.#isHopeless(name, error)) throw error;
      const message = "A schedule makes no job that can be stored; its instant is passed over.";
      this.#client.runtime.logger.error({ schedule: name, instant, error }, message);
      return this.#write(placed, skipped(schedule, instant, "refused"));
    }
  }

  /** Whether a job that could not be made never will be. A store that is away or busy says nothing of the job. */
  #isHopeless(name: string, error: unknown): boolean {
    if (isStoreError(error) && !(error instanceof StoreFailed)) return false;
    const failures = (this.#failures.get(name) ?? 0) + 1;
    if (this.#failures.size >= schedulesMax) this.#failures.clear();
    this.#failures.set(name, failures);
    return failures >= failuresMax;
  }

  async #makeJob(placed: PlacedSchedule, instant: number): Promise<PlacedSchedule | null> {
    const { schedule } = placed;
    if (schedule.overlap === "skip" && (await this.#isBusy(schedule)))
      return this.#write(placed, skipped(schedule, instant, "overlap"));
    const { engine, service, logger } = this.#client.runtime;
    const jobId = scheduledJobId(service, schedule.name, instant);
    const fired = { ...schedule, decidedUntil: instant, lastFired: { at: instant, jobId } };
    const create = await this.#create(schedule, instant, jobId);
    if (create instanceof Error) {
      logger.error({ schedule: schedule.name, error: create }, "A schedule makes no valid job.");
      return this.#write(placed, skipped(schedule, instant, "refused"));
    }
    // The record follows the job: should this process end between them, whoever comes next meets the job.
    const write = scheduleWrite(service, fired, placed.version);
    const change = { ...createChange(create), records: { before: [], after: [write] } };
    const [answer] = await engine.append([change]);
    return this.#after(placed, fired, answer);
  }

  async #after(
    placed: PlacedSchedule,
    fired: StoredSchedule,
    answer: AppendOutcome | undefined,
  ): Promise<PlacedSchedule | null> {
    const { schedule } = placed;
    switch (answer?.outcome) {
      case "appended":
        return { schedule: fired, version: placed.version + 1 };
      case "exists":
      case "conflict":
        return this.#write(placed, fired);
      case "not_admitted":
        return this.#write(placed, skipped(schedule, fired.decidedUntil, "key_full"));
      case "record_conflict":
        return null;
      case "faulted":
        throw answer.error;
      case "bad_blocker":
      case undefined:
        throw new Error(`A scheduled job met ${answer?.outcome}.`);
    }
  }

  /** The create counts as decided at its instant, so that a store knows it for the same one if it comes again. */
  async #create(schedule: StoredSchedule, instant: number, id: string) {
    const client = this.#client;
    const { instance } = client.runtime;
    const payload = schedulePayload(client.runtime, schedule);
    if (payload instanceof Error) return payload;
    const target = await scheduleTarget(client, schedule);
    if (target instanceof Error) return target;
    const options = { ...firedOptions(schedule, instant), id };
    const origin = { at: instant, actor: `keeper:${instance}` } as const;
    return prepareCreate(client, target, payload, options, origin);
  }

  async #isBusy({ lastFired }: StoredSchedule): Promise<boolean> {
    if (lastFired === undefined) return false;
    const [loaded] = await this.#client.runtime.engine.load([lastFired.jobId]);
    return loaded ? !isEnded(loaded.job.state) : false;
  }

  async #write(placed: PlacedSchedule, schedule: StoredSchedule): Promise<PlacedSchedule | null> {
    const { engine, service } = this.#client.runtime;
    const [outcome] = await engine.swap([scheduleWrite(service, schedule, placed.version)]);
    return outcome?.swapped ? { schedule, version: outcome.version } : null;
  }
}

function skipped(schedule: StoredSchedule, at: number, reason: SkipReason): StoredSchedule {
  return { ...schedule, decidedUntil: at, lastSkipped: { at, reason } };
}
