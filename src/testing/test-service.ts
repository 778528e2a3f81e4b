/**
 * A service for tests: the real client, worker and keeper on a store in memory, or on one that takes part in
 * transactions, with a clock that the test moves. Handlers are registered as in production.
 */
import { AssertionError } from "node:assert";
import { InvalidOption } from "../client/errors.js";
import type { JobSnapshot } from "../client/job-ref.js";
import {
  type OptionCheck,
  optionsProblem,
  stringProblem,
  timeProblem,
} from "../client/option-checks.js";
import type { TransactionSource } from "../client/transactions/source.js";
import type { JobEntries, JobEntry, ServiceContract } from "../contract/definition.js";
import type { Stored } from "../contract/stored.js";
import type { JobEvent } from "../core/event.js";
import type { JobState } from "../core/job.js";
import { batchMax, type Engine } from "../engine/engine.js";
import { type Logger, silentLogger } from "../engine/logger.js";
import { openEngine } from "../engine/open.js";
import { createKeeper } from "../keeper/keeper.js";
import { checkContract, connect } from "../service/connect.js";
import type { CurrentOf, PayloadOf, ValueOf } from "../service/inferred.js";
import type { Service } from "../service/service.js";
import { countedIds } from "./counted-ids.js";
import { type DrainOptions, type DrainParts, drainAll, drainNow } from "./drain.js";
import { FakeClock, fakeStart } from "./fake-clock.js";
import { type JobMatch, matches } from "./matching.js";
import { allRows, openJobs, type WaitingJob } from "./open-jobs.js";
import { TestClock } from "./test-clock.js";
import { watchEngine } from "./watched-engine.js";

/** The name under which a test's worker runs. */
const instance = "test";

const memoryUrl = "memory:";

/** How far the clock leaps while a service stops, and how often at most. */
const stopLeapMs = 60_000;
const stopLeapsMax = 1_000;

/** How a test service is made. */
export interface TestOptions<Tx = undefined> {
  /**
   * A store for handlers that work in transactions, `file:` or `postgres:`; `memory:` by default. Give each test a
   * file or a schema of its own.
   */
  readonly url?: string;
  /** Where `tx` in `prepare` and `complete` comes from, as `connect` takes it: a client of the store's own database. */
  readonly transactions?: TransactionSource<Tx>;
  /** The time at which the clock starts; 2030-01-01T00:00:00Z by default. */
  readonly startAt?: Date | number;
  /** How many jobs of all types run at once; no limit but the types' own by default. */
  readonly concurrency?: number;
  /** How long running handlers may take to stop, on the test's clock; 10 s by default. */
  readonly graceMs?: number;
  /** Where the runtime says what it does; it is silent by default. */
  readonly logger?: Logger;
}

/** What `connect` takes as it is, `connect` checks. */
const testChecks: { readonly [Name in keyof TestOptions]-?: OptionCheck } = {
  url: stringProblem,
  transactions: () => null,
  startAt: timeProblem,
  concurrency: () => null,
  graceMs: () => null,
  logger: () => null,
};

/** A job of an entry, as assertions see it. */
export type TestJob<Entry extends JobEntry> = JobSnapshot<
  Stored<PayloadOf<CurrentOf<Entry>>>,
  ValueOf<CurrentOf<Entry>>
>;

/** What a test may say of a job of an entry. */
export type TestMatch<Entry extends JobEntry> = JobMatch<
  Stored<PayloadOf<CurrentOf<Entry>>>,
  ValueOf<CurrentOf<Entry>>
>;

/**
 * Makes a service for a test. Ids count up (`job-000001`) and backoffs have no jitter, so that
 * every run of the test is the same.
 *
 * @example
 * const test = await testService(shop);
 * test.service.jobs.placeOrder.handle(placeOrder);
 * await test.service.jobs.placeOrder.create({ orderId: "o-1" });
 * await test.drain();
 * await test.assertCreated("sendReceipt", { payload: { orderId: "o-1" } });
 * await test.stop();
 */
export async function testService<Entries extends JobEntries, Tx = undefined>(
  contract: ServiceContract<Entries>,
  options: TestOptions<Tx> = {},
): Promise<TestService<Entries, Tx>> {
  checkContract(contract);
  const problem = optionsProblem("testService", options, testChecks);
  if (problem !== null) throw problem;
  const { startAt = fakeStart, logger = silentLogger, url = memoryUrl, ...settings } = options;
  // The clock waits for the store, and the store goes by the clock.
  const clock: FakeClock = new FakeClock(Number(startAt), () => watched.rest());
  const watched = watchEngine(await openStore(url, clock, logger));
  const { engine } = watched;
  const ids = countedIds();
  const own = { engine, clock, ids, logger, instance };
  try {
    await engine.provision();
    const keeper = createKeeper({ runtime: { ...own, service: contract.name }, contract });
    // What ends from now on has its hooks called.
    await keeper.tick();
    // The keeper gets its turn whenever time moves, so that the service needs none of its own.
    const service = await connect(contract, { ...own, ...settings, keeper: false });
    return new TestService(service, { engine, watched, clock, keeper, service: contract.name });
  } catch (fault) {
    await engine.close();
    throw fault;
  }
}

async function openStore(url: string, clock: FakeClock, logger: Logger): Promise<Engine> {
  const engine = await openEngine(url, { clock, logger });
  if (url === memoryUrl || engine.capabilities.transactions) return engine;
  await engine.close();
  const message = `The store ${engine.url} takes no part in transactions; give file: or postgres:, or leave url out.`;
  throw new InvalidOption({ field: "url", message });
}

/** A service on a store of its own, with the means to drive it and to look into it. */
export class TestService<Entries extends JobEntries = JobEntries, Tx = undefined> {
  /** The service itself, as `connect` gives it. */
  readonly service: Service<Entries, Tx>;
  /** The time, which moves only when the test moves it. */
  readonly clock: TestClock;
  readonly #engine: Engine;
  readonly #parts: DrainParts;

  constructor(service: Service<Entries, Tx>, parts: Omit<DrainParts, "waiting">) {
    const { engine, clock, keeper } = parts;
    this.service = service;
    this.#engine = engine;
    this.#parts = { ...parts, waiting: () => this.waiting() };
    this.clock = new TestClock(clock, {
      openJobs: () => openJobs(engine, service.name),
      nextFiring: async () => {
        const instants = (await service.schedules.list().orThrow()).map(({ nextAt }) => nextAt);
        return instants.reduce((a, b) => (a === null || (b !== null && b < a) ? b : a), null);
      },
      tend: () => keeper.tick(),
    });
  }

  /**
   * Starts the service if it was not, and runs every job that can run now; jobs that wait for
   * their time, for a handler or for a paused queue are left. With `untilIdle` it moves the clock
   * through delays and retries until every job has ended. Throws `JobsStuck`, which names the jobs
   * and says why, when a handler does not return or a job cannot end by waiting.
   */
  async drain(options: DrainOptions = {}): Promise<void> {
    await this.service.start();
    await (options.untilIdle ? drainAll : drainNow)(this.#parts, options);
  }

  /** The jobs of a type that were created, oldest first; those that fit, if something is said of them. */
  async created<Type extends keyof Entries & string>(
    type: Type,
    match: TestMatch<Entries[Type]> = {},
  ): Promise<readonly TestJob<Entries[Type]>[]> {
    const rows = await allRows(this.#engine, { service: this.service.name, type });
    const jobs: TestJob<Entries[Type]>[] = [];
    for (let start = 0; start < rows.length; start += batchMax) {
      const ids = rows.slice(start, start + batchMax).map(({ id }) => id);
      for (const loaded of await this.#engine.load(ids)) {
        // The store holds what the contract's schema gave.
        const job = loaded?.job as TestJob<Entries[Type]> | undefined;
        if (job !== undefined && matches(job, match)) jobs.push(job);
      }
    }
    return jobs;
  }

  /** Throws an `AssertionError` unless a job of the type was created that fits. Gives the first one. */
  async assertCreated<Type extends keyof Entries & string>(
    type: Type,
    match: TestMatch<Entries[Type]> = {},
  ): Promise<TestJob<Entries[Type]>> {
    const [job] = await this.created(type, match);
    if (job !== undefined) return job;
    const actual = await this.created(type);
    const message =
      actual.length === 0 ? `No ${type} job was created.` : `No ${type} job fits: ${said(match)}.`;
    throw failed(message, actual, match, "assertCreated");
  }

  /** Throws an `AssertionError` if a job of the type was created that fits. */
  async assertNotCreated<Type extends keyof Entries & string>(
    type: Type,
    match: TestMatch<Entries[Type]> = {},
  ): Promise<void> {
    const actual = await this.created(type, match);
    if (actual.length === 0) return;
    const ids = actual.map(({ id }) => id).join(", ");
    throw failed(`${type} jobs were created: ${ids}.`, actual, [], "assertNotCreated");
  }

  /** How many jobs are in each state, of one type or of all; states without jobs are left out. */
  async counts(type?: keyof Entries & string): Promise<{ readonly [State in JobState]?: number }> {
    const { name } = this.service;
    const filter = type === undefined ? { service: name } : { service: name, type };
    const counts: { [State in JobState]?: number } = {};
    for (const { state, count } of await this.#engine.query("counts", { filter })) {
      counts[state] = (counts[state] ?? 0) + count;
    }
    return counts;
  }

  /** The history of a job, oldest first. */
  events(id: string): Promise<readonly JobEvent[]> {
    return this.service.ref(id).events().orThrow();
  }

  /** The jobs that have not ended, oldest first, each with the reason why it is not running. */
  async waiting(): Promise<readonly WaitingJob[]> {
    const rows = await openJobs(this.#engine, this.service.name);
    return Promise.all(
      rows.map(async ({ id, type, state }) => {
        return { id, type, state, why: await this.service.ref(id).why().orThrow() };
      }),
    );
  }

  /** Stops the service. Handlers that still run are asked to stop, and time moves on until they have or are given up. */
  async stop(): Promise<void> {
    let isStopped = false;
    const stopping = this.service.stop().finally(() => {
      isStopped = true;
    });
    // Nobody else moves this clock, so that a handler which ignores its signal would never be given up.
    for (let leaps = 0; leaps < stopLeapsMax && !isStopped; leaps++) {
      await this.#parts.clock.leap(leaps === 0 ? 0 : stopLeapMs);
    }
    await stopping;
    await this.#engine.close();
  }

  /** Stops the service at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

function said(match: unknown): string {
  return typeof match === "function" ? "the given function found none" : JSON.stringify(match);
}

/** An error that test runners show with what there was beside what there should have been. */
function failed(
  message: string,
  actual: unknown,
  expected: unknown,
  operator: string,
): AssertionError {
  return new AssertionError({ message, actual, expected, operator });
}
