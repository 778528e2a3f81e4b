/**
 * End hooks: one process of those that know them follows the feed and calls `onEnd` for every end of a job, and
 * `onSuccess` or `onFail` where no worker wrote the end. How far it has come is kept in a record, so that who leads next
 * goes on there: an end is never forgotten, and the last few before a crash may be called again.
 */
import { callHook } from "../client/hooks.js";
import type { Runtime } from "../client/runtime.js";
import { definitionsOf, type ServiceContract } from "../contract/definition.js";
import { type AnyHooks, hasEndHooks, outcomeHook } from "../contract/hooks.js";
import type { JobEvent } from "../core/event.js";
import { fold } from "../core/evolve.js";
import { callsHooks, isEnded, type Job } from "../core/job.js";
import type { FeedItem } from "../engine/engine.js";
import { jobFields } from "../engine/logger.js";
import { recordId } from "../engine/record.js";
import { FeedPlace } from "./feed-place.js";
import { followFeed } from "./follow-feed.js";
import { Leadership } from "./leadership.js";

/** How many ends may have their hooks under way at once. */
const underWayMax = 50;

/** How often the place in the feed is stored at most, and how long to wait after a fault. */
const storeMs = 1_000;
const retryMs = 1_000;

/** How long a keeper that stops waits for hooks; the next one calls them again. */
const stopMs = 10_000;

/** How much later than its time an event may be read at most, also where the store was away for a while. */
const lateMs = 60_000;

/** What end hooks are made of. */
export interface EndHooksOptions {
  readonly runtime: Runtime;
  readonly contract: ServiceContract;
  readonly ttlMs: number;
  readonly renewMs: number;
}

/**
 * Calls the hooks of ended jobs. Who calls them is led by a record of its own, because the process that keeps a service
 * may not know its hooks.
 */
export class EndHooks {
  readonly #runtime: Runtime;
  /** The hooks of each type and version that has some, as `type@version`. */
  readonly #hooks = new Map<string, AnyHooks>();
  readonly #types = new Set<string>();
  readonly #place: FeedPlace;
  readonly #leadership: Leadership;
  /** The calls under way of each job, so that those of one job keep their order. */
  readonly #underWay = new Map<string, Promise<void>>();
  #isStopped = false;
  #started: Promise<void> | undefined;
  #wakeUp: (() => void) | undefined;
  #abort: AbortController | undefined;
  #following: Promise<void> = Promise.resolve();
  #callOffStore: (() => void) | undefined;
  #takenAt = 0;
  #isAtEnd = false;

  constructor({ runtime, contract, ttlMs, renewMs }: EndHooksOptions) {
    this.#runtime = runtime;
    for (const [type, entry] of Object.entries(contract.jobs)) {
      for (const { settings, hooks } of definitionsOf(entry)) {
        if (!hasEndHooks(hooks)) continue;
        this.#types.add(type);
        this.#hooks.set(`${type}@${settings.version}`, hooks);
      }
    }
    this.#place = new FeedPlace(runtime, [...this.#types]);
    this.#leadership = new Leadership({
      ...{ runtime, ttlMs, renewMs, record: recordId.hooks(runtime.service) },
      does: "calls the hooks of the service",
      onGained: () => this.#begin(),
    });
  }

  /** Makes sure that ends count from now on, and stands as a candidate; does nothing if no type has such hooks. */
  async start(): Promise<void> {
    if (this.#types.size === 0) return;
    this.#started ??= this.#place.establish().then(() => this.#leadership.start());
    await this.#started;
  }

  /** Follows no more, waits for the calls that are under way, but not for long, and steps down. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#pause();
    await this.#following;
    let callOff = () => {};
    const tooLong = new Promise<void>((resolve) => {
      callOff = this.#runtime.clock.after(stopMs, resolve);
    });
    await Promise.race([Promise.all(this.#underWay.values()), tooLong]);
    callOff();
    await this.#store();
    if (this.#started !== undefined) await this.#leadership.stop();
  }

  /** Calls the hooks of all that the feed holds now, whoever leads, and stores the place. */
  async round(): Promise<void> {
    if (this.#types.size === 0 || this.#isStopped) return;
    this.#pause();
    await this.#following;
    const { signal } = this.#restart();
    const { engine } = this.#runtime;
    for await (const item of engine.tail(await this.#place.read(), signal, "stored"))
      await this.#take(item, signal);
    await Promise.all(this.#underWay.values());
    this.#isAtEnd = true;
    await this.#place.store(this.#runtime.engine.now(), 1);
    if (this.#leadership.isHeld) this.#begin();
  }

  /** Begins to follow the feed where it was left. */
  #begin(): void {
    this.#pause();
    if (this.#isStopped) return;
    const { signal } = this.#restart();
    const before = this.#following;
    this.#following = before.then(() =>
      followFeed({
        runtime: this.#runtime,
        signal,
        from: () => this.#place.read(),
        take: (item) => (this.#leadership.isHeld ? this.#take(item, signal) : this.#pause()),
        onFault: (error) => this.#lost(error),
      }),
    );
    this.#planStore();
  }

  /** While the feed cannot be read, its silence says nothing. */
  #lost(error: unknown): void {
    const { clock, logger } = this.#runtime;
    this.#takenAt = clock.monotonic();
    logger.warn({ error }, "The ends of jobs could not be followed; the keeper keeps trying.");
  }

  #restart(): AbortController {
    this.#takenAt = this.#runtime.clock.monotonic();
    this.#isAtEnd = false;
    this.#abort = new AbortController();
    return this.#abort;
  }

  /** Follows no more. Calls that are under way go on. */
  #pause(): void {
    this.#abort?.abort();
    this.#abort = undefined;
    this.#callOffStore?.();
    this.#callOffStore = undefined;
    this.#wakeUp?.();
  }

  /** The time up to which all ends have had their hooks called, so that their jobs may be removed. */
  #doneUntil(): number {
    const { engine, clock } = this.#runtime;
    if (this.#isAtEnd) return engine.now();
    // A feed that has been silent for long enough has told everything.
    const isSilent = clock.monotonic() - this.#takenAt >= lateMs;
    const told = isSilent ? engine.now() : this.#place.toldAt;
    return Math.min(told, this.#place.oldestOpenAt) - lateMs;
  }

  async #take({ cursor, event }: FeedItem, signal: AbortSignal): Promise<void> {
    this.#takenAt = this.#runtime.clock.monotonic();
    this.#isAtEnd = false;
    const done = this.#place.take(cursor, event.at);
    if (!this.#isWanted(event)) return done();
    const before = this.#underWay.get(event.jobId);
    const call = Promise.resolve(before)
      .then(() => this.#call(event, signal))
      .then((isCalled) => {
        if (this.#underWay.get(event.jobId) === call) this.#underWay.delete(event.jobId);
        if (isCalled) done();
        this.#wakeUp?.();
      });
    this.#underWay.set(event.jobId, call);
    while (this.#underWay.size >= underWayMax && this.#abort !== undefined) {
      await new Promise<void>((resolve) => {
        this.#wakeUp = resolve;
      });
    }
  }

  #isWanted({ service, type, state, previousState }: JobEvent): boolean {
    if (service !== this.#runtime.service || !this.#types.has(type)) return false;
    return isEnded(state) && previousState !== null && !isEnded(previousState);
  }

  /** Calls the hooks of an end, and waits out faults of the store. Gives whether they were called. */
  async #call(event: JobEvent, signal: AbortSignal): Promise<boolean> {
    const { logger, clock } = this.#runtime;
    const fields = jobFields({ ...event, id: event.jobId });
    while (!signal.aborted) {
      try {
        const job = await this.#endedJob(event);
        if (job === null) logger.warn(fields, "A job was removed before its hooks were called.");
        else await this.#callAll(job, event);
        return true;
      } catch (error) {
        logger.warn({ error, ...fields }, "An ended job could not be read; its hooks wait.");
        await new Promise<void>((resolve) => clock.after(retryMs, resolve));
      }
    }
    return false;
  }

  async #callAll(job: Job, event: JobEvent): Promise<void> {
    const hooks = this.#hooks.get(`${job.type}@${job.typeVersion}`);
    if (hooks === undefined) return;
    const actor = `keeper:${this.#runtime.instance}` as const;
    const outcome = outcomeHook(job);
    // A worker that gives an outcome calls this one itself.
    if (outcome !== null && !callsHooks(event.actor))
      await callHook(this.#runtime, actor, hooks, outcome, job);
    await callHook(this.#runtime, actor, hooks, "onEnd", job);
  }

  /** The job as it was when it ended; it may have been retried since. */
  async #endedJob(event: JobEvent): Promise<Job | null> {
    const { engine } = this.#runtime;
    const [now] = await engine.load([event.jobId]);
    if (!now) return null;
    if (now.job.version === event.version) return now.job;
    const [logged] = await engine.load([event.jobId], { history: true });
    const events = logged?.events ?? [];
    const end = events.findIndex(({ id }) => id === event.id);
    return end === -1 ? null : fold(events.slice(0, end + 1));
  }

  /** Stores the place soon, and goes on to while it follows. */
  #planStore(): void {
    this.#callOffStore ??= this.#runtime.clock.after(storeMs, () => {
      this.#callOffStore = undefined;
      if (this.#abort === undefined) return;
      this.#planStore();
      void this.#store();
    });
  }

  /** Another process that has stored a place leads now, unless it was a store that was restored elsewhere. */
  async #store(): Promise<void> {
    if (await this.#place.store(this.#doneUntil())) return;
    this.#pause();
    if (this.#leadership.isHeld) this.#begin();
  }
}
