// A place for tests of workers and keepers: a store in memory, a clock that the test moves,
// jobs made directly, and a store that can be made to fail.
import { type Client, createClient } from "#millrace/client/client.js";
import { type CommandOutcome, command } from "#millrace/client/commands.js";
import type { CreateOptions } from "#millrace/client/create-options.js";
import { createIds, type IdSource } from "#millrace/client/ids.js";
import { prepareCreate } from "#millrace/client/prepare.js";
import type { Runtime } from "#millrace/client/runtime.js";
import { boundJobs, type ServiceContract } from "#millrace/contract/definition.js";
import type { CommandData } from "#millrace/core/command.js";
import type { JobEvent } from "#millrace/core/event.js";
import type { Job } from "#millrace/core/job.js";
import type { Engine } from "#millrace/engine/engine.js";
import { StoreUnavailable } from "#millrace/engine/errors.js";
import type { Logger } from "#millrace/engine/logger.js";
import { openMemory } from "#millrace/engine/memory/engine.js";
import { createKeeper, type Keeper, type KeeperTimings } from "#millrace/keeper/keeper.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { createWorker, type Handler, type Worker } from "#millrace/worker/worker.js";

export interface LoggedLine {
  readonly level: "info" | "warn" | "error";
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}

/** What the store does with a call: carry it out, refuse it, fail at each of its changes, or carry it out and lose the reply. */
export type Trouble = "none" | "refuse" | "fault-each" | "lose-reply";

export interface WorkerSettings {
  readonly instance?: string;
  readonly concurrency?: number;
  readonly graceMs?: number;
}

export class Workshop {
  readonly clock = new FakeClock();
  readonly lines: LoggedLine[] = [];
  readonly calls: string[] = [];
  readonly trouble: { [Method in keyof Engine]?: Trouble } = {};
  readonly contract: ServiceContract;
  readonly engine: Engine;
  readonly ids: IdSource;
  readonly #client: Client;

  constructor(contract: ServiceContract) {
    this.contract = contract;
    this.engine = this.#troubled(openMemory({ clock: this.clock }));
    this.ids = { ...createIds(() => this.clock.now()), random: () => 0.5 };
    this.#client = createClient(this.runtime("client"), contract);
  }

  runtime(instance: string): Runtime {
    const { clock, engine, ids } = this;
    return { clock, engine, ids, instance, service: this.contract.name, logger: this.#logger() };
  }

  /** A worker that is not started. Handlers go by type, or by type and version as in `mail@2`. */
  worker(handlers: Record<string, Handler>, settings: WorkerSettings = {}): Worker {
    const { instance = "w1", ...options } = settings;
    const jobs = boundJobs(this.contract).flatMap((bound) => {
      const version = bound.definition.settings.version;
      const handler = handlers[`${bound.type}@${version}`] ?? handlers[bound.type];
      return handler ? [{ bound, handler }] : [];
    });
    const client = createClient(this.runtime(instance), this.contract);
    return createWorker({ client, jobs, ...options });
  }

  async start(handlers: Record<string, Handler>, settings?: WorkerSettings): Promise<Worker> {
    const worker = this.worker(handlers, settings);
    await worker.start();
    await this.turn();
    return worker;
  }

  keeper(instance = "k1", timings: KeeperTimings = {}): Keeper {
    const { contract } = this;
    return createKeeper({ runtime: this.runtime(instance), contract, ...timings });
  }

  /** Creates a job without checking its payload, as an older version of the contract might have. */
  async create(type: string, payload: unknown = {}, options: CreateOptions = {}): Promise<string> {
    const bound = boundJobs(this.contract).findLast((job) => job.type === type);
    if (bound === undefined) throw new Error(`The contract has no type ${type}.`);
    return this.#append(bound, payload, options);
  }

  async createVersion(type: string, version: number, payload: unknown = {}): Promise<string> {
    const bound = boundJobs(this.contract).find(
      (job) => job.type === type && job.definition.settings.version === version,
    );
    if (bound === undefined) throw new Error(`The contract has no version ${version} of ${type}.`);
    return this.#append(bound, payload, {});
  }

  async job(id: string): Promise<Job> {
    const [found] = await this.engine.load([id]);
    if (!found) throw new Error(`There is no job ${id}.`);
    return found.job;
  }

  async exists(id: string): Promise<boolean> {
    const [found] = await this.engine.load([id]);
    return found !== null && found !== undefined;
  }

  async events(id: string): Promise<readonly JobEvent[]> {
    const [found] = await this.engine.load([id], { history: true });
    return found?.events ?? [];
  }

  async names(id: string): Promise<readonly string[]> {
    return (await this.events(id)).map((event) => event.name);
  }

  cancel(id: string, data: CommandData["cancel"] = {}): Promise<CommandOutcome> {
    const origin = { eventId: this.ids.eventId(), actor: "admin:anna" } as const;
    return command(this.runtime("client"), id, () => ({ command: "cancel", ...origin, ...data }));
  }

  async complete(id: string): Promise<void> {
    const origin = { eventId: this.ids.eventId(), actor: "admin:anna" } as const;
    const outcome = await command(this.runtime("client"), id, () => {
      return { command: "complete", completedBy: null, ...origin };
    });
    if (!outcome.ok) throw new Error(outcome.rejection.message);
  }

  async remove(id: string): Promise<void> {
    const origin = { eventId: this.ids.eventId(), actor: "admin:anna" } as const;
    const outcome = await command(this.runtime("client"), id, () => {
      return { command: "delete", reason: "by hand", force: true, ...origin };
    });
    if (!outcome.ok) throw new Error(outcome.rejection.message);
  }

  /** Lets everything that was set in motion come to rest, without time passing. */
  turn(): Promise<void> {
    return this.clock.advance(0);
  }

  logged(part: string): readonly LoggedLine[] {
    return this.lines.filter(({ message }) => message.includes(part));
  }

  count(method: keyof Engine): number {
    return this.calls.filter((call) => call === method).length;
  }

  async #append(
    bound: ReturnType<typeof boundJobs>[number],
    payload: unknown,
    options: CreateOptions,
  ): Promise<string> {
    const { service, type, queue, definition } = bound;
    const target = { service, type, queue, schema: null, settings: definition.settings };
    const prepared = prepareCreate(this.#client, target, payload, options);
    if (prepared instanceof Error) throw prepared;
    const { event } = prepared;
    const job = { service, type, id: event.jobId };
    const [outcome] = await this.engine.append([{ job, expect: { version: 0 }, event }]);
    if (outcome?.outcome !== "appended") throw new Error(`Not created: ${JSON.stringify(outcome)}`);
    return event.jobId;
  }

  #logger(): Logger {
    const line = (level: LoggedLine["level"]) => (fields: object, message: string) => {
      this.lines.push({ level, fields: fields as LoggedLine["fields"], message });
    };
    return { info: line("info"), warn: line("warn"), error: line("error") };
  }

  /** Counts every call, and makes those fail that the test has chosen. */
  #troubled(engine: Engine): Engine {
    return new Proxy(engine, {
      get: (target, name) => {
        const member = Reflect.get(target, name, target) as unknown;
        if (typeof member !== "function") return member;
        return (...given: unknown[]) => {
          const method = name as keyof Engine;
          this.calls.push(method);
          const trouble = this.trouble[method] ?? "none";
          const fault = new StoreUnavailable({ message: "The store is away.", url: "memory:" });
          if (trouble === "refuse") return Promise.reject(fault);
          if (trouble === "fault-each") {
            const [changes] = given as [readonly unknown[]];
            return Promise.resolve(changes.map(() => ({ outcome: "faulted", error: fault })));
          }
          const answer = member.apply(target, given);
          if (trouble === "none") return answer;
          return Promise.resolve(answer).then(() => Promise.reject(fault));
        };
      },
    });
  }
}

/** A gate that a handler waits at until the test opens it. */
export function gate<T = void>(): {
  readonly opened: Promise<T>;
  readonly open: (value: T) => void;
  readonly fail: (error: unknown) => void;
} {
  let open: (value: T) => void = () => {};
  let fail: (error: unknown) => void = () => {};
  const opened = new Promise<T>((resolve, reject) => {
    open = resolve;
    fail = reject;
  });
  opened.catch(() => {});
  return { opened, open, fail };
}

/** Rejects with the signal's reason once it is aborted, as well-behaved handlers do. */
export function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason));
  });
}
