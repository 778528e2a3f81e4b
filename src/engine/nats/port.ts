/**
 * What the engine asks of NATS, and all that it asks: publish with a compare, read, deliver, acknowledge, follow, hint.
 * It is small, so that a simulation can stand in for a server and do to the engine whatever a network does.
 */
import type { PackedEvents } from "../projection/packed.js";

/** Which stream something lies in: the log of jobs, the records, or what the server says of tickets that it gave up. */
export type StreamName = "jobs" | "records" | "advisories";

/** A message as it lies in a stream. */
export interface StoredMessage {
  readonly subject: string;
  readonly seq: number;
  readonly body: string;
  /** The value of a header. */
  header(name: string): string | undefined;
}

/** A message to be stored if nothing newer lies under a filter than the writer saw. */
export interface OutgoingMessage {
  readonly subject: string;
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly expect?: { readonly filter: string; readonly seq: number };
}

/** What became of a message. */
export type Publication =
  | { readonly outcome: "stored"; readonly seq: number }
  | { readonly outcome: "conflict" };

/** What became of one of several messages: as above, or why that is not known. */
export type EachPublication = Publication | { readonly outcome: "fault"; readonly error: unknown };

/** What is left of a delivery when it was read: where acknowledgements go. */
export interface Acknowledgeable {
  readonly reply: string;
}

/** A message that a consumer gave out and that waits to be acknowledged. */
export interface Delivery extends Omit<StoredMessage, "header">, Acknowledgeable {
  readonly isRedelivery: boolean;
}

/** A durable consumer of the tickets of one lane. */
export interface ConsumerConfig {
  readonly name: string;
  readonly filter: string;
  readonly ackWaitMs: number;
}

/** How far a consumer has come. */
export interface ConsumerProgress {
  /** The position up to which it has given out what there is. */
  readonly deliveredUpTo: number;
  /** The position up to which it has nothing left to be acknowledged. */
  readonly acknowledgedUpTo: number;
  readonly ackWaitMs: number;
}

/** Messages behind a position, at most so many. */
export interface Part {
  readonly after: number;
  readonly limit: number;
}

/** The port to NATS. Whatever goes wrong is thrown as a fault of the store. */
export interface Port {
  /** Stores a message, behind those that were published before; durable when the promise resolves. */
  publish(stream: StreamName, message: OutgoingMessage): Promise<Publication>;

  /** Stores events, each by itself, in this order; resolves when it is known of every one what became of it. */
  publishEach(messages: readonly OutgoingMessage[]): Promise<readonly EachPublication[]>;

  /**
   * Stores all messages, which must be of different jobs, or none. Gives `null` where the server did not take them as a batch:
   * each of them may be stored or not.
   */
  publishTogether(messages: readonly OutgoingMessage[]): Promise<readonly Publication[] | null>;

  /** Whether the servers in use now store messages together; where it is not said, they do if they did at first. */
  readonly takesBatches?: boolean;

  /** The newest message under a filter. */
  last(stream: StreamName, filter: string): Promise<StoredMessage | null>;

  /**
   * The position of the newest message under a filter, by the server that stores and not by a copy of it; 0 where there is none,
   * `null` where it does not tell. It is asked with a message under a subject that is refused in any case, so that whoever may
   * publish there may ask. Events are asked for unless another stream is named.
   */
  newestSeq(filter: string, subject: string, stream?: StreamName): Promise<number | null>;

  /**
   * All messages under a filter, or a part of them, in order. With wildcards the server looks at every message from the first
   * of them on.
   */
  read(stream: StreamName, filter: string, part?: Part): Promise<readonly StoredMessage[]>;

  /** The newest message of each subject under some filters, in order; `null` where that cannot be asked, or not at once. */
  lastOfEach(filters: readonly string[]): Promise<readonly StoredMessage[] | null>;

  /** Makes a durable consumer, or takes the one that is there. */
  ensureConsumer(config: ConsumerConfig): Promise<void>;

  /**
   * Takes what a consumer has now, at most so many; `null` if the consumer is gone. With a time to wait, the limit is 1, and
   * it takes the first that comes by then.
   */
  fetch(consumer: string, limit: number, waitMs?: number): Promise<readonly Delivery[] | null>;

  /** How far a consumer has come; `null` if it is not there. */
  progressOf(consumer: string): Promise<ConsumerProgress | null>;

  /** The server's clock, in milliseconds since 1970. */
  time(): Promise<number>;

  /** Acknowledges, and waits until the server knows. */
  acknowledge(deliveries: readonly Acknowledgeable[]): Promise<void>;

  /** Says that a delivery is still worked on. */
  working(deliveries: readonly Acknowledgeable[]): void;

  /** Gives a delivery back, to be offered again at once. */
  giveBack(delivery: Acknowledgeable): void;

  /** Messages under a filter after a position, as they come, until the signal aborts. No gaps. */
  follow(
    stream: StreamName,
    filter: string,
    after: number,
    signal: AbortSignal,
  ): AsyncIterable<readonly StoredMessage[]>;

  /** Events of the log under a filter after a position, as they come, packed. Without it they are followed as messages. */
  feed?(filter: string, after: number, signal: AbortSignal): AsyncIterable<PackedEvents>;

  /** Removes single messages, unless they are gone already. What could not be removed is a fault. */
  remove(stream: StreamName, seqs: readonly number[]): Promise<void>;

  /** Sends a hint, which may be lost, and says who sends it. */
  hint(subject: string, from: string): void;

  /** Hears hints. Gives the way to stop. */
  onHint(subject: string, heard: (from: string) => void): () => void;

  /** From now on nobody waits for a server that is away, or asks it twice: the store is about to be closed. */
  hurry(): void;

  close(): Promise<void>;
}
