/**
 * The worker's side of the warden: it is told of every process group that the worker starts.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { platform } from "node:os";
import { fileURLToPath } from "node:url";
import type { Logger } from "../../engine/logger.js";
import { Lines } from "./protocol.js";
import type { FromWarden, ToWarden } from "./warden-protocol.js";

interface Watched {
  readonly folder: string;
  memoryBytesMax?: number;
}

/** Memory is looked up in `/proc`. */
const looksAtMemory = platform() === "linux";

export class Warden {
  readonly #logger: Logger;
  readonly #watched = new Map<number, Watched>();
  readonly #forgetting = new Map<number, (overBytes: number | null) => void>();
  #process: ChildProcess | undefined;
  #exited: Promise<unknown> = Promise.resolve();
  #isStopped = false;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Ends the group, and removes its folder, should the worker not be there any more to do it. */
  watch(group: number, folder: string): void {
    this.#watched.set(group, { folder });
    this.#tell({ say: "watch", group, folder });
  }

  /** Ends the group when all its processes together hold more than this. */
  limit(group: number, memoryBytesMax: number): void {
    const watched = this.#watched.get(group);
    if (!looksAtMemory || watched === undefined) return;
    watched.memoryBytesMax = memoryBytesMax;
    this.#tell({ say: "limit", group, memoryBytesMax });
  }

  /** The group has ended. Gives what it held if the warden has ended it for that. */
  forget(group: number): Promise<number | null> {
    this.#watched.delete(group);
    return new Promise((resolve) => {
      this.#forgetting.set(group, resolve);
      this.#tell({ say: "forget", group });
    });
  }

  /** Lets the warden go. Idempotent. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#process?.stdin?.end();
    await this.#exited;
  }

  #tell(message: ToWarden): void {
    if (this.#isStopped) this.#answerAll();
    else if (this.#process === undefined) this.#start();
    else this.#write(message);
  }

  #write(message: ToWarden): void {
    this.#process?.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  /**
   * Starts the warden and tells it all. It has a session of its own, so that what ends the worker's terminal or group
   * does not end it first.
   */
  #start(): void {
    this.#answerAll();
    const main = fileURLToPath(new URL("./warden-main.js", import.meta.url));
    const warden = spawn(process.execPath, [main], {
      detached: true,
      env: {},
      stdio: ["pipe", "pipe", "ignore"],
    });
    const lines = new Lines((line) => this.#answered(JSON.parse(line) as FromWarden));
    warden.stdout.setEncoding("utf8").on("data", (text: string) => lines.take(text));
    warden.stdin.on("error", () => {});
    for (const part of [warden, warden.stdin, warden.stdout]) unref(part);
    this.#exited = once(warden, "exit").then(
      () => this.#lost(),
      (error: unknown) => this.#lost(error),
    );
    this.#process = warden;
    for (const [group, { folder, memoryBytesMax }] of this.#watched) {
      this.#write({ say: "watch", group, folder });
      if (memoryBytesMax !== undefined) this.#write({ say: "limit", group, memoryBytesMax });
    }
  }

  #answered({ group, overBytes }: FromWarden): void {
    this.#forgetting.get(group)?.(overBytes);
    this.#forgetting.delete(group);
  }

  /** A warden that somebody has ended is replaced; one that cannot be started is tried again with the next group. */
  #lost(error?: unknown): void {
    this.#process = undefined;
    this.#answerAll();
    if (this.#isStopped) return;
    this.#logger.error({ error }, "The warden of isolated jobs has ended and is started again.");
    if (error === undefined && this.#watched.size > 0) this.#start();
  }

  #answerAll(): void {
    for (const answer of this.#forgetting.values()) answer(null);
    this.#forgetting.clear();
  }
}

/** Idle processes must not keep the worker's own process alive. */
function unref(part: object): void {
  if ("unref" in part && typeof part.unref === "function") part.unref();
}
