/**
 * Requests with one inbox for all of them. The library's own make a timer and two errors for every request, which
 * costs more than the request itself when there are thousands of them in a second.
 */
import type { Msg, MsgHdrs, NatsConnection, Subscription } from "@nats-io/transport-node";
import { statusOf } from "./raw-headers.js";

/** A request that waits for its answer. */
interface Waiting {
  readonly subject: string;
  readonly resolve: (answer: Msg) => void;
  readonly reject: (error: Error) => void;
  /** How many looks it may still wait for. */
  looksLeft: number;
}

/** How often requests are looked at that have had no answer, and how many looks one waits. */
const lookMs = 500;
const looksMax = 10;

/** The status of a request that nobody was there to answer. */
const noResponders = 503;

/** Asks a server. */
export class Requests {
  readonly #connection: NatsConnection;
  readonly #inbox: string;
  readonly #waiting = new Map<string, Waiting>();
  readonly #losses = new Set<() => void>();
  #subscription: Subscription | null = null;
  #timer: NodeJS.Timeout | null = null;
  #count = 0;

  constructor(connection: NatsConnection, inbox: string) {
    this.#connection = connection;
    this.#inbox = inbox;
    void this.#watch();
  }

  /** Calls when the connection is lost, and with it every answer that is under way. Gives the way to stop. */
  onLost(call: () => void): () => void {
    this.#losses.add(call);
    return () => void this.#losses.delete(call);
  }

  /** Sends a request; gives its answer. What goes wrong is thrown as the library would. */
  ask(subject: string, body: string, headers?: MsgHdrs): Promise<Msg> {
    this.#listen();
    const token = (this.#count++).toString(36);
    const reply = `${this.#inbox}.${token}`;
    return new Promise((resolve, reject) => {
      this.#waiting.set(token, { subject, resolve, reject, looksLeft: looksMax });
      try {
        this.#connection.publish(subject, body, headers ? { reply, headers } : { reply });
      } catch (error) {
        this.#waiting.delete(token);
        reject(error as Error);
      }
    });
  }

  /** Answers nobody any more. */
  close(): void {
    if (this.#timer) clearInterval(this.#timer);
    this.#timer = null;
    this.#failAll("ClosedConnectionError", "The connection was closed.");
  }

  /** What was asked over a connection that is lost is answered by nobody, and it is not worth waiting for. */
  async #watch(): Promise<void> {
    for await (const status of this.#connection.status()) {
      if (status.type === "error") this.#refuse(status.error);
      if (status.type !== "disconnect") continue;
      this.#failAll("TimeoutError", "The connection was lost before an answer came.");
      for (const call of [...this.#losses]) call();
    }
  }

  #listen(): void {
    if (this.#timer === null) {
      this.#timer = setInterval(() => this.#look(), lookMs);
      this.#timer.unref();
    }
    this.#subscription ??= this.#connection.subscribe(`${this.#inbox}.*`, {
      callback: (error, message) => {
        if (error) this.#failAll(error.name, error.message);
        else this.#answer(message);
      },
    });
  }

  #answer(message: Msg): void {
    const token = message.subject.slice(this.#inbox.length + 1);
    const waiting = this.#waiting.get(token);
    if (!waiting) return;
    this.#waiting.delete(token);
    if (message.data.length === 0 && statusOf(message) === noResponders)
      waiting.reject(named("NoRespondersError", "Nobody is there to answer."));
    else waiting.resolve(message);
  }

  /** A server says apart from any answer that a user may not publish somewhere, and answers nothing. */
  #refuse(error: Error): void {
    const subject = "subject" in error ? error.subject : undefined;
    for (const [token, waiting] of this.#waiting) {
      if (waiting.subject !== subject) continue;
      this.#waiting.delete(token);
      waiting.reject(error);
    }
  }

  #look(): void {
    for (const [token, waiting] of this.#waiting) {
      waiting.looksLeft -= 1;
      if (waiting.looksLeft > 0) continue;
      this.#waiting.delete(token);
      waiting.reject(named("TimeoutError", "No answer came in time."));
    }
  }

  #failAll(name: string, message: string): void {
    for (const { reject } of this.#waiting.values()) reject(named(name, message));
    this.#waiting.clear();
  }
}

function named(name: string, message: string): Error {
  const error = new Error(message);
  error.name = name;
  return error;
}
