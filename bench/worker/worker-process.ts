// The parent's end of a worker process.
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import type { Entry, EntryListener, Usage, WorkerCalls } from "./calls.js";
import type { Question } from "./process.js";

type Message =
  | { readonly kind: "entry"; readonly entry: Entry }
  | { readonly kind: "count"; readonly count: number }
  | { readonly kind: "answer"; readonly value: unknown }
  | { readonly kind: "failure"; readonly message: string };

/** Asks a worker process, and hears what it tells. */
export class WorkerProcess implements WorkerCalls {
  readonly ready: Promise<unknown>;
  readonly #child: ChildProcess;
  readonly #waiting: { resolve(value: unknown): void; reject(error: Error): void }[] = [];

  constructor(child: ChildProcess, listener: EntryListener, onEarlyEnd: (error: Error) => void) {
    this.#child = child;
    child.on("message", (message: Message) => this.#hear(message, listener));
    child.on("exit", (code, signal) => {
      const error = new Error(`the worker process ended early (${signal ?? `exit code ${code}`})`);
      for (const { reject } of this.#waiting.splice(0)) reject(error);
      onEarlyEnd(error);
    });
    this.ready = this.#nextAnswer();
  }

  async open(): Promise<void> {
    await this.#ask("open");
  }

  async start(): Promise<void> {
    await this.#ask("start");
  }

  usage(): Promise<Usage> {
    return this.#ask("usage") as Promise<Usage>;
  }

  async stop(): Promise<void> {
    await this.#ask("stop");
  }

  /** Ends the process, if it has not ended by itself. */
  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await exited;
  }

  #ask(question: Question): Promise<unknown> {
    this.#child.send(question);
    return this.#nextAnswer();
  }

  #nextAnswer(): Promise<unknown> {
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  #hear(message: Message, listener: EntryListener): void {
    switch (message.kind) {
      case "entry":
        listener.onEntry(message.entry);
        break;
      case "count":
        listener.onCount(message.count);
        break;
      case "answer":
        this.#waiting.shift()?.resolve(message.value);
        break;
      case "failure":
        this.#waiting.shift()?.reject(new Error(`worker process: ${message.message}`));
        break;
    }
  }
}
