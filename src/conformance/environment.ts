/**
 * What a case works with: the engine, a clock that it moves, and short ways to say what callers, workers
 * and keepers ask of an engine. Every event is made by the core's `decide`, as real callers make theirs.
 */
import assert from "node:assert/strict";
import type { Command, CommandData, CommandName, Origin } from "../core/command.js";
import { decide } from "../core/decide.js";
import type { JobEvent } from "../core/event.js";
import { evolve } from "../core/evolve.js";
import type { Actor, Job, JobKeyPolicy } from "../core/job.js";
import { keyHash } from "../core/keys.js";
import { laneOf } from "../core/order.js";
import type {
  AppendOutcome,
  Change,
  ClaimAnswer,
  ClaimAsk,
  ClaimedJob,
  ClaimLane,
  Engine,
} from "../engine/engine.js";
import type { JobRow, KeyRow } from "../engine/query.js";
import { type RecordWrite, recordId } from "../engine/record.js";
import type { MovableClock } from "./movable-clock.js";

/** The service, type and lease that cases use where they name none. */
export const defaults = {
  service: "shop",
  type: "mail",
  worker: "worker-1",
  leaseMs: 30_000,
} as const;

/** How far the clock moves at a time where something needs time to pass, and how often at most. */
const stepMs = 50;
const stepsMax = 100_000;

/** What a case may say of a new job. The queue is named like the type unless it is given. */
export type NewJob = Partial<CommandData["create"]>;

/** What a case may say of a claim from one lane. */
export type LaneAsk = Partial<Omit<ClaimLane, "lane">> & { readonly typeVersion?: number };

/** A command without its origin, which the environment fills in. */
export type Wish = {
  [Name in CommandName]: { readonly command: Name; readonly actor?: Actor } & CommandData[Name];
}[Exclude<CommandName, "create">];

/** Numbers ids, so that a failing case fails the same way again. */
export class Numbers {
  #last = 0;

  next(prefix: string): string {
    this.#last += 1;
    return `${prefix}-${String(this.#last).padStart(5, "0")}`;
  }
}

/** An engine and a clock in the hands of a case. */
export class Environment {
  readonly engine: Engine;
  readonly clock: MovableClock;
  /** Opens another engine on the same store, as a second process would. */
  readonly open: () => Promise<Engine>;
  readonly #numbers: Numbers;

  constructor(
    engine: Engine,
    clock: MovableClock,
    open: () => Promise<Engine>,
    numbers: Numbers = new Numbers(),
  ) {
    this.engine = engine;
    this.clock = clock;
    this.open = open;
    this.#numbers = numbers;
  }

  /**
   * Waits for something that may need time to pass, such as a look at what other processes did.
   * The clock moves in small steps, and the process's own work gets its turn between them.
   */
  async whileTimePasses<T>(waiting: Promise<T>): Promise<T> {
    let waits = true;
    const over = waiting.finally(() => {
      waits = false;
    });
    for (let step = 0; waits && step < stepsMax; step++) {
      this.clock.advance(stepMs);
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.ok(!waits, `nothing happened in ${stepsMax} steps of ${stepMs} ms`);
    return over;
  }

  /** The same ways of speaking for another engine on the same store. */
  at(engine: Engine): Environment {
    return new Environment(engine, this.clock, this.open, this.#numbers);
  }

  get now(): number {
    return this.engine.now();
  }

  /** A concurrency key. `name` alone tells keys apart. */
  key(name: string, policy: Partial<JobKeyPolicy> & { readonly type?: string } = {}): JobKeyPolicy {
    const { type = defaults.type, ...rest } = policy;
    const hash = keyHash(defaults.service, type, [name]);
    const limits = {
      maxActive: 1,
      maxQueued: 100,
      whenFull: "reject",
      stalePolicy: "fail-stale",
    } as const;
    return { key: name, hash, ...limits, ...rest };
  }

  /** The change that creates a job. */
  creation(job: NewJob = {}, records: readonly RecordWrite[] = []): Change {
    const { service = defaults.service, type = defaults.type } = job;
    const id = job.id ?? this.#numbers.next("job");
    const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
    const command = {
      command: "create",
      eventId: this.#numbers.next("event"),
      actor: "client:caller",
      context: {
        requestId: `request-${id}`,
        traceId,
        traceparent: `00-${traceId}-00f067aa0ba902b7-01`,
      },
      typeVersion: 1,
      queue: type,
      payload: { job: id },
      maxTries: 3,
      priority: 0,
      runAt: this.now,
      deadLetter: true,
      tags: [],
      blockers: [],
      ...job,
      id,
      service,
      type,
    } as const;
    const event = decided(null, command, this.now);
    const change = { job: { service, type, id }, expect: { version: 0 }, event };
    return records.length === 0 ? change : { ...change, records: { before: records, after: [] } };
  }

  /** Creates a job and gives it as the store has it. */
  async create(job: NewJob = {}): Promise<Job> {
    const change = this.creation(job);
    assert.equal((await this.append(change)).outcome, "appended");
    return this.load(change.job.id);
  }

  /** The job that a change creates. */
  folded(creation: Change): Job {
    const { job } = evolve(null, creation.event);
    assert.ok(job, "the change creates a job");
    return job;
  }

  /** Creates several jobs, one after the other. */
  async createMany(count: number, job: NewJob = {}): Promise<readonly Job[]> {
    const jobs: Job[] = [];
    for (let index = 0; index < count; index++) jobs.push(await this.create(job));
    return jobs;
  }

  /** Appends one change. */
  async append(change: Change): Promise<AppendOutcome> {
    const [outcome] = await this.engine.append([change]);
    assert.ok(outcome, "append gives one outcome per change");
    return outcome;
  }

  /** The event that a wish becomes on a job as the case knows it. */
  event(job: Job, wish: Wish): JobEvent {
    const origin: Origin = {
      eventId: this.#numbers.next("event"),
      actor: wish.actor ?? "client:caller",
    };
    return decided(job, { ...wish, ...origin } as Command, this.now);
  }

  /** The change that a wish becomes on a job as the case knows it. A worker's change names its token. */
  change(job: Job, wish: Wish, token?: number): Change {
    const { service, type, id, version } = job;
    const expect = token === undefined ? { version } : { version, token };
    return { job: { service, type, id }, expect, event: this.event(job, wish) };
  }

  /** Carries out a wish from outside on the job as it is now, and gives the job after it; `null` once it is deleted. */
  async command(id: string, wish: Wish): Promise<Job | null> {
    const job = await this.load(id);
    const change = this.change(job, wish);
    assert.deepEqual(await this.append(change), { outcome: "appended" });
    return evolve(job, change.event).job;
  }

  /** The keeper reports that the lease of an active job has lapsed. */
  async lapse(id: string, retryAt: number = this.now): Promise<Job> {
    const { token } = await this.load(id);
    const job = await this.command(id, {
      command: "lapse",
      actor: "keeper:keeper-1",
      token,
      retryAt,
    });
    assert.ok(job);
    return job;
  }

  /** A worker settles the attempt that it claimed, as it knows the job, with what follows from it. */
  async settle(job: Job, wish: Wish, follow?: readonly Change[]): Promise<AppendOutcome> {
    const actor: Actor = `worker:${job.worker ?? defaults.worker}`;
    const change = this.change(job, { actor, ...wish }, job.token);
    const [outcome] = await this.engine.settle([follow ? { ...change, follow } : change]);
    assert.ok(outcome, "settle gives one outcome per change");
    return outcome;
  }

  /** A worker completes what it claimed. */
  async complete(job: Job): Promise<void> {
    const wish = {
      command: "complete",
      token: job.token,
      completedBy: job.worker ?? null,
    } as const;
    assert.deepEqual(await this.settle(job, wish), { outcome: "appended" });
  }

  /** A worker's try fails, to be tried again at a time. */
  async fail(job: Job, retryAt: number): Promise<void> {
    const error = { message: "no luck", reason: "error" } as const;
    const wish = { command: "fail", token: job.token, error, retryAt } as const;
    assert.deepEqual(await this.settle(job, wish), { outcome: "appended" });
  }

  /** The lane of a type, with plenty of room. */
  lane(ask: LaneAsk = {}): ClaimLane {
    const { typeVersion = 1, ...rest } = ask;
    const { service = defaults.service, type = defaults.type } = rest;
    const queue = rest.queue ?? type;
    const lane = laneOf({ service, queue, type, typeVersion });
    return { free: 100, leaseMs: defaults.leaseMs, ...rest, lane, service, queue, type };
  }

  /** Claims from one lane or several. */
  async claim(
    lanes: LaneAsk | readonly LaneAsk[] = {},
    ask: { readonly limit?: number; readonly worker?: string } = {},
  ): Promise<readonly Job[]> {
    return (await this.claimed(lanes, ask)).map(({ job }) => job);
  }

  /** Claims, and gives the leases, too. */
  async claimed(
    lanes: LaneAsk | readonly LaneAsk[] = {},
    ask: { readonly limit?: number; readonly worker?: string } = {},
  ): Promise<readonly ClaimedJob[]> {
    const list = Array.isArray(lanes) ? (lanes as readonly LaneAsk[]) : [lanes as LaneAsk];
    const { limit = 100, worker = defaults.worker } = ask;
    const answer = await this.askFor({
      worker,
      limit,
      lanes: list.map((lane) => this.lane(lane)),
    });
    return answer.jobs;
  }

  /** Claims after the store was tended, as a keeper does for stores that need it, and gives when to ask again. */
  async askFor(ask: ClaimAsk): Promise<ClaimAnswer> {
    let tendAt: number | null = null;
    for (const service of new Set(ask.lanes.map((lane) => lane.service))) {
      const at = (await this.engine.tend?.(service)) ?? null;
      if (at !== null) tendAt = Math.min(at, tendAt ?? at);
    }
    const answer = await this.engine.claim(ask);
    return { ...answer, nextDueAt: answer.nextDueAt ?? tendAt };
  }

  /** Claims exactly one job. */
  async claimOne(lane: LaneAsk = {}, worker: string = defaults.worker): Promise<Job> {
    const [job] = await this.claim({ ...lane, free: 1 }, { limit: 1, worker });
    assert.ok(job, "a job is claimable");
    return job;
  }

  /** Nothing can be claimed from a lane. */
  async nothingClaimable(lane: LaneAsk = {}): Promise<void> {
    assert.deepEqual(ids(await this.claim(lane)), [], "nothing is claimable");
  }

  /** A job that exists. */
  async load(id: string): Promise<Job> {
    const job = await this.find(id);
    assert.ok(job, `job ${id} exists`);
    return job;
  }

  /** A job, or `null`. */
  async find(id: string): Promise<Job | null> {
    const [loaded] = await this.engine.load([id]);
    return loaded?.job ?? null;
  }

  /** The log of a job. */
  async history(id: string): Promise<readonly JobEvent[]> {
    const [loaded] = await this.engine.load([id], { history: true });
    assert.ok(loaded?.events, `the log of job ${id} is there`);
    return loaded.events;
  }

  /** The names of a job's events. */
  async historyNames(id: string): Promise<readonly string[]> {
    return (await this.history(id)).map(({ name }) => name);
  }

  /** A job as a row of the read model. */
  async row(id: string): Promise<JobRow> {
    const row = await this.engine.query("job", { id });
    assert.ok(row, `job ${id} has a row`);
    return row;
  }

  /** A key as a row of the read model. */
  async keyRow(policy: JobKeyPolicy): Promise<KeyRow> {
    const row = await this.engine.query("key", { hash: policy.hash });
    assert.ok(row, `key ${policy.key} has a row`);
    return row;
  }

  /** Pauses or unpauses a queue. */
  async pause(queue: string, paused: boolean): Promise<void> {
    const id = recordId.queue(defaults.service, queue);
    const [current] = await this.engine.records([id]);
    const [swap] = await this.engine.swap([
      { id, expect: current?.version ?? 0, body: { paused } },
    ]);
    assert.ok(swap?.swapped, "the queue's settings were written");
  }
}

/** The ids of jobs, in their order. */
export function ids(jobs: readonly { readonly id: string }[]): readonly string[] {
  return jobs.map(({ id }) => id);
}

/** How many outcomes of each name there are. */
export function tally(outcomes: readonly { readonly outcome: string }[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { outcome } of outcomes) counts[outcome] = (counts[outcome] ?? 0) + 1;
  return counts;
}

function decided(job: Job | null, command: Command, now: number): JobEvent {
  const decision = decide(job, command, now);
  assert.ok(decision.ok, decision.ok ? "" : `${command.command}: ${decision.rejection.message}`);
  return decision.event;
}
