/**
 * Requests with one inbox for all of them. The library's own make a timer and two errors for every request, which
 * costs more than the request itself when there are thousands of them in a second.
 */
import type { Msg, NatsConnection, Subscription } from "@nats-io/transport-node";
import { statusOf } from "./raw-headers.js";
import type { Sender, Sent } from "./sending.js";

/** A request that waits for its answer. */
interface Waiting {
  readonly subject: string;
  readonly answer: (answer: Msg) => void;
  readonly fail: (error: Error) => void;
  /** How many looks it may still wait for. */
  looksLeft: number;
}

/** How often requests are looked at that have had no answer, and how many looks one waits. */
const lookMs = 500;
const looksMax = 10;

/** The status of a request that nobody was there to answer. */
const noResponders = 503;

/** What is said to those who ask a server that is away while the store is closed. */
const isAway =
  "it is away, and the store is closed; whether it did what was asked before is not known";

/** Asks a server. */
export class Requests {
  readonly #connection: NatsConnection;
  readonly #sender: Sender;
  readonly #inbox: string;
  readonly #waiting = new Map<string, Waiting>();
  readonly #losses = new Set<() => void>();
  #subscription: Subscription | null = null;
  #timer: NodeJS.Timeout | null = null;
  #count = 0;
  #isAway = false;
  #isHurried = false;

  constructor(connection: NatsConnection, sender: Sender, inbox: string) {
    this.#connection = connection;
    this.#sender = sender;
    this.#inbox = inbox;
    void this.#watch();
  }

  /** Calls when the connection is lost, and with it every answer that is under way. Gives the way to stop. */
  onLost(call: () => void): () => void {
    this.#losses.add(call);
    if (this.#isGivenUp) queueMicrotask(call);
    return () => void this.#losses.delete(call);
  }

  /** Sends a request; gives its answer. What goes wrong is thrown as the library would. */
  ask(subject: string, body: string): Promise<Msg> {
    return new Promise((answer, fail) => this.send({ subject, body }, answer, fail));
  }

  /** Sends a request, and calls with its answer, or with what went wrong. */
  send(
    request: Pick<Sent, "subject" | "body" | "headers">,
    answer: (message: Msg) => void,
    fail: (error: Error) => void,
  ): void {
    if (this.#isGivenUp) {
      fail(named("ConnectionError", isAway));
      return;
    }
    this.#listen();
    const token = (this.#count++).toString(36);
    const { subject, body, headers } = request;
    const reply = `${this.#inbox}.${token}`;
    this.#waiting.set(token, { subject, answer, fail, looksLeft: looksMax });
    const failed = (error: Error) => {
      this.#waiting.delete(token);
      fail(error);
    };
    this.#sender.send({ subject, body, reply, headers, failed });
  }

  /** Whether the store is about to be closed, so that nothing is worth asking twice. */
  get isHurried(): boolean {
    return this.#isHurried;
  }

  /** From now on nobody waits for a server that is away. */
  hurry(): void {
    this.#isHurried = true;
    if (this.#isAway) this.#lose();
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
      if (status.type === "reconnect") this.#isAway = false;
      if (status.type !== "disconnect") continue;
      this.#isAway = true;
      this.#lose();
    }
  }

  /** Whether nobody waits for the server any more. */
  get #isGivenUp(): boolean {
    return this.#isAway && this.#isHurried;
  }

  #lose(): void {
    if (this.#isHurried) this.#failAll("ConnectionError", isAway);
    else this.#failAll("TimeoutError", "The connection was lost before an answer came.");
    for (const call of [...this.#losses]) call();
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
      waiting.fail(named("NoRespondersError", "Nobody is there to answer."));
    else waiting.answer(message);
  }

  /** A server says apart from any answer that a user may not publish somewhere, and answers nothing. */
  #refuse(error: Error): void {
    const subject = "subject" in error ? error.subject : undefined;
    for (const [token, waiting] of this.#waiting) {
      if (waiting.subject !== subject) continue;
      this.#waiting.delete(token);
      waiting.fail(error);
    }
  }

  #look(): void {
    for (const [token, waiting] of this.#waiting) {
      waiting.looksLeft -= 1;
      if (waiting.looksLeft > 0) continue;
      this.#waiting.delete(token);
      waiting.fail(named("TimeoutError", "No answer came in time."));
    }
  }

  #failAll(name: string, message: string): void {
    for (const { fail } of this.#waiting.values()) fail(named(name, message));
    this.#waiting.clear();
  }
}

function named(name: string, message: string): Error {
  const error = new Error(message);
  error.name = name;
  return error;
}
