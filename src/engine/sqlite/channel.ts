/**
 * The engine's side of a thread: batches go out, answers come back, in order.
 */
import { Worker } from "node:worker_threads";
import { type BatchAnswer, Batcher } from "../batching.js";
import { type AppendOutcome, batchMax } from "../engine.js";
import { Wakeful } from "../wakeful.js";
import { storeError } from "./faults.js";
import {
  isLone,
  type Operation,
  type Reply,
  type Response,
  type Sent,
  type ThreadData,
  type Woke,
  weigh,
} from "./protocol.js";

/** How long the answer to a single write is waited for without sleeping. */
const answerMaxMs = 0.5;

/** A thread that carries out operations of one kind. */
export class Channel<Asked extends Operation> {
  readonly #url: string;
  readonly #now: () => number | null;
  readonly #onWoke: (woke: Woke) => void;
  readonly #worker: Worker;
  readonly #sentCount = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  readonly #role: ThreadData["role"];
  readonly #batcher: Batcher<Asked, unknown>;
  readonly #answers = new Map<
    number,
    { resolve: (response: Response) => void; reject: (error: unknown) => void }
  >();
  readonly #wakeful = new Wakeful(answerMaxMs);
  readonly #opened: Promise<void>;
  readonly #exited: Promise<void>;
  #lastId = 0;
  /** Why nobody will answer any more. */
  #dead: Error | null = null;
  #closed: Promise<void> | null = null;

  constructor(options: {
    readonly url: string;
    /** The file that the thread runs. */
    readonly thread: URL;
    readonly path: string;
    readonly role: ThreadData["role"];
    readonly now: () => number | null;
    readonly onWoke?: (woke: Woke) => void;
  }) {
    this.#url = options.url;
    this.#now = options.now;
    this.#role = options.role;
    this.#onWoke = options.onWoke ?? (() => {});
    const workerData: ThreadData = {
      path: options.path,
      role: options.role,
      sentCount: this.#sentCount,
    };
    this.#worker = new Worker(options.thread, {
      workerData,
      name: `millrace-${options.role}`,
    });
    this.#batcher = new Batcher<Asked, unknown>((items) => this.#send(items), {
      weightMax: batchMax,
      weigh,
    });
    this.#opened = this.#expect(0).then(({ replies }) => {
      const [reply] = replies;
      if (reply && "fault" in reply) throw storeError(reply.fault, this.#url);
    });
    this.#opened.catch(() => {});
    this.#worker.on("message", (response: Response) => this.#receive(response));
    this.#worker.on("error", (error) => this.#fail(error));
    this.#exited = new Promise((resolve) => {
      this.#worker.on("exit", () => {
        this.#fail(null);
        resolve();
      });
    });
  }

  /** Whether the thread has ended without being asked to. */
  get isDead(): boolean {
    return this.#dead !== null && this.#closed === null;
  }

  /** How many operations wait for the batch under way. */
  get waiting(): number {
    return this.#batcher.waiting;
  }

  /** Resolves when the file is open and of the right schema; rejects with the store's fault. */
  opened(): Promise<void> {
    return this.#opened;
  }

  /** Carries out one operation with the next batch. */
  call(operation: Asked): Promise<unknown> {
    if (this.#closed !== null) return Promise.reject(this.#closedError());
    if (this.#dead) return Promise.reject(this.#dead);
    return this.#batcher.call(operation);
  }

  /** Waits for what was asked before, then ends the thread. */
  close(): Promise<void> {
    this.#closed ??= this.#end();
    return this.#closed;
  }

  async #end(): Promise<void> {
    await this.#opened.catch(() => {});
    await this.#batcher.idle();
    this.#worker.ref();
    this.#post("close");
    await this.#exited;
  }

  #post(request: Sent): void {
    this.#worker.postMessage(request);
    Atomics.add(this.#sentCount, 0, 1);
  }

  async #send(operations: readonly Asked[]): Promise<readonly BatchAnswer<unknown>[]> {
    await this.#opened;
    if (this.#dead) throw this.#dead;
    this.#lastId += 1;
    const id = this.#lastId;
    const now = this.#now();
    const answer = this.#expect(id);
    const all = together(operations);
    if (this.#role === "writer") {
      this.#post({ id, now, writes: all === null ? operations : [all] });
      if (isLone(operations)) this.#wakeful.asked();
    } else this.#post({ id, now, reads: operations });
    const { replies } = await answer;
    const each = all === null ? replies : apart(replies[0], operations);
    return each.map((reply, index) => this.#answerOf(reply, operations[index]));
  }

  #answerOf(reply: Reply, operation: Asked | undefined): BatchAnswer<unknown> {
    if ("answer" in reply) return reply;
    if ("fault" in reply) return { fault: storeError(reply.fault, this.#url) };
    const answers: unknown[] = [];
    for (const item of reply.items) {
      if ("answer" in item) {
        answers.push(item.answer);
        continue;
      }
      const error = storeError(item.fault, this.#url);
      if (!operation || !appends.has(operation.kind)) return { fault: error };
      answers.push({ outcome: "faulted", error } satisfies AppendOutcome);
    }
    return { answer: answers };
  }

  #expect(id: number): Promise<Response> {
    this.#worker.ref();
    return new Promise((resolve, reject) => this.#answers.set(id, { resolve, reject }));
  }

  #receive(response: Response): void {
    this.#wakeful.answered();
    const waiting = this.#answers.get(response.id);
    this.#answers.delete(response.id);
    if (this.#answers.size === 0) this.#worker.unref();
    waiting?.resolve(response);
    if (response.woke) this.#onWoke(response.woke);
  }

  /** The thread has ended, or died: nobody will answer any more. */
  #fail(error: unknown): void {
    this.#dead ??= this.#closed === null ? this.#deathError(error) : this.#closedError();
    for (const { reject } of this.#answers.values()) reject(this.#dead);
    this.#answers.clear();
  }

  #deathError(error: unknown): Error {
    const reason = error instanceof Error ? error.message : "it ended by itself";
    const message = `The thread that has the file open is gone (${reason}). Connect again.`;
    return storeError({ kind: "unavailable", message }, this.#url);
  }

  #closedError(): Error {
    return storeError(
      { kind: "closed", message: "The store was closed before this call was carried out." },
      this.#url,
    );
  }
}

/** The operations that answer for each of their items, also for one that failed. */
const appends: ReadonlySet<string> = new Set(["create", "append", "settle", "end"]);

/**
 * Creates of many callers as one of all their jobs; `null` where there is anything else. V8 takes twice as long to write and to
 * read many operations of one job each.
 */
function together(operations: readonly Operation[]): Operation | null {
  if (operations.length < 2) return null;
  const items: unknown[] = [];
  for (const { kind, items: own } of operations) {
    if (kind !== "create" || own === undefined) return null;
    for (const item of own) items.push(item);
  }
  return { kind: "create", items };
}

/** The reply to such a one, for each of its operations. */
function apart(reply: Reply | undefined, operations: readonly Operation[]): readonly Reply[] {
  if (reply === undefined || "fault" in reply) return reply ? operations.map(() => reply) : [];
  const replies: Reply[] = [];
  let start = 0;
  for (const { items = [] } of operations) {
    const end = start + items.length;
    replies.push(
      "items" in reply
        ? { items: reply.items.slice(start, end) }
        : { answer: (reply.answer as readonly unknown[]).slice(start, end) },
    );
    start = end;
  }
  return replies;
}
