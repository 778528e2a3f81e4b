/**
 * A connected service: what users hold. It creates and handles jobs, reads the store,
 * and runs worker and keeper between `start` and `stop`.
 */
import type { Client } from "../client/client.js";
import { ContractState } from "../client/contract.js";
import { takeUpSchedules } from "../client/declared-schedules.js";
import { EncryptionRequired } from "../client/errors.js";
import { inTime, lastCall } from "../client/in-time.js";
import { JobRef } from "../client/job-ref.js";
import { keepAlive } from "../client/keep-alive.js";
import { optionProblem, stringProblem } from "../client/option-checks.js";
import { Keys, Queues } from "../client/queues.js";
import { Reads } from "../client/reads.js";
import { Schedules } from "../client/schedules.js";
import type { TransactionSource } from "../client/transactions/source.js";
import { UntypedJobs } from "../client/untyped.js";
import { lacksVault } from "../client/vault.js";
import { Webhooks } from "../client/webhooks/webhooks.js";
import {
  type BoundJob,
  boundJobs,
  type JobEntries,
  type ServiceContract,
} from "../contract/definition.js";
import type { Engine } from "../engine/engine.js";
import { createKeeper, type Keeper, type KeeperTimings } from "../keeper/keeper.js";
import { Relay } from "../keeper/relay.js";
import { Isolation } from "../worker/isolate/isolation.js";
import { handlerProblem, type OutsideHandler } from "../worker/isolate/outside-handler.js";
import { chain, type Middleware, MiddlewareStack } from "../worker/middleware.js";
import { type RouteOptions, Router } from "../worker/route.js";
import {
  createWorker,
  graceDefaultMs,
  type Handler,
  type Worker,
  type WorkerJob,
} from "../worker/worker.js";
import { Chains } from "./chains.js";
import { InvalidHandler, ServiceStopped } from "./errors.js";
import type { CurrentOf, HandlerOf, OutsideHandlerOf, RouteHandler } from "./inferred.js";
import { type HandleOptions, JobFace, type Register } from "./job-face.js";
import { packageVersion } from "./package-version.js";

/** The signals that `wait` takes as the wish to stop. */
const stopSignals = ["SIGINT", "SIGTERM"] as const;

/** The job types of a service by name. */
export type ServiceJobs<Entries extends JobEntries, Tx = undefined> = {
  readonly [Type in keyof Entries]: JobFace<Entries[Type], Entries, Tx>;
};

/** Handlers by the name of their type. */
export type Handlers<Entries extends JobEntries, Tx = undefined> = {
  readonly [Type in keyof Entries]?:
    | HandlerOf<CurrentOf<Entries[Type]>, Entries, Tx>
    | OutsideHandlerOf<CurrentOf<Entries[Type]>, Entries, Tx>;
};

/** How a service runs. */
export interface ServiceSettings {
  /** Where the transactions of handlers come from. */
  readonly transactions?: TransactionSource<unknown>;
  readonly concurrency?: number;
  readonly graceMs?: number;
  /** The migration of the contract that may be stored at the start. */
  readonly acceptMigration?: string;
  readonly keeper: KeeperTimings | false;
  /** Whether the service opened its engine and so closes it. */
  readonly ownsEngine: boolean;
}

/**
 * A service that is connected to its store; made by `connect`. `Tx` is the client of its handlers' transactions.
 *
 * @example
 * service.jobs.sendReceipt.handle(async (job) => ({ messageId: await send(job.payload) }));
 * await service.start();
 * await service.wait();
 */
export class Service<Entries extends JobEntries = JobEntries, Tx = undefined> {
  readonly name: string;
  /** The name of this process among those of the service. */
  readonly instance: string;
  readonly engine: Engine;
  /** The contract's job types: create them, run them, handle them. */
  readonly jobs: ServiceJobs<Entries, Tx>;
  /** Jobs by the name of their type, of types that no contract names, too. */
  readonly untyped: UntypedJobs;
  /** Jobs that continue one another: start, wait for, complete and remove them as one. */
  readonly chains: Chains<Entries>;
  readonly reads: Reads;
  readonly queues: Queues;
  readonly keys: Keys;
  /** What the service starts by itself. */
  readonly schedules: Schedules;
  /** Who is told of the service's events. */
  readonly webhooks: Webhooks;
  /** The accepted contract of the service, and how this process's own stands to it. */
  readonly contract: ContractState;
  readonly #client: Client;
  readonly #contract: ServiceContract;
  readonly #settings: ServiceSettings;
  readonly #handlers = new Map<string, WorkerJob>();
  readonly #isolation: Isolation;
  readonly #middleware = new MiddlewareStack();
  readonly #router: Router;
  readonly #whenStopped: Promise<void>;
  #reportStopped: (stopping: Promise<void>) => void = () => {};
  #worker: Worker | null = null;
  #keeper: Keeper | null = null;
  #relay: Relay | null = null;
  #starting: Promise<void> | null = null;
  #stopping: Promise<void> | null = null;

  constructor(client: Client, contract: ServiceContract<Entries>, settings: ServiceSettings) {
    const { service, instance, engine } = client.runtime;
    this.name = service;
    this.instance = instance;
    this.engine = engine;
    this.#client = client;
    this.#contract = contract;
    this.#settings = settings;
    this.#router = new Router(contract.retention);
    this.#isolation = new Isolation(client.runtime, settings.graceMs ?? graceDefaultMs);
    this.jobs = this.#faces();
    this.untyped = new UntypedJobs(client, contract);
    this.chains = new Chains(client);
    this.reads = new Reads(client);
    this.queues = new Queues(client);
    this.keys = new Keys(client);
    this.schedules = new Schedules(client, contract);
    this.webhooks = new Webhooks(client);
    this.contract = new ContractState(client.runtime, contract);
    this.#whenStopped = new Promise((resolve) => {
      this.#reportStopped = resolve;
    });
    // How a stop failed is told to whoever called it; that nobody waits besides is no fault of its own.
    this.#whenStopped.catch(() => {});
  }

  /** A reference to a job by its id, of any type. Throws `InvalidOption` for what is no id. */
  ref(id: string): JobRef {
    const problem = optionProblem("id", id, stringProblem);
    if (problem !== null) throw problem;
    return new JobRef(this.#client, id);
  }

  /** Registers the handlers of several types at once. Throws `InvalidHandler` for one that cannot run. */
  handle(handlers: Handlers<Entries, Tx>): void {
    for (const [type, handler] of Object.entries(handlers)) {
      if (!Object.hasOwn(this.jobs, type)) {
        const known = Object.keys(this.jobs).join(", ");
        throw new InvalidHandler({
          type,
          message: `The contract of ${this.name} has no job ${type}; it has ${known}.`,
        });
      }
      if (handler !== undefined) this.jobs[type as keyof Entries].handle(handler);
    }
  }

  /**
   * Puts middleware around every handler of this process: inside of what was put there before, around what a handler
   * has of its own. It may come at any time; attempts that have begun keep what they began with.
   * Throws `InvalidMiddleware` for what is no function.
   *
   * @example
   * service.use(logging(logger));
   */
  use(...middleware: readonly Middleware[]): void {
    this.#middleware.use(middleware);
  }

  /**
   * Registers a handler for types that no contract names: for the type of that name, and for all that begin with it unless
   * another route is nearer; `""` takes everything. A process with routes also takes jobs that no route fits from the
   * queues that it serves, and fails their tries. Throws `InvalidHandler` for a prefix that has a route already.
   *
   * @example
   * service.route("email:", (job) => send(job.type, job.payload));
   */
  route(prefix: string, handler: RouteHandler<Tx>, options: RouteOptions = {}): void {
    const refuse = (message: string): never => {
      throw new InvalidHandler({ type: String(prefix), message });
    };
    if (typeof prefix !== "string") refuse("The prefix of a route must be a string.");
    if (typeof handler !== "function") refuse(`The handler of "${prefix}" must be a function.`);
    if (this.#starting !== null)
      refuse(`The route "${prefix}" comes too late; register it before start().`);
    if (this.#router.has(prefix)) refuse(`There is a route "${prefix}" already.`);
    if (Object.hasOwn(this.jobs, prefix))
      refuse(`The contract names ${prefix}; use service.jobs.${prefix}.handle(…).`);
    this.#router.add(prefix, handler as Handler, options);
  }

  /**
   * Starts the worker, if any handler or route is registered, and the keeper. Idempotent.
   * A process that only creates jobs never calls it. Throws `MigrationNotAccepted` when the contract has changed
   * in ways that somebody has to accept, `EncryptionRequired` when it has handlers for encrypted jobs and no keys,
   * the store's fault when the store refuses what the worker's claims need, and `TransactionRefused` when it cannot use
   * the transactions of its handlers. If that is found out only later, because the first of them takes longer than 3 s, the
   * log says so and the worker stops.
   */
  start(): Promise<void> {
    if (this.#stopping !== null) throw this.#stopped();
    this.#starting ??= this.#start();
    return this.#starting;
  }

  /** Holds until the process is told to stop (SIGINT or SIGTERM) or `stop` is called, and the service has stopped. */
  async wait(): Promise<void> {
    const letGo = keepAlive();
    const removeListeners = () => {
      for (const signal of stopSignals) process.removeListener(signal, onSignal);
    };
    // A second signal meets no listener and ends the process the hard way.
    const onSignal = (signal: string) => {
      removeListeners();
      this.#client.runtime.logger.info({ service: this.name, signal }, "Stopping on a signal.");
      void this.stop().catch(() => {});
    };
    for (const signal of stopSignals) process.on(signal, onSignal);
    try {
      await this.#whenStopped;
    } finally {
      removeListeners();
      letGo();
    }
  }

  /**
   * Claims no more, lets running handlers finish within the grace time, gives back what does not,
   * and lets go of the store. Idempotent.
   */
  stop(): Promise<void> {
    if (this.#stopping === null) {
      this.#stopping = this.#stop();
      this.#reportStopped(this.#stopping);
    }
    return this.#stopping;
  }

  /** Stops the service at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #start(): Promise<void> {
    const { runtime } = this.#client;
    const { concurrency, graceMs, keeper, transactions, acceptMigration } = this.#settings;
    const jobs = [...this.#handlers.values()];
    const isWorker = jobs.length > 0 || !this.#router.isEmpty;
    const refused = isWorker && lacksVault(runtime) ? this.#keysMissing() : null;
    // A start that is refused stores no contract; one that does not say `encrypted` is compared first, which tells more.
    if (refused !== null && this.#contract.encrypted) throw refused;
    // Who runs an earlier contract leaves the schedules of the accepted one as they are.
    if (await this.contract.takeUp(acceptMigration)) await takeUpSchedules(runtime, this.#contract);
    if (refused !== null) throw refused;
    if (isWorker) {
      this.#worker = createWorker({
        client: this.#client,
        jobs,
        ...(this.#router.isEmpty ? null : { router: this.#router }),
        middleware: this.#middleware,
        packageVersion: packageVersion(),
        ...(concurrency === undefined ? null : { concurrency }),
        ...(graceMs === undefined ? null : { graceMs }),
        ...(transactions === undefined ? null : { transactions }),
      });
    }
    if (keeper !== false) {
      const { outbox } = runtime;
      this.#keeper = createKeeper({ runtime, contract: this.#contract, ...keeper });
      if (outbox !== undefined) this.#relay = new Relay({ runtime, outbox, timings: keeper });
    }
    try {
      await this.#keeper?.start();
      await this.#relay?.start();
      await this.#isolation.start();
      await this.#worker?.start();
    } catch (fault) {
      await this.#halt();
      throw fault;
    }
  }

  async #stop(): Promise<void> {
    // What is half started can only be stopped when it has started; a start that fails is its caller's to see.
    await this.#starting?.catch(() => {});
    try {
      await this.#halt();
    } finally {
      await this.#client.runtime.outbox?.close();
      if (this.#settings.ownsEngine) await this.engine.close();
    }
  }

  async #halt(): Promise<void> {
    const { clock, logger } = this.#client.runtime;
    const beganAt = clock.monotonic();
    try {
      await this.#worker?.stop();
    } finally {
      const keeping = Promise.all([this.#keeper?.stop(), this.#relay?.stop()]);
      const limitMs = lastCall(clock, beganAt, this.#settings.graceMs ?? graceDefaultMs);
      const [isDone] = await Promise.all([inTime(clock, keeping, limitMs), this.#isolation.stop()]);
      if (!isDone)
        logger.error(
          {},
          "The service stops while its keeper is at work: the store does not answer.",
        );
    }
  }

  #faces(): ServiceJobs<Entries, Tx> {
    const register: Register = (bound, handler, options) => this.#register(bound, handler, options);
    const byType = new Map<string, [BoundJob, ...BoundJob[]]>();
    for (const bound of boundJobs(this.#contract)) {
      const versions = byType.get(bound.type);
      if (versions === undefined) byType.set(bound.type, [bound]);
      else versions.push(bound);
    }
    const faces = [...byType].map(([type, versions]) => [
      type,
      new JobFace(this.#client, versions, register),
    ]);
    return Object.fromEntries(faces) as ServiceJobs<Entries, Tx>;
  }

  #register(bound: BoundJob, handler: Handler | OutsideHandler, { use = [] }: HandleOptions): void {
    const { type } = bound;
    const { version } = bound.definition.settings;
    const refuse = (message: string): never => {
      throw new InvalidHandler({ type, message });
    };
    const problem = handlerProblem(bound, handler);
    if (problem !== null) refuse(problem);
    if (this.#starting !== null)
      refuse(`The handler of ${type} comes too late; register it before start().`);
    const name = `${type}@${version}`;
    if (this.#handlers.has(name))
      refuse(`${type} version ${version} has a handler already; a type has one in a process.`);
    const own = typeof handler === "function" ? handler : this.#isolation.handler(bound, handler);
    const middleware = use.length === 0 ? null : { use: chain(...use) };
    this.#handlers.set(name, { bound, handler: own, ...middleware });
  }

  #keysMissing(): EncryptionRequired {
    const message = `The jobs of ${this.name} are encrypted, and this process handles some without having keys: give encryption at connect, or register no handlers.`;
    return new EncryptionRequired({ id: this.name, message });
  }

  #stopped(): ServiceStopped {
    const message = `The service ${this.name} was stopped and cannot start again; connect anew.`;
    return new ServiceStopped({ service: this.name, message });
  }
}

/** A service whatever its contract: all but the typed jobs and chains. For tools that serve any of them. */
export type AnyService = Omit<Service, "jobs" | "chains" | "handle">;
