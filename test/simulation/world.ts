// One simulated world: a store, a clock, a network with its weather, and the processes in it.
import { type Client, createClient } from "#millrace/client/client.js";
import type { Runtime } from "#millrace/client/runtime.js";
import type { ClaimAnswer, Engine } from "#millrace/engine/engine.js";
import { createKeeper, type Keeper } from "#millrace/keeper/keeper.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { createWorker, type Worker } from "#millrace/worker/worker.js";
import { contract, type JobType, jobTypes, workerJobs } from "./contract.js";
import { calm, MemoryStore, type SimulatedStore, type Weather } from "./engines.js";
import { HandlerLedger } from "./ledger.js";
import { NatsStore } from "./nats/store.js";
import { SimulatedProcess, WallClock } from "./process.js";
import { Random, seededIds } from "./random.js";

/** A process that runs worker and keeper. */
export interface Crew {
  readonly instance: string;
  readonly process: SimulatedProcess;
  readonly engine: Engine;
  readonly worker: Worker;
  readonly keeper: Keeper;
}

/** The engines that can be simulated. */
export const engineNames = ["memory", "nats"] as const;

export type EngineName = (typeof engineNames)[number];

/** What a simulation is made of. */
export interface WorldOptions {
  readonly seed: number;
  readonly engine: EngineName;
  readonly verbose: boolean;
}

/** How long handlers may take to stop. */
const graceMs = 1_000;

export class World {
  readonly fake = new FakeClock();
  readonly wall = new WallClock(this.fake);
  readonly ledger = new HandlerLedger();
  readonly random: Random;
  readonly store: SimulatedStore;
  readonly lines: string[] = [];
  readonly crews: Crew[] = [];
  /** The few job types of this world, so that their jobs meet often. */
  readonly types: readonly JobType[];
  weather: Weather = calm;
  readonly #isVerbose: boolean;
  readonly #cutOff = new Set<SimulatedProcess>();
  #processes = 0;

  constructor({ seed, engine, verbose }: WorldOptions) {
    this.random = new Random(seed);
    const count = this.random.whole(2, 5);
    this.types = Array.from({ length: count }, () => this.random.pick(jobTypes));
    this.#isVerbose = verbose;
    this.store =
      engine === "memory"
        ? new MemoryStore(this.wall, this.ledger)
        : new NatsStore(this.wall, this.ledger, this.random);
  }

  /** The store without faults, for the simulation's own eyes. */
  get engine(): Engine {
    return this.store.engine;
  }

  readonly trace = (line: string): void => {
    if (this.#isVerbose) this.lines.push(`${this.fake.monotonic()} ms: ${line}`);
  };

  /** Starts a process with a worker and a keeper, as every started service has them. */
  startCrew(instance: string): Crew {
    const process = this.#process(instance);
    const tokens = new Map<string, number>();
    const engine = rememberingTokens(this.#engineOf(process), tokens);
    const runtime = this.#runtime(process, instance, engine);
    const client = createClient(runtime, contract);
    const { ledger, types } = this;
    const jobs = workerJobs({ process, tokens, ledger, types });
    const worker = createWorker({ client, jobs, graceMs, concurrency: 6 });
    const keeper = createKeeper({ runtime, contract });
    const crew = { instance, process, engine, worker, keeper };
    this.crews.push(crew);
    process.onGone(() => this.crews.splice(this.crews.indexOf(crew), 1));
    this.trace(`${process.name} starts`);
    void keeper.start();
    void worker.start();
    return crew;
  }

  /** Stops a process as a deployment does. When it hangs, it is killed in the end. */
  async stopCrew({ process, engine, worker, keeper }: Crew): Promise<void> {
    this.trace(`${process.name} stops`);
    this.fake.after(20_000, () => process.end());
    await Promise.all([worker.stop(), keeper.stop()]);
    // All processes share the one memory engine.
    if (engine.capabilities.shared) await engine.close();
    this.trace(`${process.name} has stopped`);
    process.end();
  }

  /** A process that only calls. */
  startCaller(instance: string): { readonly process: SimulatedProcess; readonly client: Client } {
    const process = this.#process(instance);
    const runtime = this.#runtime(process, instance, this.#engineOf(process));
    return { process, client: createClient(runtime, contract) };
  }

  /** Keeps a process from the store, or lets it through again. */
  cutOff(process: SimulatedProcess, isCutOff: boolean): void {
    if (isCutOff) this.#cutOff.add(process);
    else this.#cutOff.delete(process);
  }

  /** Ends every kind of trouble. */
  calmDown(): void {
    this.weather = calm;
    this.#cutOff.clear();
    for (const { process } of this.crews) process.resume();
  }

  #process(instance: string): SimulatedProcess {
    this.#processes++;
    const process = new SimulatedProcess(`${instance}.${this.#processes}`, this.wall);
    process.onGone(() => this.ledger.processGone(process.name));
    return process;
  }

  #engineOf(process: SimulatedProcess): Engine {
    return this.store.engineOf({
      process,
      random: this.random.fork(),
      weather: () => this.weather,
      isCutOff: () => this.#cutOff.has(process),
      trace: this.trace,
    });
  }

  #runtime(process: SimulatedProcess, instance: string, engine: Engine): Runtime {
    const say = (fields: object, message: string) => {
      const job = "jobId" in fields ? ` (${String(fields.jobId)})` : "";
      this.trace(`${process.name}: ${message}${job}`);
    };
    return {
      engine,
      clock: process.clock,
      ids: seededIds(process.name.replace(".", "-"), this.random.fork()),
      logger: { info: say, warn: say, error: say },
      instance,
      service: contract.name,
    };
  }
}

/** A handler is not told its token, so the process remembers what its claims were answered. */
function rememberingTokens(engine: Engine, tokens: Map<string, number>): Engine {
  return new Proxy(engine, {
    get: (target, name) => {
      const member = Reflect.get(target, name, target) as unknown;
      if (name !== "claim") return member;
      return async (...given: Parameters<Engine["claim"]>): Promise<ClaimAnswer> => {
        const answer = await target.claim(...given);
        for (const { job } of answer.jobs) tokens.set(job.id, job.token);
        return answer;
      };
    },
  });
}
