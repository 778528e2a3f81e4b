/**
 * The isolated job types of a service: makes handlers of their modules and programs, and owns every process that runs them.
 */
import { availableParallelism } from "node:os";
import { keepAlive } from "../../client/keep-alive.js";
import type { Runtime } from "../../client/runtime.js";
import type { BoundJob } from "../../contract/definition.js";
import { type IsolateSettings, resolveIsolate } from "../../contract/isolate.js";
import type { Handler } from "../lane.js";
import { type HandlerModule, ModuleProcess } from "./module-process.js";
import {
  handlerOf,
  type ModuleParts,
  type OutsideHandler,
  type RunOutside,
} from "./outside-handler.js";
import { type WaitingProcess, WarmPool } from "./pool.js";
import { programRunner } from "./program.js";
import type { ProcessSurroundings } from "./try-process.js";
import { Warden } from "./warden.js";

export class Isolation {
  readonly #runtime: Runtime;
  readonly #graceMs: number;
  readonly #warden: Warden;
  readonly #pools: WarmPool<ModuleProcess>[] = [];
  readonly #processes = new Set<WaitingProcess>();
  /** Starts and ends that are under way. */
  readonly #underWay = new Set<Promise<unknown>>();
  #isStopped = false;

  constructor(runtime: Runtime, graceMs: number) {
    this.#runtime = runtime;
    this.#graceMs = graceMs;
    this.#warden = new Warden(runtime.logger);
  }

  /** The handler that a worker calls for a module or a program. */
  handler({ type, definition }: BoundJob, outside: OutsideHandler): Handler {
    const settings = definition.settings.isolate ?? resolveIsolate(true);
    const run =
      "module" in outside
        ? this.#moduleRunner(type, outside, settings, definition.settings.concurrency)
        : programRunner(outside, settings, {
            ...this.#surroundings,
            graceMs: this.#graceMs,
            onStarted: (process) => this.#own(process),
          });
    return handlerOf(outside, (job, prepared) => alive(() => run(job, prepared)));
  }

  /** Loads every module once. Throws `HandlerNotLoaded` for one that cannot be loaded. */
  async start(): Promise<void> {
    await alive(() => Promise.all(this.#pools.map((pool) => pool.start())));
  }

  /** Ends every process, and waits until nothing is left of them. Idempotent. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const pool of this.#pools) pool.stop();
    for (const process of this.#processes) process.discard();
    await alive(async () => {
      while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
      await this.#warden.stop();
    });
  }

  #moduleRunner(
    type: string,
    { module, warm = availableParallelism() }: ModuleParts,
    settings: IsolateSettings,
    concurrency: number,
  ): RunOutside {
    const { clock, logger } = this.#runtime;
    const handlerModule: HandlerModule = { type, url: module.href, settings };
    const own = (started: ModuleProcess) => this.#own(started);
    const pool = new WarmPool({
      warm: Math.min(warm, concurrency),
      start: () => this.#watched(ModuleProcess.start(handlerModule, this.#surroundings, own)),
      logger,
      clock,
    });
    this.#pools.push(pool);
    return async (job, prepared) => {
      const ready = await pool.take(job.signal);
      try {
        return await ready.run({ job, prepared, graceMs: this.#graceMs });
      } finally {
        ready.discard();
      }
    };
  }

  get #surroundings(): ProcessSurroundings {
    const { clock, logger } = this.#runtime;
    return { clock, logger, warden: this.#warden };
  }

  #own(process: WaitingProcess): void {
    this.#processes.add(process);
    void this.#watched(process.ended.finally(() => this.#processes.delete(process)));
    if (this.#isStopped) process.discard();
  }

  #watched<Value>(work: Promise<Value>): Promise<Value> {
    this.#underWay.add(work);
    const over = () => this.#underWay.delete(work);
    work.then(over, over);
    return work;
  }
}

/** Keeps this process alive during some work, which the processes outside do not. */
async function alive<Value>(work: () => Promise<Value>): Promise<Value> {
  const letGo = keepAlive();
  try {
    return await work();
  } finally {
    letGo();
  }
}
