/**
 * Reading a stream by consumers that live no longer than the reading: all that is there now, or that and what comes.
 * They push to an inbox, so that reading takes one request, whose subject names the filter and can be permitted.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import type { EventName } from "../../core/event.js";
import { appliedMax, type PackedEvents, Packer } from "../projection/packed.js";
import { leaseHeader } from "./entry.js";
import type { Incoming } from "./incoming.js";
import type { StoredMessage } from "./port.js";
import { firstHeader, HeaderLines, HeaderName, hasHeader, statusOf } from "./raw-headers.js";
import type { Listening, Receiver } from "./receiving.js";

/** Where is read from. */
export interface ReadingFrom {
  readonly connection: NatsConnection;
  readonly receiver: Receiver;
  readonly stream: string;
  /** Where a direct get of many messages is asked for. */
  readonly directSubject: string;
  readonly newInbox: () => string;
  /** Calls when the connection is lost. Gives the way to stop. */
  readonly onLost: (call: () => void) => () => void;
  readonly newName: () => string;
  /** Makes a consumer, and gives how many messages wait for it. */
  readonly create: (subject: string, body: object) => Promise<number>;
}

/** How long a consumer outlives its reader, in nanoseconds. */
const outlivesNs = 1e9;

/** How long a reader waits for the next message of those that are there. */
const stallMs = 5_000;

/** How often a server says that it is there while nothing comes, and how many of these signs may be missed. */
const heartbeatMs = 2_000;
const missedMax = 3;

/** The most messages that are handed over at once. */
const chunkMax = appliedMax;

/** From so many messages on that nobody has taken yet, the server is not asked for more. */
const waitingMax = 2 * appliedMax;

const noMessage = 100;

function consumerOf(from: ReadingFrom, filter: string, inbox: string, extra: object) {
  const name = from.newName();
  const config = {
    name,
    filter_subject: filter,
    deliver_subject: inbox,
    ack_policy: "none",
    mem_storage: true,
    num_replicas: 1,
    inactive_threshold: outlivesNs,
    ...extra,
  };
  const subject = `CONSUMER.CREATE.${from.stream}.${name}.${filter}`;
  return from.create(subject, { stream_name: from.stream, config });
}

/** How many messages one direct get asks for. */
const directMax = 1_000;

/** What ends the messages of a direct get: all were sent, or there are none. */
const endOfBatch = 204;
const notFound = 404;

/** The status of a request that nobody was there to answer. */
const nobodyThere = 503;

/** Where a server says how many messages of a direct get are left. */
const pendingHeader = new HeaderName("Nats-Num-Pending");

/** What a direct get of many messages gave; `null` if the server refuses to give so many. */
type DirectAnswer = {
  readonly messages: readonly StoredMessage[];
  readonly pending: number;
} | null;

/** All messages under a filter, by direct get: cheaper than a consumer, for those who may read everything. */
export async function readDirect(
  from: ReadingFrom,
  filter: string,
): Promise<readonly StoredMessage[]> {
  const messages: StoredMessage[] = [];
  for (let seq = 1; ; seq = (messages.at(-1)?.seq ?? 0) + 1) {
    const answer = await getDirect(from, { seq, next_by_subj: filter, batch: directMax });
    if (answer === null) throw timeout();
    messages.push(...answer.messages);
    if (answer.pending === 0) return messages;
  }
}

/** The newest message of each subject under some filters. */
export async function readLastOfEach(
  from: ReadingFrom,
  filters: readonly string[],
): Promise<readonly StoredMessage[] | null> {
  return (await getDirect(from, { multi_last: filters }))?.messages ?? null;
}

/** Asks for many messages at once. */
function getDirect(from: ReadingFrom, request: object): Promise<DirectAnswer> {
  const inbox = from.newInbox();
  const messages: StoredMessage[] = [];
  return new Promise((resolve, reject) => {
    const finish = (end: () => void) => {
      clearTimeout(timer);
      forget();
      subscription.unsubscribe();
      end();
    };
    const giveUp = () => finish(() => reject(timeout()));
    const timer = setTimeout(giveUp, stallMs);
    const forget = from.onLost(giveUp);
    const heard = (message: Incoming) => {
      // What the server itself says has no body, and reading headers is dear.
      const code = message.hasData ? 0 : (statusOf(message) ?? 0);
      timer.refresh();
      if (code === endOfBatch) {
        const pending = Number(firstHeader(message, pendingHeader) ?? 0);
        finish(() => resolve({ messages, pending }));
      } else if (code === notFound) finish(() => resolve({ messages, pending: 0 }));
      else if (code === nobodyThere) finish(() => reject(noResponders()));
      else if (code > 0) finish(() => resolve(null));
      else messages.push(directMessage(message));
    };
    const subscription = from.receiver.subscribe(inbox, heard, (error) =>
      finish(() => reject(error)),
    );
    from.connection.publish(from.directSubject, JSON.stringify(request), { reply: inbox });
  });
}

/** All messages under a filter, or the newest of each subject, by a consumer whose filter can be permitted. */
export async function readAll(
  from: ReadingFrom,
  filter: string,
  which: "all" | "last_per_subject" = "all",
): Promise<readonly StoredMessage[]> {
  const inbox = from.newInbox();
  const messages: StoredMessage[] = [];
  let finish: (error?: Error) => void = () => {};
  const finished = new Promise<void>((resolve, reject) => {
    finish = (error) => (error ? reject(error) : resolve());
  });
  finished.catch(() => {});
  let timer: NodeJS.Timeout | undefined;
  const forget = from.onLost(() => finish(timeout()));
  const heard = (message: Incoming) => {
    if (!message.hasData && statusOf(message)) return;
    const { seq, pending } = placeOf(message);
    messages.push(storedMessage(message, seq));
    timer?.refresh();
    if (pending === 0) finish();
  };
  const subscription = from.receiver.subscribe(inbox, heard, finish);
  try {
    const count = await consumerOf(from, filter, inbox, { deliver_policy: which });
    if (count === 0) return [];
    timer = setTimeout(() => finish(timeout()), stallMs);
    await finished;
    return messages;
  } finally {
    clearTimeout(timer);
    forget();
    subscription.unsubscribe();
  }
}

function timeout(): Error {
  return named("TimeoutError", "The server stopped sending in the middle.");
}

function noResponders(): Error {
  return named("NoRespondersError", "Nobody is there to answer.");
}

/** An error as the library names it. */
function named(name: string, message: string): Error {
  const error = new Error(message);
  error.name = name;
  return error;
}

/** Takes messages as they come, and gives them on, many at once. */
interface Gathering<Batch> {
  /** How many wait. */
  readonly count: number;
  /** Takes a message, and how many the server has behind it. */
  add(message: Incoming, seq: number, pending: number): void;
  /** Takes the oldest; `null` when there are none. */
  take(): { readonly batch: Batch; readonly last: number } | null;
}

/** Gathers messages as the engine sees them. */
export class Messages implements Gathering<readonly StoredMessage[]> {
  readonly #waiting: StoredMessage[] = [];

  get count(): number {
    return this.#waiting.length;
  }

  add(message: Incoming, seq: number): void {
    this.#waiting.push(storedMessage(message, seq));
  }

  take() {
    const batch = this.#waiting.splice(0, chunkMax);
    const last = batch.at(-1)?.seq;
    return last === undefined ? null : { batch, last };
  }
}

/** Gathers events as the bytes that they are, for whoever applies them elsewhere. */
export class Packs implements Gathering<PackedEvents> {
  readonly #packer = new Packer();
  #pending = 0;

  get count(): number {
    return this.#packer.count;
  }

  add(message: Incoming, seq: number, pending: number): void {
    const { subject } = message;
    this.#pending = pending;
    const isStart = subject.endsWith(startedEnding);
    const leaseUntil = isStart ? Number(firstHeader(message, leaseName) ?? 0) : undefined;
    this.#packer.add(seq, subject, isAnswer(message) ? noBytes : message.data, leaseUntil);
  }

  take() {
    const batch = this.#packer.take();
    if (batch === null) return null;
    const behind = this.#packer.count + this.#pending;
    return { batch: { ...batch, behind }, last: batch.last };
  }
}

const noBytes = new Uint8Array();
const leaseName = new HeaderName(leaseHeader);
const startedEnding = ".started" satisfies `.${EventName}`;

/** Messages under a filter after a position, then live. A reader that loses its place begins anew where it was. */
export async function* follow<Batch>(
  from: ReadingFrom,
  filter: string,
  after: number,
  signal: AbortSignal,
  gather: () => Gathering<Batch>,
): AsyncIterable<Batch> {
  let last = after;
  while (!signal.aborted) {
    const run = new Run(from, signal, gather());
    try {
      await run.start(filter, last + 1);
      for (let taken = await run.next(); taken !== null; taken = await run.next()) {
        last = taken.last;
        yield taken.batch;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (from.connection.isClosed()) throw error;
      await pause(signal);
    } finally {
      run.stop();
    }
  }
}

/** How long a reader waits before it begins anew after a fault. */
const againMs = 250;

function pause(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, againMs);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}

/** One consumer that pushes, from a position until it is lost or no longer wanted. */
class Run<Batch> {
  readonly #from: ReadingFrom;
  readonly #signal: AbortSignal;
  readonly #gathering: Gathering<Batch>;
  #wake: (() => void) | null = null;
  #expected = 1;
  #isOver = false;
  /** Where the server wants to hear that it may send more. */
  readonly #asked = new Set<string>();
  #subscription: Listening | null = null;
  #timer: NodeJS.Timeout | undefined;
  /** How many looks in a row have found that nothing came, not even a sign of life. */
  #missed = 0;

  constructor(from: ReadingFrom, signal: AbortSignal, gathering: Gathering<Batch>) {
    this.#from = from;
    this.#gathering = gathering;
    this.#signal = signal;
    signal.addEventListener("abort", this.#end);
  }

  async start(filter: string, seq: number): Promise<void> {
    const inbox = this.#from.newInbox();
    const heard = (message: Incoming) => this.#take(message);
    this.#subscription = this.#from.receiver.subscribe(inbox, heard, this.#end);
    // A timer that begins anew with each message would cost more than the message.
    this.#timer = setInterval(() => this.#look(), heartbeatMs);
    this.#timer.unref();
    await consumerOf(this.#from, filter, inbox, {
      deliver_policy: "by_start_sequence",
      opt_start_seq: seq,
      flow_control: true,
      idle_heartbeat: heartbeatMs * 1e6,
    });
  }

  /** The next messages in order, or `null` when this consumer gives no more. */
  async next(): Promise<ReturnType<Gathering<Batch>["take"]>> {
    while (this.#gathering.count === 0) {
      if (this.#isOver) return null;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const taken = this.#gathering.take();
    if (this.#gathering.count < waitingMax) this.#goOn();
    return taken;
  }

  stop(): void {
    this.#end();
    clearInterval(this.#timer);
    this.#signal.removeEventListener("abort", this.#end);
    this.#subscription?.unsubscribe();
  }

  readonly #end = () => {
    this.#isOver = true;
    this.#tell();
  };

  /** Wakes whoever waits, once: what was resolved already costs more to resolve again than a message. */
  #tell(): void {
    const wake = this.#wake;
    if (wake === null) return;
    this.#wake = null;
    wake();
  }

  #look(): void {
    this.#missed += 1;
    if (this.#missed > missedMax) this.#end();
  }

  #take(message: Incoming): void {
    if (this.#isOver) return;
    this.#missed = 0;
    // Events have bodies, and what the server itself says has none; reading headers is dear.
    if (!message.hasData && statusOf(message) === noMessage) {
      this.#control(message);
      return;
    }
    const { seq, consumerSeq, pending } = placeOf(message);
    // A gap: the server sent what never came. Whatever came before it counts.
    if (consumerSeq !== this.#expected) {
      this.#end();
      return;
    }
    this.#expected += 1;
    this.#gathering.add(message, seq, pending);
    this.#tell();
  }

  /** A sign of life, which tells how much was sent, or a question whether the reader keeps up. */
  #control(message: Incoming): void {
    if (message.hasReply) this.#asked.add(message.reply);
    const sent = firstHeader(message, sentHeader);
    if (sent && Number(sent) >= this.#expected) this.#end();
    const stalled = firstHeader(message, stalledHeader);
    if (stalled) this.#asked.add(stalled);
    if (this.#gathering.count < waitingMax) this.#goOn();
  }

  /** Lets the server send more. */
  #goOn(): void {
    for (const subject of this.#asked) this.#from.connection.publish(subject);
    this.#asked.clear();
  }
}

/** Where a sign of life tells how much was sent, and where to say that more may come. */
const sentHeader = new HeaderName("Nats-Last-Consumer");
const stalledHeader = new HeaderName("Nats-Consumer-Stalled");

/** What the reply subject of a message tells of its place. */
export interface MessagePlace {
  readonly delivered: number;
  readonly seq: number;
  readonly consumerSeq: number;
  readonly pending: number;
}

/** How many tokens a reply subject has that names no domain, and where its numbers begin then and otherwise. */
const shortReply = 9;
const shortFrom = 4;
const longFrom = 6;

/** Reads the reply subject of a message. Every message has one, and so it is read digit by digit. */
export function placeOf({ bytes, replyAt, replyEnd }: Incoming): MessagePlace {
  let tokens = 1;
  for (let at = replyAt; at < replyEnd; at++) if (bytes[at] === dotCode) tokens += 1;
  const place = { delivered: 0, seq: 0, consumerSeq: 0, pending: 0 };
  let token = tokens === shortReply ? -shortFrom : -longFrom;
  for (let at = replyAt; at < replyEnd; at++) {
    const code = bytes[at] ?? 0;
    const digit = code - zeroCode;
    if (code === dotCode) token += 1;
    else if (token === 0) place.delivered = place.delivered * 10 + digit;
    else if (token === 1) place.seq = place.seq * 10 + digit;
    else if (token === 2) place.consumerSeq = place.consumerSeq * 10 + digit;
    else if (token === 4) place.pending = place.pending * 10 + digit;
  }
  return place;
}

const dotCode = ".".charCodeAt(0);
const zeroCode = "0".charCodeAt(0);

/**
 * The headers that a server adds to what it gives from a stream. Whoever wrote the message may have left its headers open,
 * so that the first that is added is no line of its own; never all of them.
 */
const answerHeaders = ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"] as const;
const answerNames = answerHeaders.map((name) => new HeaderName(name));

/** A message that was read. Of a header that is there more than once, one counts. */
class ReadMessage implements StoredMessage {
  readonly subject: string;
  readonly seq: number;
  readonly body: string;
  readonly #headers: HeaderLines;
  readonly #counts: "first" | "last";

  constructor(
    subject: string,
    seq: number,
    body: string,
    headers: HeaderLines,
    counts: "first" | "last",
  ) {
    this.subject = subject;
    this.seq = seq;
    this.body = body;
    this.#headers = headers;
    this.#counts = counts;
  }

  header(name: string): string | undefined {
    return this.#headers[this.#counts](name);
  }
}

/** The message that a direct get gave. */
export function directMessage(message: Incoming): StoredMessage {
  const headers = new HeaderLines(message.headers);
  const isAnswer = answerHeaders.some((name) => headers.count(name) > 1);
  const subject = headers.last("Nats-Subject") ?? "";
  const seq = Number(headers.last("Nats-Sequence") ?? 0);
  return new ReadMessage(subject, seq, isAnswer ? "" : message.text, headers, "last");
}

/** A message that a consumer sent, as the engine sees it. */
function storedMessage(message: Incoming, seq: number): StoredMessage {
  const headers = new HeaderLines(message.headers);
  return new ReadMessage(message.subject, seq, deliveredText(message), headers, "first");
}

/**
 * The text of a message that a consumer sent. A server sends its answers wherever a user wants them, also where that user
 * may not publish; one that was stored is nobody's word and is read as empty.
 */
export function deliveredText(message: Incoming): string {
  return isAnswer(message) ? "" : message.text;
}

function isAnswer(message: Incoming): boolean {
  return hasHeader(message, answerNames);
}
