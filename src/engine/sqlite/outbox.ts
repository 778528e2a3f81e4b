/**
 * The outbox in a SQLite file of the caller's: one table beside the caller's own, written on the caller's connection.
 */
import { Worker } from "node:worker_threads";
import { type Clock, systemClock } from "../clock.js";
import { StoreClosed } from "../errors.js";
import type { Outbox, OutboxEntry, OutboxRow } from "../outbox.js";
import type { CallerTransaction, SyncTransaction } from "../transaction.js";
import { Callers } from "./caller.js";
import { filePath } from "./engine.js";
import { storeError } from "./faults.js";
import type { OutboxAsk, OutboxReply, OutboxRequest } from "./outbox-thread.js";
import { ringBells, WakeListeners } from "./wake.js";

/** Opens the outbox in a file. */
export function openSqliteOutbox(
  url: string,
  { clock = systemClock }: { readonly clock?: Clock } = {},
): Outbox {
  return new SqliteOutbox(url, filePath(url), clock);
}

const holds = {
  what: "the outbox is",
  remedy: "begin it on a better-sqlite3 connection to that file",
} as const;

const woke = { ready: true, ended: false, cancel: false } as const;

/** An ask that waits for its answer. */
interface Waiting {
  readonly resolve: (rows: readonly OutboxRow[]) => void;
  readonly reject: (error: Error) => void;
}

class SqliteOutbox implements Outbox {
  readonly url: string;
  readonly #callers: Callers;
  readonly #bell: string;
  readonly #wake: WakeListeners;
  readonly #path: string;
  readonly #waiting = new Map<number, Waiting>();
  /** Connections whose transaction has put something down, and will be told of once. */
  readonly #untold = new Set<object>();
  #worker: Worker | null = null;
  #lastId = 0;
  #closed: Promise<void> | null = null;

  constructor(url: string, path: string, clock: Clock) {
    this.url = url;
    this.#path = path;
    this.#callers = new Callers({ url, path, clock, holds });
    this.#bell = `${path}-outbox`;
    this.#wake = new WakeListeners(this.#bell);
  }

  async provision(): Promise<void> {
    await this.#ask({ kind: "provision" });
    // The bell must be there before anybody can listen to it.
    ringBells(this.#bell, woke);
  }

  async put(entries: readonly OutboxEntry[], tx: CallerTransaction): Promise<void> {
    this.#put(entries, tx);
  }

  putSync(entries: readonly OutboxEntry[], tx: SyncTransaction): void {
    this.#put(entries, tx);
  }

  take(service: string, after: number, limit: number): Promise<readonly OutboxRow[]> {
    return this.#ask({ kind: "take", service, after, limit });
  }

  async remove(numbers: readonly number[]): Promise<void> {
    await this.#ask({ kind: "remove", numbers });
  }

  wake(on: () => void): () => void {
    return this.#wake.listen("ready", on);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  #put(entries: readonly OutboxEntry[], given: CallerTransaction): void {
    this.#callers.useAsOne(given, (tx) => {
      for (const { service, body } of entries)
        tx.execute("INSERT INTO millrace_outbox (service, body) VALUES (?, ?)", [service, body]);
      this.#tellLater(tx);
    });
  }

  #tellLater(tx: SyncTransaction): void {
    if (this.#untold.has(tx.client)) return;
    this.#untold.add(tx.client);
    this.#callers.whenEnded(tx, () => {
      this.#untold.delete(tx.client);
      this.#wake.hint("ready");
      ringBells(this.#bell, woke);
    });
  }

  async #close(): Promise<void> {
    this.#callers.close();
    this.#wake.close();
    const worker = this.#worker;
    if (worker === null) return;
    worker.ref();
    const exited = new Promise<void>((resolve) => worker.once("exit", () => resolve()));
    worker.postMessage("close" satisfies OutboxRequest);
    await exited;
  }

  #ask(ask: OutboxAsk): Promise<readonly OutboxRow[]> {
    if (this.#closed !== null) return Promise.reject(this.#ended());
    const worker = this.#thread();
    this.#lastId += 1;
    const id = this.#lastId;
    const answer = new Promise<readonly OutboxRow[]>((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
    });
    // Only somebody who waits for an answer keeps the process alive.
    worker.ref();
    worker.postMessage({ id, ask } satisfies OutboxRequest);
    return answer;
  }

  /** The thread, which is started when it is first needed and again should it have died. */
  #thread(): Worker {
    if (this.#worker !== null) return this.#worker;
    const workerData = { path: this.#path };
    const file = new URL("./outbox-thread.js", import.meta.url);
    const worker = new Worker(file, { workerData, name: "millrace-outbox" });
    worker.on("message", (reply: OutboxReply) => this.#receive(reply));
    worker.on("error", () => {});
    worker.on("exit", () => this.#lost());
    this.#worker = worker;
    return worker;
  }

  #receive(reply: OutboxReply): void {
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if (this.#waiting.size === 0) this.#worker?.unref();
    if ("fault" in reply) waiting?.reject(storeError(reply.fault, this.url));
    else waiting?.resolve(reply.rows);
  }

  #lost(): void {
    this.#worker = null;
    for (const { reject } of this.#waiting.values()) reject(this.#ended());
    this.#waiting.clear();
  }

  #ended(): StoreClosed {
    const message = "The outbox was closed before this call was carried out.";
    return new StoreClosed({ url: this.url, message });
  }
}
