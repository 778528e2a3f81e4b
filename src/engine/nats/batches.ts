/**
 * Atomic batches: messages that are stored together or not at all. Servers before 2.14.4 mishandle them. Which server handles
 * them is a matter of the stream's leader, which may be another than the server that one is connected to, and both may change
 * while a cluster is upgraded.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type ApiError, apiFault, mayPass, thrownFault } from "./faults.js";
import type { Incoming } from "./incoming.js";
import type { OutgoingMessage, Publication } from "./port.js";
import type { Requests } from "./requests.js";
import type { Sender } from "./sending.js";
import { ServerVersion } from "./server-version.js";

/**
 * The first message of a batch goes out at once, because the server makes files for it, which takes milliseconds. The others
 * follow in parts of so many bytes, so that the server reads the first of them while the last are got ready.
 */
const partLength = 64 * 1024;

/**
 * The server's own codes for a compare that failed: against what is stored, in a cluster against what is under way,
 * and for a batch of which something is stored already.
 */
export const wrongLastSequence: ReadonlySet<number | undefined> = new Set([10071, 10164, 10201]);

/** The stream takes no batches. */
const batchesDisabled = 10174;

/** A batch that was refused as such: another server leads since it began, there are too many of them, or it is too large. */
const refusedAsBatch: ReadonlySet<number | undefined> = new Set([10176, 10199, 10210]);

const conflict: Publication = { outcome: "conflict" };

interface CommitAnswer {
  readonly seq?: number;
  /** How many messages were stored together; only a server that knows batches says so. */
  readonly count?: number;
  readonly error?: ApiError;
}

/** Sends batches, and knows whether they are taken. */
export class Batches {
  readonly #connection: NatsConnection;
  readonly #sender: Sender;
  readonly #requests: Requests;
  readonly #newId: () => string;
  readonly #url: string;
  readonly #ask: () => Promise<boolean | null>;
  /** Whether the stream takes batches and its leader handles them well, by what was last heard. */
  #isStreamGood = true;
  #looks = 0;

  constructor(options: {
    readonly connection: NatsConnection;
    readonly sender: Sender;
    readonly requests: Requests;
    readonly newId: () => string;
    readonly url: string;
    /** Asks whether the stream takes batches and its leader handles them well; gives `null` where this user may not ask. */
    readonly ask: () => Promise<boolean | null>;
  }) {
    this.#connection = options.connection;
    this.#sender = options.sender;
    this.#requests = options.requests;
    this.#newId = options.newId;
    this.#url = options.url;
    this.#ask = options.ask;
    void this.#watch();
  }

  /** Whether a batch may be sent now. */
  get areTaken(): boolean {
    return this.#isStreamGood && new ServerVersion(this.#connection.info?.version).handlesBatches;
  }

  /** Stores messages together; gives `null` where they were not taken as a batch, so that each has to be sent alone. */
  async publish(messages: readonly OutgoingMessage[]): Promise<readonly Publication[] | null> {
    // It is stored with every message, so that it is no longer than it must be.
    const id = this.#newId();
    const last = messages.length - 1;
    for (const [index, message] of messages.entries()) {
      if (index === last) break;
      const place = `Nats-Batch-Id: ${id}\r\nNats-Batch-Sequence: ${index + 1}\r\n`;
      this.#sender.send(message, "", -1, place);
      this.#sender.sendEarly(index === 0 ? 1 : partLength);
    }
    const end = messages[last];
    if (!end) return [];
    const place = `Nats-Batch-Id: ${id}\r\nNats-Batch-Sequence: ${messages.length}\r\nNats-Batch-Commit: 1\r\n`;
    const { seq = 0, count, error } = await this.#commit(end, place);
    if (error && wrongLastSequence.has(error.err_code)) return messages.map(() => conflict);
    if (error ? error.err_code === batchesDisabled : count !== messages.length) {
      void this.#look(false);
      return null;
    }
    if (error && refusedAsBatch.has(error.err_code)) return null;
    if (error) throw apiFault(error, this.#url);
    return messages.map((_, index) => ({ outcome: "stored", seq: seq - (last - index) }));
  }

  /** Sends the last message of a batch, which stores all of it. */
  #commit(message: OutgoingMessage, place: string): Promise<CommitAnswer> {
    return new Promise((resolve, reject) => {
      const failed = (error: unknown) => reject(thrownFault(error, this.#url));
      const answered = (answer: Incoming) => {
        try {
          resolve(answer.json<CommitAnswer>());
        } catch (error) {
          failed(error);
        }
      };
      this.#requests.send([message], { answered, failed }, place);
    });
  }

  /** Whoever leads may be another server when the connection is there again, and what is sent meanwhile goes there. */
  async #watch(): Promise<void> {
    for await (const { type } of this.#connection.status()) {
      if (type === "disconnect") this.#isStreamGood = false;
      if (type === "reconnect") void this.#look(true);
    }
  }

  /** Asks again who leads. Until that is known, nothing goes as a batch. Who may not ask believes what is given. */
  async #look(otherwise: boolean): Promise<void> {
    this.#isStreamGood = false;
    this.#looks += 1;
    const look = this.#looks;
    while (look === this.#looks && !this.#connection.isClosed()) {
      try {
        const isGood = await this.#ask();
        if (look === this.#looks) this.#isStreamGood = isGood ?? otherwise;
        return;
      } catch (error) {
        if (mayPass(error)) continue;
        if (look === this.#looks) this.#isStreamGood = otherwise;
        return;
      }
    }
  }
}
