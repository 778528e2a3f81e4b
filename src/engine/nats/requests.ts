/**
 * Requests with one inbox for all of them. The library's own make a timer and two errors for every request, which
 * costs more than the request itself when there are thousands of them in a second. Requests of one call share what
 * waits for their answers.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import type { Incoming } from "./incoming.js";
import { statusOf } from "./raw-headers.js";
import type { Listening, Receiver } from "./receiving.js";
import type { Sender, Sent } from "./sending.js";

/** Is told what became of a request, which is named by its place in the call. */
export interface Asker {
  /** The answer is gone when this returns. */
  readonly answered: (message: Incoming, index: number) => void;
  readonly failed: (error: Error, index: number) => void;
}

/** Requests that wait for their answers. */
interface Waiting {
  readonly requests: readonly Sent[];
  readonly asker: Asker;
  /** Which of them wait no more, and how many still do. */
  readonly isOver: boolean[];
  left: number;
  /** How many looks they may still wait for. */
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

/** What stands between a call and the place of a request in it. */
const divider = "-";
const dividerCode = divider.charCodeAt(0);
const zeroCode = "0".charCodeAt(0);

/** Asks a server. */
export class Requests {
  readonly #connection: NatsConnection;
  readonly #sender: Sender;
  readonly #receiver: Receiver;
  readonly #inbox: string;
  readonly #waiting = new Map<number, Waiting>();
  readonly #losses = new Set<() => void>();
  #subscription: Listening | null = null;
  #timer: NodeJS.Timeout | null = null;
  #count = 0;
  #isAway = false;
  #isHurried = false;

  constructor(options: {
    readonly connection: NatsConnection;
    readonly sender: Sender;
    readonly receiver: Receiver;
    readonly inbox: string;
  }) {
    this.#connection = options.connection;
    this.#sender = options.sender;
    this.#receiver = options.receiver;
    this.#inbox = options.inbox;
    void this.#watch();
  }

  /** Calls when the connection is lost, and with it every answer that is under way. Gives the way to stop. */
  onLost(call: () => void): () => void {
    this.#losses.add(call);
    if (this.#isGivenUp) queueMicrotask(call);
    return () => void this.#losses.delete(call);
  }

  /** Sends a request; gives its answer. What goes wrong is thrown as the library would. */
  ask(subject: string, body: string): Promise<Incoming> {
    return new Promise((resolve, failed) => {
      const answered = (message: Incoming) => resolve(message.kept());
      this.send([{ subject, body }], { answered, failed });
    });
  }

  /** Sends requests, with more headers if any are given, and tells of each what was answered, or what went wrong. */
  send(requests: readonly Sent[], asker: Asker, more?: string): void {
    if (this.#isGivenUp) {
      for (let index = 0; index < requests.length; index++)
        asker.failed(named("ConnectionError", isAway), index);
      return;
    }
    this.#listen();
    const call = this.#count++;
    const isOver = requests.map(() => false);
    const waiting = { requests, asker, isOver, left: requests.length, looksLeft: looksMax };
    this.#waiting.set(call, waiting);
    const reply = `${this.#inbox}.${call}${divider}`;
    for (let index = 0; index < requests.length; index++) {
      const error = this.#sender.send(requests[index] as Sent, reply, index, more);
      if (error !== null && this.#isFirst(call, waiting, index)) asker.failed(error, index);
    }
    this.#sender.sendEarly();
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
    this.#subscription ??= this.#receiver.subscribe(
      `${this.#inbox}.*`,
      (message) => this.#answer(message),
      ({ name, message }) => this.#failAll(name, message),
    );
  }

  /** The end of an answer's subject tells the call and the place of the request in it. */
  #answer(message: Incoming): void {
    const { bytes, subjectAt, subjectEnd } = message;
    let call = 0;
    let index = 0;
    for (let at = subjectAt + this.#inbox.length + 1; at < subjectEnd; at++) {
      const code = bytes[at] ?? 0;
      if (code === dividerCode) {
        call = index;
        index = 0;
      } else index = index * 10 + code - zeroCode;
    }
    const waiting = this.#waiting.get(call);
    if (!waiting || !this.#isFirst(call, waiting, index)) return;
    if (!message.hasData && statusOf(message) === noResponders)
      waiting.asker.failed(named("NoRespondersError", "Nobody is there to answer."), index);
    else waiting.asker.answered(message, index);
  }

  /** Whether nobody has heard of a request yet. */
  #isFirst(call: number, waiting: Waiting, index: number): boolean {
    if (waiting.isOver[index] !== false) return false;
    waiting.isOver[index] = true;
    waiting.left -= 1;
    if (waiting.left === 0) this.#waiting.delete(call);
    return true;
  }

  /** A server says apart from any answer that a user may not publish somewhere, and answers nothing. */
  #refuse(error: Error): void {
    const refused = "subject" in error ? error.subject : undefined;
    for (const [call, waiting] of this.#waiting)
      for (const [index, { subject }] of waiting.requests.entries())
        if (subject === refused && this.#isFirst(call, waiting, index))
          waiting.asker.failed(error, index);
  }

  #look(): void {
    for (const [call, waiting] of this.#waiting) {
      waiting.looksLeft -= 1;
      if (waiting.looksLeft === 0)
        this.#fail(call, waiting, "TimeoutError", "No answer came in time.");
    }
  }

  #failAll(name: string, message: string): void {
    for (const [call, waiting] of this.#waiting) this.#fail(call, waiting, name, message);
  }

  #fail(call: number, waiting: Waiting, name: string, message: string): void {
    for (let index = 0; index < waiting.requests.length; index++)
      if (this.#isFirst(call, waiting, index)) waiting.asker.failed(named(name, message), index);
  }
}

function named(name: string, message: string): Error {
  const error = new Error(message);
  error.name = name;
  return error;
}
