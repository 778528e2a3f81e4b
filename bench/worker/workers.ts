// Gives measures workers to talk to: in processes of their own where the store can be shared between
// processes, else in this one.
import { fork } from "node:child_process";
import { EventEmitter, once } from "node:events";
import type { Bench } from "../bench.js";
import type { Stage, StagedSystem } from "../stage.js";
import type { Entry, EntryListener, Usage, Watch, WorkerCalls } from "./calls.js";
import { compiledFile } from "./compile.js";
import { createWorker } from "./worker.js";
import { WorkerProcess } from "./worker-process.js";

/** What a measure wants of its workers. */
export interface WorkersWish {
  readonly processes: number;
  readonly watch: Watch;
}

/** The workers of a measure, asked all at once. */
export class Workers {
  readonly #members: readonly WorkerCalls[];
  readonly #ear: Ear;

  constructor(members: readonly WorkerCalls[], ear: Ear) {
    this.#members = members;
    this.#ear = ear;
  }

  async open(): Promise<void> {
    await Promise.all(this.#members.map((worker) => worker.open()));
  }

  async start(): Promise<void> {
    await Promise.all(this.#members.map((worker) => worker.start()));
  }

  async stop(): Promise<void> {
    await Promise.all(this.#members.map((worker) => worker.stop()));
  }

  usage(): Promise<Usage[]> {
    return Promise.all(this.#members.map((worker) => worker.usage()));
  }

  /** Resolves when handlers have been entered that often from now on. */
  entered(count: number): Promise<void> {
    return this.#ear.counted(count);
  }

  /** The entry into the handler of the job with a number. */
  async entry(number: number, signal: AbortSignal): Promise<Entry> {
    const [entry] = await once(this.#ear, String(number), { signal });
    return entry as Entry;
  }
}

/** Does something with workers, which nobody has opened yet, and ends their processes afterwards. */
export async function withWorkers<Job, Value>(
  bench: Bench,
  system: StagedSystem<Job>,
  stage: Stage<Job>,
  { processes, watch }: WorkersWish,
  work: (workers: Workers) => Promise<Value>,
): Promise<Value> {
  const ear = new Ear();
  if (stage.openHost !== undefined) {
    return work(new Workers([createWorker(stage.openHost, stage.url, watch, ear)], ear));
  }
  const file = await compiledFile(bench.workspace, "worker/process");
  const members = Array.from({ length: processes }, () => {
    const words = [system.name, stage.url, watch];
    const child = fork(file, words, { serialization: "advanced", execArgv: [] });
    return new WorkerProcess(child, ear, (error) => ear.fail(error));
  });
  const end = bench.workspace.undoAtEnd(async () => {
    await Promise.all(members.map((worker) => worker.end()));
  });
  try {
    await Promise.all(members.map((worker) => worker.ready));
    return await work(new Workers(members, ear));
  } finally {
    await end();
  }
}

/** Hears of entries and of workers that end early, whichever worker tells. */
class Ear extends EventEmitter implements EntryListener {
  #missing = 0;
  #waiting: { resolve(): void; reject(error: Error): void } | undefined;

  constructor() {
    super();
    // A warm-up waits for all of its jobs at once.
    this.setMaxListeners(0);
  }

  counted(count: number): Promise<void> {
    this.#missing = count;
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  onEntry(entry: Entry): void {
    this.emit(String(entry.number), entry);
  }

  onCount(count: number): void {
    this.#missing -= count;
    if (this.#missing <= 0) this.#waiting?.resolve();
  }

  fail(error: Error): void {
    this.#waiting?.reject(error);
  }
}
