// Gives measures a worker to talk to: in a process of its own where the engine can be shared between
// processes, else in this one.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import type { Bench } from "../bench.js";
import { compiledWorkerProcess } from "./compile.js";
import type { Stage } from "./stage.js";
import type { DrainReport, Entry, WorkerCalls } from "./worker-calls.js";
import { createWorkerHost } from "./worker-host.js";
import type { Question } from "./worker-process.js";

type Message =
  | { readonly kind: "entry"; readonly entry: Entry }
  | { readonly kind: "answer"; readonly value: unknown }
  | { readonly kind: "failure"; readonly message: string };

/** Does something with a worker and stops it afterwards. */
export async function withWorker<Value>(
  bench: Bench,
  stage: Stage,
  work: (worker: WorkerCalls) => Promise<Value>,
  onEntry: (entry: Entry) => void = () => {},
): Promise<Value> {
  const isShared = bench.engine === "file";
  if (!isShared) return work(createWorkerHost(stage.service, onEntry));
  const file = await compiledWorkerProcess(bench.workspace);
  const child = fork(file, [stage.url], { serialization: "advanced", execArgv: [] });
  const end = bench.workspace.undoAtEnd(() => endProcess(child));
  try {
    const worker = new WorkerProcess(child, onEntry);
    await worker.ready;
    const value = await work(worker);
    await worker.stop();
    await worker.leave();
    return value;
  } finally {
    await end();
  }
}

/** The parent's end of a worker process. */
class WorkerProcess implements WorkerCalls {
  readonly ready: Promise<unknown>;
  readonly #child: ChildProcess;
  #waiting: { resolve(value: unknown): void; reject(error: Error): void }[] = [];

  constructor(child: ChildProcess, onEntry: (entry: Entry) => void) {
    this.#child = child;
    child.on("message", (message: Message) => {
      if (message.kind === "entry") onEntry(message.entry);
      else if (message.kind === "answer") this.#waiting.shift()?.resolve(message.value);
      else this.#waiting.shift()?.reject(new Error(`worker process: ${message.message}`));
    });
    child.on("exit", (code, signal) => {
      const error = new Error(`the worker process ended early (${signal ?? `exit code ${code}`})`);
      for (const { reject } of this.#waiting.splice(0)) reject(error);
    });
    this.ready = this.#nextAnswer();
  }

  drain(jobs: number): Promise<DrainReport> {
    return this.#ask({ name: "drain", jobs }) as Promise<DrainReport>;
  }

  listen(): Promise<void> {
    return this.#ask({ name: "listen", jobs: 0 }) as Promise<void>;
  }

  processorMs(): Promise<number> {
    return this.#ask({ name: "processorMs", jobs: 0 }) as Promise<number>;
  }

  stop(): Promise<void> {
    return this.#ask({ name: "stop", jobs: 0 }) as Promise<void>;
  }

  /** Lets the process end. */
  async leave(): Promise<void> {
    const exited = once(this.#child, "exit");
    this.#child.disconnect();
    await exited;
  }

  #ask(question: Question): Promise<unknown> {
    this.#child.send(question);
    return this.#nextAnswer();
  }

  #nextAnswer(): Promise<unknown> {
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }
}

async function endProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
}
