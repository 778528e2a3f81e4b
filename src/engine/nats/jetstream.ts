/**
 * The port over a real connection. It speaks the API's own subjects, because each of them can be permitted or not,
 * and reads only what a service may be allowed to: by direct get, and by consumers of one filter.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { type BatchAnswer, Batcher } from "../batching.js";
import type { StoreError } from "../errors.js";
import type { PackedEvents } from "../projection/packed.js";
import { Batches, wrongLastSequence } from "./batches.js";
import { type ApiError, apiFault, consumerFault, isGone, mayPass, thrownFault } from "./faults.js";
import { Fetches } from "./fetching.js";
import { follow, Messages, Packs } from "./following.js";
import type { Incoming } from "./incoming.js";
import type { NatsLibrary } from "./libraries.js";
import type {
  Acknowledgeable,
  ConsumerConfig,
  ConsumerProgress,
  Delivery,
  EachPublication,
  OutgoingMessage,
  Part,
  Port,
  Publication,
  StoredMessage,
  StreamName,
} from "./port.js";
import type { Topology } from "./provision.js";
import { statusOf } from "./raw-headers.js";
import { directMessage } from "./read-message.js";
import { everything, type ReadingFrom, readAll, readDirect, readLastOfEach } from "./reading.js";
import { Receiver } from "./receiving.js";
import { Requests } from "./requests.js";
import { Sender } from "./sending.js";
import { takesBatches } from "./server-version.js";
import type { StreamConfig } from "./streams.js";
import { type FoundConsumer, flawOf, ticketConsumer } from "./ticket-consumer.js";

/** For how long a question is asked again that costs nothing but time, while the server is away, and how often. */
const patienceMs = 10_000;
const againMs = 100;

/** How many messages are removed at once. A server whose line of questions grows too long drops all of them. */
const removeMax = 100;

/** How many acknowledgements go out at once, and how many tokens of a reply tell the consumer. */
const ackBatchMax = 1_000;
const consumerTokens = 4;

/** The status of a request for what is not there. */
const notFound = 404;

/** A position that no stream comes to. */
const neverSeq = Number.MAX_SAFE_INTEGER;

/** How long the consumer is there that was asked for the time. */
const clockOutlivesNs = 1e8;

const conflict: Publication = { outcome: "conflict" };

interface Answer {
  readonly seq?: number;
  readonly error?: ApiError;
}

interface ConsumerInfo {
  readonly delivered?: { readonly stream_seq?: number };
  readonly ack_floor?: { readonly stream_seq?: number };
  readonly config?: FoundConsumer;
}

/** A message that is to be removed. */
interface Removal {
  readonly subject: string;
  readonly seq: number;
}

/** The port over a connection to a deployment. */
export class JetStreamPort implements Port {
  readonly #nats: NatsLibrary;
  readonly #connection: NatsConnection;
  readonly #topology: Topology;
  readonly #url: string;
  readonly #inboxPrefix: string | undefined;
  readonly #readsEverything: boolean;
  readonly #sender: Sender;
  readonly #receiver: Receiver;
  readonly #requests: Requests;
  readonly #fetches: Fetches;
  readonly #acks: Batcher<readonly Acknowledgeable[], void>;
  readonly #removals: Batcher<Removal, void>;
  readonly #clockFilter: string;
  readonly #batches: Batches;

  constructor(options: {
    readonly nats: NatsLibrary;
    readonly connection: NatsConnection;
    readonly topology: Topology;
    readonly url: string;
    /** What the subjects of answers begin with, where a user may not hear those of others. */
    readonly inboxPrefix?: string;
    /** Whether this user may read everything; otherwise each reading names a filter that can be permitted. */
    readonly readsEverything: boolean;
    /** A filter that this user may read and that nothing lies under. */
    readonly clockFilter: string;
  }) {
    this.#nats = options.nats;
    this.#connection = options.connection;
    this.#topology = options.topology;
    this.#url = options.url;
    this.#inboxPrefix = options.inboxPrefix;
    this.#readsEverything = options.readsEverything;
    this.#sender = new Sender(options.connection);
    this.#receiver = new Receiver(options.connection);
    const inbox = this.#nats.createInbox(this.#inboxPrefix);
    this.#requests = new Requests({
      connection: options.connection,
      sender: this.#sender,
      receiver: this.#receiver,
      inbox,
    });
    this.#fetches = new Fetches({
      receiver: this.#receiver,
      sender: this.#sender,
      requests: this.#requests,
      newInbox: () => this.#nats.createInbox(this.#inboxPrefix),
    });
    this.#batches = new Batches({
      connection: options.connection,
      sender: this.#sender,
      requests: this.#requests,
      newId: () => this.#nats.nuid.next(),
      url: this.#url,
      ask: () => this.#isGoodForBatches(),
    });
    const confirm = (groups: readonly (readonly Acknowledgeable[])[]) => this.#confirm(groups);
    this.#acks = new Batcher<readonly Acknowledgeable[], void>(confirm, {
      weightMax: ackBatchMax,
      weigh: ({ length }) => length,
    });
    this.#removals = new Batcher<Removal, void>((removals) => this.#remove(removals), {
      weightMax: removeMax,
      weigh: () => 1,
      inFlightMax: 1,
    });
    this.#clockFilter = options.clockFilter;
  }

  async publish(_stream: StreamName, message: OutgoingMessage): Promise<Publication> {
    const [publication = conflict] = await this.publishEach([message]);
    if (publication.outcome === "fault") throw publication.error;
    return publication;
  }

  publishEach(messages: readonly OutgoingMessage[]): Promise<readonly EachPublication[]> {
    if (messages.length === 0) return Promise.resolve([]);
    return new Promise((resolve) => {
      const publications: EachPublication[] = new Array(messages.length);
      let left = messages.length;
      const tell = (publication: EachPublication, index: number) => {
        publications[index] = publication;
        left -= 1;
        if (left === 0) resolve(publications);
      };
      const answered = (message: Incoming, index: number) =>
        tell(this.#publication(message), index);
      const failed = (error: Error, index: number) =>
        tell({ outcome: "fault", error: thrownFault(error, this.#url) }, index);
      this.#requests.send(messages, { answered, failed });
    });
  }

  get takesBatches(): boolean {
    return this.#batches.areTaken;
  }

  async publishTogether(
    messages: readonly OutgoingMessage[],
  ): Promise<readonly Publication[] | null> {
    const [first] = messages;
    if (first && messages.length === 1) return [await this.publish("jobs", first)];
    return this.#batches.publish(messages);
  }

  async last(stream: StreamName, filter: string): Promise<StoredMessage | null> {
    const subject = `${this.#api}.DIRECT.GET.${this.#name(stream)}.${filter}`;
    const answer = await this.#patiently(() => this.#request(subject));
    if (statusOf(answer) === notFound) return null;
    return directMessage(answer);
  }

  async newestSeq(filter: string, subject: string): Promise<number | null> {
    const message = { subject, body: "", headers: {}, expect: { filter, seq: neverSeq } };
    const { error } = await this.#patiently(() => this.#answerTo(message));
    if (error === undefined || !wrongLastSequence.has(error.err_code)) return null;
    const [, seq] = /: (\d+)$/.exec(error.description ?? "") ?? [];
    return seq === undefined ? null : Number(seq);
  }

  /** What the server says of one message. */
  #answerTo(message: OutgoingMessage): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const answered = (answer: Incoming) => resolve(answer.json<Answer>());
      this.#requests.send([message], { answered, failed: reject });
    });
  }

  async read(stream: StreamName, filter: string, part?: Part): Promise<readonly StoredMessage[]> {
    const read = this.#readsEverything ? readDirect : readAll;
    return this.#patiently(() => read(this.#from(stream), filter, part));
  }

  async lastOfEach(filters: readonly string[]): Promise<readonly StoredMessage[] | null> {
    const from = this.#from("jobs");
    if (this.#readsEverything) return this.#patiently(() => readLastOfEach(from, filters));
    const [filter, ...others] = filters;
    if (filter === undefined || others.length > 0) return null;
    return this.#patiently(() => readAll(from, filter, everything, "last_per_subject"));
  }

  async ensureConsumer(config: ConsumerConfig): Promise<void> {
    const { name, filter } = config;
    const stream = this.#topology.jobsStream;
    const request = { stream_name: stream, config: ticketConsumer(config) };
    const fault = await this.#faultOf(`CONSUMER.CREATE.${stream}.${name}.${filter}`, request);
    if (fault === null) return;
    // Another version may have made it otherwise, or somebody who may; a compatible one is taken as it is.
    const found = mayPass(fault) ? null : await this.#consumer(name);
    const flaw = found && flawOf(found, filter);
    if (found === null || flaw !== null) throw consumerFault(fault, stream, name, flaw);
  }

  /** Why something that was asked of the API was not done; `null` if it was. */
  async #faultOf(subject: string, body: object): Promise<StoreError | null> {
    try {
      const { error } = await this.#ask(subject, body);
      return error ? apiFault(error, this.#url) : null;
    } catch (error) {
      return thrownFault(error, this.#url);
    }
  }

  /** A consumer as it is; `null` where there is none. Who may not even ask hears why it could not be made. */
  async #consumer(name: string): Promise<FoundConsumer | null> {
    const subject = `CONSUMER.INFO.${this.#topology.jobsStream}.${name}`;
    try {
      return (await this.#ask<ConsumerInfo>(subject)).config ?? null;
    } catch {
      return null;
    }
  }

  async fetch(consumer: string, limit: number, waitMs = 0): Promise<readonly Delivery[] | null> {
    const subject = `${this.#api}.CONSUMER.MSG.NEXT.${this.#topology.jobsStream}.${consumer}`;
    try {
      return await this.#fetches.take(subject, limit, waitMs);
    } catch (error) {
      throw thrownFault(error, this.#url);
    }
  }

  async progressOf(consumer: string): Promise<ConsumerProgress | null> {
    const subject = `CONSUMER.INFO.${this.#topology.jobsStream}.${consumer}`;
    const { error, delivered, ack_floor, config } = await this.#ask<ConsumerInfo>(subject);
    if (error) return null;
    return {
      deliveredUpTo: delivered?.stream_seq ?? 0,
      acknowledgedUpTo: ack_floor?.stream_seq ?? 0,
      ackWaitMs: (config?.ack_wait ?? 0) / 1e6,
    };
  }

  async time(): Promise<number> {
    const name = this.#nats.nuid.next();
    const stream = this.#topology.jobsStream;
    const filter = this.#clockFilter;
    const { error, ts } = await this.#ask<{ ts?: string }>(
      `CONSUMER.CREATE.${stream}.${name}.${filter}`,
      {
        stream_name: stream,
        config: {
          name,
          filter_subject: filter,
          ack_policy: "none",
          mem_storage: true,
          num_replicas: 1,
          inactive_threshold: clockOutlivesNs,
        },
      },
    );
    if (error) throw apiFault(error, this.#url);
    return ts === undefined ? Date.now() : Date.parse(ts);
  }

  async acknowledge(deliveries: readonly Acknowledgeable[]): Promise<void> {
    if (deliveries.length > 0) await this.#acks.call(deliveries);
  }

  /** The server takes acknowledgements of one consumer in their order, so that the last answer stands for all. */
  async #confirm(
    groups: readonly (readonly Acknowledgeable[])[],
  ): Promise<readonly BatchAnswer<void>[]> {
    const last = new Map<string, Acknowledgeable>();
    let consumer = "";
    for (const deliveries of groups)
      for (const delivery of deliveries) {
        // Most that are acknowledged together are of one consumer.
        if (consumer === "" || !delivery.reply.startsWith(consumer))
          consumer = consumerOf(delivery);
        last.set(consumer, delivery);
      }
    const awaited = new Set(last.values());
    for (const deliveries of groups)
      for (const delivery of deliveries)
        if (!awaited.has(delivery)) this.#sender.send({ subject: delivery.reply, body: "+ACK" });
    await Promise.all([...awaited].map(({ reply }) => this.#request(reply, "+ACK")));
    return groups.map(() => ({ answer: undefined }));
  }

  working(deliveries: readonly Acknowledgeable[]): void {
    for (const { reply } of deliveries) this.#sender.send({ subject: reply, body: "+WPI" });
  }

  giveBack({ reply }: Acknowledgeable): void {
    this.#sender.send({ subject: reply, body: "-NAK" });
  }

  follow(
    stream: StreamName,
    filter: string,
    after: number,
    signal: AbortSignal,
  ): AsyncIterable<readonly StoredMessage[]> {
    return follow(this.#from(stream), filter, after, signal, () => new Messages());
  }

  feed(filter: string, after: number, signal: AbortSignal): AsyncIterable<PackedEvents> {
    return follow(this.#from("jobs"), filter, after, signal, () => new Packs());
  }

  async remove(stream: StreamName, seqs: readonly number[]): Promise<void> {
    const subject = `STREAM.MSG.DELETE.${this.#name(stream)}`;
    await Promise.all(seqs.map((seq) => this.#removals.call({ subject, seq })));
  }

  async #remove(removals: readonly Removal[]): Promise<readonly BatchAnswer<void>[]> {
    const remove = async ({ subject, seq }: Removal): Promise<BatchAnswer<void>> => {
      const fault = await this.#faultOf(subject, { seq, no_erase: true });
      return fault === null || isGone(fault) ? { answer: undefined } : { fault };
    };
    return Promise.all(removals.map(remove));
  }

  hint(subject: string, from: string): void {
    this.#sender.send({ subject, body: from });
  }

  onHint(subject: string, heard: (from: string) => void): () => void {
    const callback = (error: Error | null, message: Msg) => {
      if (!error) heard(message.string());
    };
    const subscription = this.#connection.subscribe(subject, { callback });
    return () => subscription.unsubscribe();
  }

  hurry(): void {
    this.#requests.hurry();
  }

  async close(): Promise<void> {
    await this.#acks.idle();
    this.#sender.flush();
    // While the server is away nothing can be drained, and a connection that is not closed would look for it forever.
    if (!this.#connection.isClosed())
      await this.#connection.drain().catch(() => this.#connection.close());
    this.#requests.close();
  }

  get #api(): string {
    return this.#topology.api;
  }

  #name(stream: StreamName): string {
    switch (stream) {
      case "jobs":
        return this.#topology.jobsStream;
      case "records":
        return this.#topology.recordsStream;
      case "advisories":
        return this.#topology.advisoriesStream;
    }
  }

  #from(stream: StreamName): ReadingFrom {
    return {
      connection: this.#connection,
      receiver: this.#receiver,
      stream: this.#name(stream),
      directSubject: `${this.#api}.DIRECT.GET.${this.#name(stream)}`,
      newInbox: () => this.#nats.createInbox(this.#inboxPrefix),
      onLost: (call) => this.#requests.onLost(call),
      newName: () => this.#nats.nuid.next(),
      create: async (subject, body) => {
        const answer = await this.#ask<{ num_pending?: number }>(subject, body);
        if (answer.error) throw apiFault(answer.error, this.#url);
        return answer.num_pending ?? 0;
      },
    };
  }

  /** Whether the log takes batches and its leader handles them well; `null` where this user may not ask. */
  async #isGoodForBatches(): Promise<boolean | null> {
    if (!this.#readsEverything) return null;
    const subject = `STREAM.INFO.${this.#topology.jobsStream}`;
    return this.#patiently(async () => {
      const { config, error } = await this.#ask<{ config?: StreamConfig }>(subject);
      if (error) throw apiFault(error, this.#url);
      return takesBatches(config);
    });
  }

  /** What the server says of a message that it was to store. */
  #publication(message: Incoming): EachPublication {
    const position = storedPosition(message);
    if (position !== null) return { outcome: "stored", seq: position };
    try {
      const { seq, error } = message.json<Answer>();
      if (error && wrongLastSequence.has(error.err_code)) return conflict;
      if (error) return { outcome: "fault", error: apiFault(error, this.#url) };
      return { outcome: "stored", seq: seq ?? 0 };
    } catch (error) {
      return { outcome: "fault", error: thrownFault(error, this.#url) };
    }
  }

  async #ask<T>(subject: string, body?: object): Promise<T & { readonly error?: ApiError }> {
    const request = body === undefined ? "" : JSON.stringify(body);
    return (await this.#request(`${this.#api}.${subject}`, request)).json();
  }

  /** Reads, and reads again while the server is away: an answer that was lost is asked for once more. */
  async #patiently<T>(read: () => Promise<T>): Promise<T> {
    const endsAt = performance.now() + patienceMs;
    for (;;) {
      try {
        return await read();
      } catch (error) {
        const fault = thrownFault(error, this.#url);
        const isOver = this.#requests.isHurried || performance.now() > endsAt;
        if (!mayPass(fault) || isOver) throw fault;
        await delay(againMs);
      }
    }
  }

  async #request(subject: string, body = ""): Promise<Incoming> {
    try {
      return await this.#requests.ask(subject, body);
    } catch (error) {
      throw thrownFault(error, this.#url);
    }
  }
}

/** The position in the usual answer to a message, which ends with it; `null` where the answer says something else. */
function storedPosition({ bytes, dataAt, dataEnd }: Incoming): number | null {
  let at = dataEnd - 2;
  if (bytes[at + 1] !== braceCode) return null;
  let seq = 0;
  for (let unit = 1; at >= dataAt; at--, unit *= 10) {
    const digit = (bytes[at] ?? 0) - zeroCode;
    if (digit < 0 || digit > 9) break;
    seq += digit * unit;
  }
  if (at - positionEnding.length < dataAt) return null;
  for (let index = positionEnding.length - 1; index >= 0; index--, at--)
    if (bytes[at] !== positionEnding[index]) return null;
  return seq === 0 ? null : seq;
}

const positionEnding = Buffer.from(',"seq":');
const braceCode = "}".charCodeAt(0);
const zeroCode = "0".charCodeAt(0);

/** What the reply subjects of one consumer's deliveries begin with, and no others. */
function consumerOf({ reply }: Acknowledgeable): string {
  let end = -1;
  for (let token = 0; token < consumerTokens; token++) {
    end = reply.indexOf(".", end + 1);
    if (end < 0) return reply;
  }
  return reply.slice(0, end + 1);
}
