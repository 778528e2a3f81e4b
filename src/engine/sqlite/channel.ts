/**
 * The engine's side of a thread: batches go out, answers come back, one batch at a time.
 */
import { Worker } from "node:worker_threads";
import { type BatchAnswer, Batcher } from "../batching.js";
import { batchMax } from "../engine.js";
import type { Read, Write } from "../sql/operations.js";
import { storeError } from "./faults.js";
import type { Reply, Request, Response, ThreadData, Woke } from "./protocol.js";

/** A thread that carries out operations of one kind. */
export class Channel<Operation extends Write | Read> {
  readonly #url: string;
  readonly #now: () => number | null;
  readonly #onWoke: (woke: Woke) => void;
  readonly #worker: Worker;
  readonly #role: ThreadData["role"];
  readonly #batcher: Batcher<Operation, unknown>;
  readonly #answers = new Map<
    number,
    { resolve: (response: Response) => void; reject: (error: unknown) => void }
  >();
  readonly #opened: Promise<void>;
  #lastId = 0;
  #closed: Promise<void> | null = null;

  constructor(options: {
    readonly url: string;
    readonly path: string;
    readonly role: ThreadData["role"];
    readonly now: () => number | null;
    readonly onWoke?: (woke: Woke) => void;
  }) {
    this.#url = options.url;
    this.#now = options.now;
    this.#role = options.role;
    this.#onWoke = options.onWoke ?? (() => {});
    const workerData: ThreadData = { path: options.path, role: options.role };
    this.#worker = new Worker(new URL("./thread.js", import.meta.url), {
      workerData,
      name: `millrace-${options.role}`,
    });
    this.#batcher = new Batcher<Operation, unknown>((items) => this.#send(items), {
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
    this.#worker.on("exit", () => this.#fail(null));
  }

  /** Resolves when the file is open and of the right schema; rejects with the store's fault. */
  opened(): Promise<void> {
    return this.#opened;
  }

  /** Carries out one operation with the next batch. */
  call(operation: Operation): Promise<unknown> {
    if (this.#closed !== null) return Promise.reject(this.#closedError());
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
    const exited = new Promise<void>((resolve) => this.#worker.once("exit", () => resolve()));
    this.#worker.ref();
    this.#worker.postMessage("close");
    await exited;
  }

  async #send(operations: readonly Operation[]): Promise<readonly BatchAnswer<unknown>[]> {
    await this.#opened;
    this.#lastId += 1;
    const id = this.#lastId;
    const request = (
      this.#role === "writer"
        ? { id, now: this.#now(), writes: operations }
        : { id, now: this.#now(), reads: operations }
    ) as Request;
    const answer = this.#expect(id);
    this.#worker.postMessage(request);
    const { replies } = await answer;
    return replies.map((reply) => this.#answerOf(reply));
  }

  #answerOf(reply: Reply): BatchAnswer<unknown> {
    return "fault" in reply ? { fault: storeError(reply.fault, this.#url) } : reply;
  }

  #expect(id: number): Promise<Response> {
    this.#worker.ref();
    return new Promise((resolve, reject) => this.#answers.set(id, { resolve, reject }));
  }

  #receive(response: Response): void {
    const waiting = this.#answers.get(response.id);
    this.#answers.delete(response.id);
    if (this.#answers.size === 0) this.#worker.unref();
    waiting?.resolve(response);
    if (response.woke) this.#onWoke(response.woke);
  }

  /** The thread has ended, or died: nobody will answer any more. */
  #fail(error: unknown): void {
    const reason = error ?? this.#closedError();
    for (const { reject } of this.#answers.values()) reject(reason);
    this.#answers.clear();
    this.#closed ??= Promise.resolve();
  }

  #closedError(): Error {
    return storeError(
      { kind: "closed", message: "The store was closed before this call was carried out." },
      this.#url,
    );
  }
}

function weigh(operation: Write | Read): number {
  if (!("items" in operation)) return 1;
  return operation.kind === "claim"
    ? operation.items.reduce((sum, ask) => sum + ask.limit, 0)
    : operation.items.length;
}
