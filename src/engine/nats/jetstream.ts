/**
 * The port over a real connection. It speaks the API's own subjects, because each of them can be permitted or not,
 * and reads only what a service may be allowed to: by direct get, and by consumers of one filter.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { type BatchAnswer, Batcher } from "../batching.js";
import type { PackedEvents } from "../projection/packed.js";
import { type ApiError, apiFault, mayPass, thrownFault } from "./faults.js";
import type { NatsLibrary } from "./libraries.js";
import type {
  Acknowledgeable,
  ConsumerConfig,
  Delivery,
  OutgoingMessage,
  Port,
  Publication,
  StoredMessage,
  StreamName,
} from "./port.js";
import type { Topology } from "./provision.js";
import { rawHeaders, statusOf } from "./raw-headers.js";
import {
  deliveredText,
  directMessage,
  follow,
  Messages,
  Packs,
  placeOf,
  type ReadingFrom,
  ReadMessage,
  readAll,
  readDirect,
  readLastOfEach,
} from "./reading.js";
import { Requests } from "./requests.js";
import { Sender } from "./sending.js";

/** How long a fetch waits for what the server has at once. */
const fetchTimeoutMs = 5_000;

/** For how long a question is asked again that costs nothing but time, while the server is away, and how often. */
const patienceMs = 10_000;
const againMs = 100;

/** How many acknowledgements go out at once, and how many tokens of a reply tell the consumer. */
const ackBatchMax = 1_000;
const consumerTokens = 4;

/** The status of a request that nobody was there to answer, and of one for what is not there. */
const noResponders = 503;
const notFound = 404;

/**
 * The server's own codes for a compare that failed: against what is stored, in a cluster against what is under way,
 * and for a batch of which something is stored already.
 */
const wrongLastSequence: ReadonlySet<number | undefined> = new Set([10071, 10164, 10201]);

/** How often a message may be delivered before the advisories speak of it; retries are counted in the log instead. */
const deliveriesMax = 1_000;

/** How long the consumer is there that was asked for the time. */
const clockOutlivesNs = 1e8;

const conflict: Publication = { outcome: "conflict" };

interface Answer {
  readonly seq?: number;
  readonly error?: ApiError;
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
  readonly #requests: Requests;
  readonly #acks: Batcher<Acknowledgeable, void>;
  readonly #clockFilter: string;
  #batches = 0;

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
    const inbox = this.#nats.createInbox(this.#inboxPrefix);
    this.#requests = new Requests(options.connection, this.#sender, inbox);
    this.#acks = new Batcher<Acknowledgeable, void>((deliveries) => this.#confirm(deliveries), {
      weightMax: ackBatchMax,
      weigh: () => 1,
    });
    this.#clockFilter = options.clockFilter;
  }

  publish(_stream: StreamName, message: OutgoingMessage): Promise<Publication> {
    return this.#send(message, this.#headers(message));
  }

  async publishTogether(messages: readonly OutgoingMessage[]): Promise<readonly Publication[]> {
    const [first] = messages;
    if (first && messages.length === 1) return [await this.publish("jobs", first)];
    this.#batches += 1;
    const id = `${this.#connection.info?.client_id ?? 0}-${this.#batches}-${this.#nats.nuid.next()}`;
    let committed: Promise<Publication> | null = null;
    for (const [index, message] of messages.entries()) {
      const place = `Nats-Batch-Id: ${id}\r\nNats-Batch-Sequence: ${index + 1}\r\n`;
      if (index < messages.length - 1) {
        const headers = this.#headers(message, place);
        this.#sender.send({ subject: message.subject, body: message.body, headers });
      } else {
        committed = this.#send(message, this.#headers(message, `${place}Nats-Batch-Commit: 1\r\n`));
      }
    }
    const answer = (await committed) ?? conflict;
    if (answer.outcome === "conflict") return messages.map(() => answer);
    return messages.map((_, index) => ({
      outcome: "stored",
      seq: answer.seq - (messages.length - 1 - index),
    }));
  }

  async last(stream: StreamName, filter: string): Promise<StoredMessage | null> {
    const subject = `${this.#api}.DIRECT.GET.${this.#name(stream)}.${filter}`;
    const answer = await this.#patiently(() => this.#request(subject));
    if (statusOf(answer) === notFound) return null;
    return directMessage(answer);
  }

  async read(stream: StreamName, filter: string): Promise<readonly StoredMessage[]> {
    const read = this.#readsEverything ? readDirect : readAll;
    return this.#patiently(() => read(this.#from(stream), filter));
  }

  async lastOfEach(filters: readonly string[]): Promise<readonly StoredMessage[] | null> {
    if (!this.#readsEverything) return null;
    return this.#patiently(() => readLastOfEach(this.#from("jobs"), filters));
  }

  async ensureConsumer({ name, filter, ackWaitMs }: ConsumerConfig): Promise<void> {
    const config = {
      name,
      durable_name: name,
      filter_subject: filter,
      deliver_policy: "all",
      ack_policy: "explicit",
      ack_wait: ackWaitMs * 1e6,
      max_deliver: deliveriesMax,
      max_ack_pending: -1,
    };
    const stream = this.#topology.jobsStream;
    const { error } = await this.#ask(`CONSUMER.CREATE.${stream}.${name}.${filter}`, {
      stream_name: stream,
      config,
    });
    if (!error) return;
    // Another version may have made it otherwise; a compatible one is taken as it is.
    const found = await this.#ask<{ config?: { filter_subject?: string; ack_policy?: string } }>(
      `CONSUMER.INFO.${stream}.${name}`,
    );
    if (found.config?.filter_subject === filter && found.config.ack_policy === "explicit") return;
    throw apiFault(error, this.#url);
  }

  fetch(consumer: string, limit: number): Promise<readonly Delivery[] | null> {
    const inbox = this.#nats.createInbox(this.#inboxPrefix);
    const deliveries: Delivery[] = [];
    return new Promise((resolve, reject) => {
      const end = () => {
        clearTimeout(timer);
        forget();
        subscription.unsubscribe();
      };
      const finish = () => {
        end();
        resolve(deliveries);
      };
      const timer = setTimeout(finish, fetchTimeoutMs);
      const forget = this.#requests.onLost(finish);
      const subscription = this.#connection.subscribe(inbox, {
        callback: (error, message) => {
          if (error) {
            end();
            if (deliveries.length > 0) resolve(deliveries);
            else reject(thrownFault(error, this.#url));
          } else if (message.data.length > 0) {
            deliveries.push(new ReadDelivery(message));
            if (deliveries.length === limit) finish();
          } else if (statusOf(message) === noResponders) {
            end();
            resolve(null);
          } else finish();
        },
      });
      this.#sender.send({
        subject: `${this.#api}.CONSUMER.MSG.NEXT.${this.#topology.jobsStream}.${consumer}`,
        body: JSON.stringify({ batch: limit, no_wait: true }),
        reply: inbox,
      });
    });
  }

  async acknowledgedUpTo(consumer: string): Promise<number | null> {
    const { error, ack_floor } = await this.#ask<{ ack_floor?: { stream_seq?: number } }>(
      `CONSUMER.INFO.${this.#topology.jobsStream}.${consumer}`,
    );
    return error ? null : (ack_floor?.stream_seq ?? 0);
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
    await Promise.all(deliveries.map((delivery) => this.#acks.call(delivery)));
  }

  /** The server takes acknowledgements of one consumer in their order, so that the last answer stands for all. */
  async #confirm(deliveries: readonly Acknowledgeable[]): Promise<readonly BatchAnswer<void>[]> {
    const last = new Map(deliveries.map((delivery) => [consumerOf(delivery), delivery]));
    const confirmed = [...last.values()];
    const asked = new Set(confirmed);
    for (const delivery of deliveries)
      if (!asked.has(delivery)) this.#sender.send({ subject: delivery.reply, body: "+ACK" });
    await Promise.all(confirmed.map(({ reply }) => this.#request(reply, "+ACK")));
    return deliveries.map(() => ({ answer: undefined }));
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
    await Promise.all(seqs.map((seq) => this.#ask(subject, { seq, no_erase: true })));
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

  /** The headers of a message, and those that one in a batch has besides. */
  #headers({ headers, expect }: OutgoingMessage, more = ""): string {
    let text = "NATS/1.0\r\n";
    for (const name in headers) text += `${name}: ${headers[name]}\r\n`;
    if (expect !== undefined)
      text += `Nats-Expected-Last-Subject-Sequence: ${expect.seq}\r\nNats-Expected-Last-Subject-Sequence-Subject: ${expect.filter}\r\n`;
    return `${text}${more}\r\n`;
  }

  /** Stores a message. Thousands are on their way at once, and so each takes one promise. */
  #send({ subject, body }: OutgoingMessage, headers: string): Promise<Publication> {
    return new Promise((resolve, reject) => {
      const fail = (error: unknown) => reject(thrownFault(error, this.#url));
      const answer = (message: Msg) => {
        try {
          resolve(this.#publication(message.json<Answer>()));
        } catch (error) {
          fail(error);
        }
      };
      this.#requests.send({ subject, body, headers }, answer, fail);
    });
  }

  #publication({ seq, error }: Answer): Publication {
    if (error && wrongLastSequence.has(error.err_code)) return conflict;
    if (error) throw apiFault(error, this.#url);
    return { outcome: "stored", seq: seq ?? 0 };
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
        if (!mayPass(fault) || performance.now() > endsAt) throw fault;
        await delay(againMs);
      }
    }
  }

  async #request(subject: string, body = ""): Promise<Msg> {
    try {
      return await this.#requests.ask(subject, body);
    } catch (error) {
      throw thrownFault(error, this.#url);
    }
  }
}

/** What the reply subjects of one consumer's deliveries have in common. */
function consumerOf({ reply }: Acknowledgeable): string {
  return reply.split(".", consumerTokens).join(".");
}

/** A delivery as it came. */
class ReadDelivery extends ReadMessage implements Delivery {
  readonly reply: string;
  readonly isRedelivery: boolean;

  constructor(message: Msg) {
    const { reply = "", data } = message;
    const { seq, delivered } = placeOf(reply);
    const headers = rawHeaders(message, data);
    super(message.subject, seq, deliveredText(data, headers), headers, "first");
    this.reply = reply;
    this.isRedelivery = delivered > 1;
  }
}
