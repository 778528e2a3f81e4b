/**
 * The job on the side of its process: what the worker sent of it, and calls that go back to the worker.
 */
import type { Socket } from "node:net";
import type { AbortReason } from "../abort.js";
import type { IsolatedJob } from "./isolated-job.js";
import {
  type CallName,
  type FromProcess,
  type JobData,
  lineLengthMax,
  type Thrown,
  type ToProcess,
} from "./protocol.js";

interface Call {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** Speaks to the worker. */
export class ProcessChannel {
  readonly #socket: Socket;
  readonly #calls = new Map<number, Call>();
  readonly #controller = new AbortController();
  #lastCall = 0;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  send(message: FromProcess): void {
    this.#socket.write(lineOf(message));
  }

  /** Takes the worker's answer to a call. */
  answered({ call, value, error }: Extract<ToProcess, { say: "answer" }>): void {
    const open = this.#calls.get(call);
    this.#calls.delete(call);
    if (error === undefined) open?.resolve(value);
    else open?.reject(Object.assign(new Error(error.message), withoutStack(error)));
  }

  /** The worker wants the handler to stop. */
  async abort(jobId: string, reason: AbortReason): Promise<void> {
    // Few tries are aborted, and the others should not wait for this to load.
    const { jobAborted } = await import("../abort.js");
    this.#controller.abort(jobAborted(jobId, reason));
  }

  /** The job as its handler gets it. */
  job(data: JobData): IsolatedJob<unknown> {
    const call =
      (name: CallName) =>
      (...parameters: readonly unknown[]) =>
        this.#call(name, parameters) as Promise<never>;
    return {
      ...data,
      prepared: data.prepared,
      deadline: data.deadline,
      signal: this.#controller.signal,
      progress: call("progress"),
      log: call("log"),
      emit: call("emit"),
      heartbeat: call("heartbeat"),
      loadDependencies: call("loadDependencies"),
    };
  }

  #call(name: CallName, parameters: readonly unknown[]): Promise<unknown> {
    const answer = new Promise((resolve, reject) => {
      const call = ++this.#lastCall;
      const line = lineOf({ say: "call", call, name, parameters });
      // A longer one would be taken for nonsense.
      if (line.length > lineLengthMax)
        throw new RangeError(`${name} takes at most ${lineLengthMax} characters.`);
      this.#calls.set(call, { resolve, reject });
      this.#socket.write(line);
    });
    // A handler may leave what it says unawaited; a refusal must not end the process then.
    answer.catch(() => {});
    return answer;
  }
}

function lineOf(message: FromProcess): string {
  return `${JSON.stringify(message)}\n`;
}

/** The stack of an answer is the worker's, where a handler finds nothing that it knows. */
function withoutStack({ stack: _, ...error }: Thrown): Omit<Thrown, "stack"> {
  return error;
}
