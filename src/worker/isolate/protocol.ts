/**
 * What a worker and the process of a try say to each other: lines of JSON over a socket that only the two hold.
 * The process loads this file before every try, so that it imports nothing at run time.
 */
import type { JobContext } from "../../core/job.js";
import type { Json } from "../../core/json.js";
import type { AbortReason } from "../abort.js";
import type { BlockerOutcome } from "../blockers.js";

/** The file descriptor of the socket in the process. */
export const channelDescriptor = 3;

/** The variable that names the folder of a try to every process of the try, and so tells which try a process is of. */
export const folderVariable = "MILLRACE_TRY_FOLDER";

/** The longest line that a process may send: the largest result, with room for what JSON adds to it. */
export const lineLengthMax = 1024 * 1024;

/** The job as its process gets it. */
export interface JobData {
  readonly id: string;
  readonly type: string;
  readonly queue: string;
  readonly createdAt: number;
  readonly payload: Json;
  readonly prepared?: Json;
  readonly context: JobContext;
  readonly tries: number;
  readonly maxTries: number;
  readonly run: number;
  readonly isRedelivery: boolean;
  readonly tags: readonly string[];
  readonly blockers: { readonly [name: string]: BlockerOutcome };
  readonly deadline?: number;
}

/** What a process may ask its worker to do. */
export const callNames = ["progress", "log", "emit", "heartbeat", "loadDependencies"] as const;
export type CallName = (typeof callNames)[number];

/** A thrown value, as far as it can be told. */
export interface Thrown {
  readonly message: string;
  readonly name?: string;
  readonly code?: string;
  readonly stack?: string;
}

/** What a worker says to a process. */
export type ToProcess =
  | { readonly say: "run"; readonly job: JobData }
  | { readonly say: "abort"; readonly reason: AbortReason }
  | {
      readonly say: "answer";
      readonly call: number;
      readonly value?: unknown;
      readonly error?: Thrown;
    };

/** How a handler in a process ended its try. */
export type Verdict =
  | { readonly say: "returned"; readonly value?: Json }
  | { readonly say: "threw"; readonly error: Thrown }
  | { readonly say: "terminate"; readonly message: string }
  | { readonly say: "skip"; readonly message: string }
  | { readonly say: "snooze"; readonly delayMs: number; readonly reason?: string }
  /** What the handler returned cannot be stored. */
  | { readonly say: "unfit"; readonly message: string };

/** What a process says to its worker. */
export type FromProcess =
  | Verdict
  | { readonly say: "ready" }
  /** The module cannot be loaded, or has no handler. */
  | { readonly say: "unloadable"; readonly error: Thrown }
  /** Something was thrown that nobody caught; the process ends. */
  | { readonly say: "crashed"; readonly error: Thrown }
  | {
      readonly say: "call";
      readonly call: number;
      readonly name: CallName;
      readonly parameters: readonly unknown[];
    };

/** Cuts a stream of text into lines. */
export class Lines {
  readonly #onLine: (line: string) => void;
  #rest = "";

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  /** Takes the next piece of text. Gives false once a line is longer than a line may be. */
  take(text: string): boolean {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#onLine(line);
    return this.#rest.length <= lineLengthMax;
  }
}
