// A stream as nats-server keeps it: positions that only grow, a compare under a filter, known message ids,
// and what it looked like some time ago, because a copy that answers may be behind.

import { StoreFailed } from "#millrace/engine/errors.js";
import type { OutgoingMessage, Publication, StoredMessage } from "#millrace/engine/nats/port.js";
import { matcher } from "./subject.js";

/** For how long a stream knows the ids of messages. */
const duplicatesKnownMs = 120_000;

/** The place of the token in a subject that tells jobs apart. */
const jobToken = 4;

interface Kept extends StoredMessage {
  /** The steps of the stream at which it came and went. */
  readonly cameAt: number;
  wentAt: number;
}

/** What a stream needs to be told. */
export interface StreamOptions {
  /** How many messages of a subject are kept. */
  readonly perSubjectMax?: 1;
  /** Time that only grows, in milliseconds. */
  readonly time: () => number;
  /** Called with whatever is stored. */
  readonly onStored: (message: StoredMessage) => void;
}

export class SimulatedStream {
  readonly #options: StreamOptions;
  readonly #messages: Kept[] = [];
  readonly #ofJob = new Map<string, Kept[]>();
  readonly #ids = new Map<string, { readonly seq: number; readonly at: number }>();
  /** When each step was taken. */
  readonly #steps: number[] = [];

  constructor(options: StreamOptions) {
    this.#options = options;
  }

  /** Stores a message. The compare comes before the look for its id, so that a repeated message is a conflict. */
  publish(message: OutgoingMessage): Publication {
    if (!this.#meets(message)) return { outcome: "conflict" };
    const known = this.#known(message);
    return { outcome: "stored", seq: known ?? this.#store(message) };
  }

  /** Stores all messages or none. */
  publishTogether(messages: readonly OutgoingMessage[]): readonly Publication[] {
    if (!messages.every((message) => this.#meets(message)))
      return messages.map(() => ({ outcome: "conflict" }));
    if (messages.some((message) => this.#known(message) !== null))
      throw new StoreFailed({
        url: "nats://simulated",
        message: "NATS refused: atomic publish batch contains duplicate message id.",
        code: "10201",
      });
    return messages.map((message) => ({ outcome: "stored", seq: this.#store(message) }));
  }

  /** The newest message under a filter, as it was `agoMs` ago. */
  last(filter: string, agoMs = 0): StoredMessage | null {
    const candidates = this.#candidates(filter);
    const isThere = this.#filter(filter, agoMs);
    for (let index = candidates.length - 1; index >= 0; index--) {
      const message = candidates[index];
      if (message && isThere(message)) return message;
    }
    return null;
  }

  /** All messages under a filter, as they were `agoMs` ago. */
  read(filter: string, agoMs = 0): readonly StoredMessage[] {
    return this.#candidates(filter).filter(this.#filter(filter, agoMs));
  }

  /** The newest message of each subject under some filters, in order. */
  lastOfEach(filters: readonly string[], agoMs = 0): readonly StoredMessage[] {
    const newest = new Map<string, StoredMessage>();
    for (const filter of filters)
      for (const message of this.read(filter, agoMs)) newest.set(message.subject, message);
    return [...newest.values()].sort((a, b) => a.seq - b.seq);
  }

  /** The next messages under a filter behind a position. */
  after(filter: string, seq: number, limit: number): readonly StoredMessage[] {
    const matches = matcher(filter);
    const found: StoredMessage[] = [];
    for (const message of this.#messages.slice(seq)) {
      if (found.length === limit) break;
      if (message.wentAt === Number.POSITIVE_INFINITY && matches(message.subject))
        found.push(message);
    }
    return found;
  }

  /** The message at a position, unless it was removed. */
  at(seq: number): StoredMessage | null {
    const message = this.#messages[seq - 1];
    return message?.wentAt === Number.POSITIVE_INFINITY ? message : null;
  }

  /** The newest position. */
  get lastSeq(): number {
    return this.#messages.length;
  }

  remove(seq: number): void {
    const message = this.#messages[seq - 1];
    if (message && message.wentAt === Number.POSITIVE_INFINITY) message.wentAt = this.#step();
  }

  #store({ subject, body, headers }: OutgoingMessage): number {
    const seq = this.#messages.length + 1;
    const message: Kept = {
      subject,
      seq,
      body,
      header: (name) => headers[name],
      cameAt: this.#step(),
      wentAt: Number.POSITIVE_INFINITY,
    };
    if (this.#options.perSubjectMax === 1)
      for (const older of this.#candidates(subject))
        if (older.subject === subject) older.wentAt = Math.min(older.wentAt, message.cameAt);
    this.#messages.push(message);
    const job = subject.split(".")[jobToken] ?? "";
    const ofJob = this.#ofJob.get(job);
    if (ofJob) ofJob.push(message);
    else this.#ofJob.set(job, [message]);
    const id = headers["Nats-Msg-Id"];
    if (id !== undefined) this.#ids.set(id, { seq, at: this.#options.time() });
    this.#options.onStored(message);
    return seq;
  }

  #meets({ expect }: OutgoingMessage): boolean {
    return expect === undefined || (this.last(expect.filter)?.seq ?? 0) === expect.seq;
  }

  #known({ headers }: OutgoingMessage): number | null {
    const known = this.#ids.get(headers["Nats-Msg-Id"] ?? "");
    const isKnown = known && known.at + duplicatesKnownMs > this.#options.time();
    return isKnown ? known.seq : null;
  }

  #filter(filter: string, agoMs: number): (message: Kept) => boolean {
    const step = this.#stepAt(this.#options.time() - agoMs);
    const matches = matcher(filter);
    return ({ cameAt, wentAt, subject }) => cameAt <= step && wentAt > step && matches(subject);
  }

  #candidates(filter: string): readonly Kept[] {
    const job = filter.split(".")[jobToken];
    if (job === undefined || job === "*" || job === ">") return this.#messages;
    return this.#ofJob.get(job) ?? [];
  }

  #step(): number {
    this.#steps.push(this.#options.time());
    return this.#steps.length;
  }

  /** The last step that was taken by a time. */
  #stepAt(time: number): number {
    let step = this.#steps.length;
    while (step > 0 && (this.#steps[step - 1] ?? 0) > time) step -= 1;
    return step;
  }
}
