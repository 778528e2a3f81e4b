/**
 * The worker's side of a process that runs a handler's module: it waits, ready, for the one job that it will run.
 */
import { fileURLToPath } from "node:url";
import type { IsolateSettings } from "../../contract/isolate.js";
import type { Json } from "../../core/json.js";
import { JobAborted } from "../abort.js";
import type { ActiveJob } from "../active-job.js";
import { checkLeft, type Ending, endingSentence } from "./ending.js";
import { HandlerNotLoaded } from "./errors.js";
import { errorOf, jobData, outcomeOf, understood } from "./messages.js";
import {
  type CallName,
  type FromProcess,
  Lines,
  type Thrown,
  type ToProcess,
  type Verdict,
} from "./protocol.js";
import { stopWhenAborted } from "./stopping.js";
import { makeFolder, type ProcessSurroundings, removeFolder, TryProcess } from "./try-process.js";

/** How sentences about it begin. */
const theProcess = "The process of the handler";

/** How long a module may take to load. */
const loadMaxMs = 30_000;

/** How many calls of a process may wait for their answers before nothing more is read from it. */
const callsOpenMax = 100;

/** Options of Node that say how modules are found, and that a handler's module may need. */
const loaderOption =
  /^(?:--import|--require|-r|--loader|--experimental-loader|--conditions|-C)(=|$)/;

const main = fileURLToPath(new URL("./process-main.js", import.meta.url));

/** The module of a handler, and the type that it is for. */
export interface HandlerModule {
  readonly type: string;
  readonly url: string;
  readonly settings: IsolateSettings;
}

/** The job as the parent has it, and what was prepared for it. */
export interface JobToRun {
  readonly job: ActiveJob<unknown>;
  readonly prepared: Json | undefined;
  readonly graceMs: number;
}

export class ModuleProcess {
  readonly #module: HandlerModule;
  readonly #surroundings: ProcessSurroundings;
  readonly #process: TryProcess;
  readonly #lines = new Lines((line) => this.#line(line));
  #onMessage: (message: FromProcess) => void = () => {};
  #callsOpen = 0;
  #crash: Thrown | undefined;

  private constructor(module: HandlerModule, folder: string, surroundings: ProcessSurroundings) {
    this.#module = module;
    this.#surroundings = surroundings;
    const { settings } = module;
    const heap = `--max-old-space-size=${settings.memoryMb}`;
    this.#process = new TryProcess(
      {
        command: [process.execPath, ...loaderOptions(), heap, main, module.url],
        folder,
        settings,
        startsIn: process.cwd(),
        speaks: "channel",
      },
      surroundings,
    );
    const { channel } = this.#process;
    channel.setEncoding("utf8");
    channel.on("data", (text: string) => {
      if (!this.#lines.take(text)) this.#process.kill({ kind: "protocol" });
    });
    channel.on("error", () => {});
  }

  /** Starts a process and waits until it has loaded the module. Throws `HandlerNotLoaded` when it cannot. */
  static async start(
    module: HandlerModule,
    surroundings: ProcessSurroundings,
    onStarted: (started: ModuleProcess) => void,
  ): Promise<ModuleProcess> {
    const folder = await makeFolder();
    let started: ModuleProcess;
    try {
      started = new ModuleProcess(module, folder, surroundings);
    } catch (error) {
      await removeFolder(folder);
      throw error;
    }
    onStarted(started);
    await started.#loaded();
    return started;
  }

  /** Resolves when it is gone. */
  get ended(): Promise<Ending> {
    return this.#process.ended;
  }

  /** Ends it, because nobody needs it any more. */
  discard(): void {
    this.#process.discard();
  }

  /** Runs the handler with the job, and gives what the handler gives. */
  async run({ job, prepared, graceMs }: JobToRun): Promise<unknown> {
    const { clock } = this.#surroundings;
    this.#process.output.attach((message, level) => job.log(message, level));
    this.#process.limitMemory();
    const verdict = this.#verdict(job);
    const callOff = stopWhenAborted(job.signal, {
      clock,
      graceMs,
      ask: () => this.#send({ say: "abort", reason: abortReason(job.signal) }),
      kill: () => this.#process.kill({ kind: "grace", graceMs }),
    });
    this.#send({ say: "run", job: jobData(job, prepared) });
    const given = await Promise.race([verdict, this.ended.then(() => null)]);
    callOff();
    if (given !== null) this.#process.finish();
    const ending = await this.ended;
    if (given === null) throw this.#failure(ending);
    checkLeft(theProcess, ending, given.say === "returned", job);
    return outcomeOf(given, job.type);
  }

  async #loaded(): Promise<void> {
    const { type, url } = this.#module;
    const answered = new Promise<string | null>((resolve) => {
      this.#onMessage = (message) => {
        if (message.say === "ready") resolve(null);
        if (message.say === "unloadable") resolve(message.error.message);
      };
    });
    const died = this.ended.then((ending) => endingSentence("Its process", ending));
    const callOff = this.#surroundings.clock.after(loadMaxMs, () =>
      this.#process.kill({ kind: "load", loadMaxMs }),
    );
    const problem = await Promise.race([answered, died]);
    callOff();
    if (problem === null) return;
    this.discard();
    await this.ended;
    const message = `The handler of ${type} cannot be loaded from ${url}: ${problem}`;
    throw new HandlerNotLoaded({ type, module: url, message });
  }

  #verdict(job: ActiveJob<unknown>): Promise<Verdict> {
    return new Promise((resolve) => {
      this.#onMessage = (message) => {
        switch (message.say) {
          case "call":
            void this.#serve(job, message);
            return;
          case "crashed":
            this.#crash = message.error;
            return;
          case "ready":
          case "unloadable":
            return;
          case "returned":
          case "threw":
          case "terminate":
          case "skip":
          case "snooze":
          case "unfit":
            resolve(message);
            return;
        }
      };
    });
  }

  /** Does what the handler asks for. While too much of it is under way, nothing more is read. */
  async #serve(
    job: ActiveJob<unknown>,
    { call, name, parameters }: Extract<FromProcess, { say: "call" }>,
  ): Promise<void> {
    const { channel } = this.#process;
    if (++this.#callsOpen >= callsOpenMax) channel.pause();
    try {
      const value = await calls[name](job, parameters);
      this.#send({ say: "answer", call, ...(value === undefined ? null : { value }) });
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      this.#send({ say: "answer", call, error: { message } });
    }
    if (--this.#callsOpen < callsOpenMax) channel.resume();
  }

  #send(message: ToProcess): void {
    const { channel } = this.#process;
    if (channel.writable) channel.write(`${JSON.stringify(message)}\n`);
  }

  #line(line: string): void {
    const message = understood(line);
    if (message === null) this.#process.kill({ kind: "protocol" });
    else this.#onMessage(message);
  }

  /** What became of a try whose process ended before its handler returned. */
  #failure(ending: Ending): Error {
    const crash = this.#crash;
    if (crash !== undefined && ending.cause === null)
      return errorOf({ ...crash, message: `The process crashed: ${crash.message}` });
    return new Error(endingSentence(theProcess, ending));
  }
}

type Parameters<Name extends CallName> = globalThis.Parameters<ActiveJob<unknown>[Name]>;

/** What a handler may ask for. The job checks what it is given, as it does in the worker. */
const calls: {
  readonly [Name in CallName]: (
    job: ActiveJob<unknown>,
    parameters: readonly unknown[],
  ) => Promise<unknown>;
} = {
  progress: (job, parameters) => job.progress(...(parameters as Parameters<"progress">)),
  log: (job, parameters) => job.log(...(parameters as Parameters<"log">)),
  emit: (job, parameters) => job.emit(...(parameters as Parameters<"emit">)),
  heartbeat: (job) => job.heartbeat(),
  loadDependencies: (job) => job.loadDependencies(),
};

function abortReason({ reason }: AbortSignal): JobAborted["reason"] {
  return JobAborted.is(reason) ? reason.reason : "error";
}

/** The options of this process that its children need, too, each with its value. */
function loaderOptions(): readonly string[] {
  return process.execArgv.filter((option, index, all) => {
    const before = all[index - 1];
    return (
      loaderOption.test(option) || (before !== undefined && loaderOption.exec(before)?.[1] === "")
    );
  });
}
