// A NATS server in memory: the log of jobs, the records, the consumers of tickets, and hints.
import { StoreBusy } from "#millrace/engine/errors.js";
import type {
  Acknowledgeable,
  ConsumerConfig,
  Delivery,
  Port,
  StoredMessage,
  StreamName,
} from "#millrace/engine/nats/port.js";
import { eachAlone } from "../../support/each-alone.js";
import { SimulatedConsumer } from "./consumer.js";
import { SimulatedStream } from "./stream.js";
import { matcher } from "./subject.js";

/** The most messages that a follower is handed at once. */
const chunkMax = 1_000;

export class SimulatedServer {
  readonly streams: Readonly<Record<StreamName, SimulatedStream>>;
  readonly #time: () => number;
  readonly #consumers = new Map<string, SimulatedConsumer>();
  readonly #listeners = new Set<{ filter: string; heard: (from: string) => void }>();
  #followers = new Set<() => void>();

  constructor(options: {
    /** Time that only grows, in milliseconds. */
    readonly time: () => number;
    /** Called with whatever is stored. */
    readonly onStored?: (stream: StreamName, message: StoredMessage) => void;
  }) {
    const { time, onStored } = options;
    this.#time = time;
    const stored = (stream: StreamName) => (message: StoredMessage) => {
      onStored?.(stream, message);
      const followers = this.#followers;
      this.#followers = new Set();
      for (const wake of followers) wake();
    };
    this.streams = {
      jobs: new SimulatedStream({ time, onStored: stored("jobs") }),
      records: new SimulatedStream({ time, onStored: stored("records"), perSubjectMax: 1 }),
      advisories: new SimulatedStream({ time, onStored: stored("advisories") }),
    };
  }

  ensureConsumer({ name, filter, ackWaitMs }: ConsumerConfig): void {
    if (this.#consumers.get(name)?.filter === filter) return;
    const options = { name, filter, ackWaitMs, stream: this.streams.jobs, time: this.#time };
    this.#consumers.set(name, new SimulatedConsumer(options));
  }

  consumer(name: string): SimulatedConsumer | null {
    return this.#consumers.get(name) ?? null;
  }

  /** The consumer that gave out a delivery, and the position of it. */
  deliverer({ reply }: Acknowledgeable): { consumer: SimulatedConsumer | null; seq: number } {
    const slash = reply.lastIndexOf("/");
    return { consumer: this.consumer(reply.slice(0, slash)), seq: Number(reply.slice(slash + 1)) };
  }

  /** An operator removes a consumer. */
  removeConsumer(name: string): void {
    this.#consumers.delete(name);
  }

  get consumerNames(): readonly string[] {
    return [...this.#consumers.keys()];
  }

  /** The server starts again: what was given out may come again at once, as if it were new. */
  restart(): void {
    for (const consumer of this.#consumers.values()) consumer.restart();
  }

  hint(subject: string, from: string): void {
    for (const { filter, heard } of [...this.#listeners]) if (matcher(filter)(subject)) heard(from);
  }

  onHint(filter: string, heard: (from: string) => void): () => void {
    const listener = { filter, heard };
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** What a consumer gives out when it next has something; nothing if that takes too long, which is noticed then. */
  async coming(name: string, waitMs: number): Promise<readonly Delivery[]> {
    const until = this.#time() + waitMs;
    const { signal } = new AbortController();
    for (;;) {
      const consumer = this.consumer(name);
      if (consumer === null) return [];
      await this.ahead("jobs", consumer.filter, this.streams.jobs.lastSeq, signal);
      if (this.#time() > until) return [];
      const deliveries = this.consumer(name)?.fetch(1) ?? [];
      if (deliveries.length > 0) return deliveries;
    }
  }

  /** Resolves when there is something under a filter behind a position, or the signal aborts. */
  async ahead(
    stream: StreamName,
    filter: string,
    after: number,
    signal: AbortSignal,
  ): Promise<readonly StoredMessage[]> {
    while (!signal.aborted) {
      const messages = this.streams[stream].after(filter, after, chunkMax);
      if (messages.length > 0) return messages;
      await new Promise<void>((resolve) => {
        const wake = () => {
          signal.removeEventListener("abort", wake);
          this.#followers.delete(wake);
          resolve();
        };
        this.#followers.add(wake);
        signal.addEventListener("abort", wake);
      });
    }
    return [];
  }
}

/** What carries a request to the server and its answer back. */
export interface Wire {
  /** Carries out a request, or fails as a network does. */
  request<Answer>(what: string, work: () => Answer): Promise<Answer>;
  /** Carries out what nobody answers. */
  send(what: string, work: () => void): void;
  /** Something that the server sends by itself reaches the process. */
  arrival(): Promise<void>;
  /** A hint reaches the process, or not. */
  hinted(heard: () => void): void;
  /** By how much the copy that answers a question is behind. */
  behindMs(): number;
}

/** The wire that never fails. */
export const plainWire: Wire = {
  request: async (_what, work) => work(),
  send: (_what, work) => work(),
  arrival: async () => {},
  hinted: (heard) => heard(),
  behindMs: () => 0,
};

/** The port to a simulated server over a wire. */
export function simulatedPort(
  server: SimulatedServer,
  options: {
    readonly wire?: Wire;
    readonly now: () => number;
    /** Whether many subjects can be asked for at once. */
    readonly readsEverything?: boolean;
    /** Whether the server that leads now takes batches. */
    readonly takesBatches?: () => boolean;
  },
): Port {
  const { wire = plainWire, now, readsEverything = true, takesBatches = () => true } = options;
  const { streams } = server;
  const publish: Port["publish"] = (stream, message) =>
    wire.request(`publish ${message.subject}`, () => streams[stream].publish(message));
  return {
    publish,
    publishEach: (messages) => eachAlone(messages, publish),
    get takesBatches() {
      return takesBatches();
    },
    publishTogether: (messages) =>
      wire.request(`publish ${messages.map(({ subject }) => subject).join(", ")}`, () =>
        streams.jobs.publishTogether(messages),
      ),
    last: (stream, filter) =>
      wire.request(`last ${filter}`, () => streams[stream].last(filter, wire.behindMs())),
    read: (stream, filter, { after, limit } = { after: 0, limit: Number.POSITIVE_INFINITY }) =>
      wire.request(`read ${filter}`, () => {
        const messages = streams[stream].read(filter, wire.behindMs());
        return messages.filter(({ seq }) => seq > after).slice(0, limit);
      }),
    newestSeq: (filter, _subject, stream = "jobs") =>
      wire.request(`newest ${filter}`, () => streams[stream].last(filter)?.seq ?? 0),
    lastOfEach: async (filters) =>
      readsEverything
        ? wire.request("last of each", () => streams.jobs.lastOfEach(filters, wire.behindMs()))
        : null,
    ensureConsumer: (config) =>
      wire.request(`ensure consumer ${config.name}`, () => server.ensureConsumer(config)),
    fetch: async (name, limit, waitMs = 0) => {
      const fetched = wire.request(`${waitMs === 0 ? "fetch" : "wait for"} ${name}`, () => {
        const deliveries = server.consumer(name)?.fetch(limit) ?? null;
        const isOver = waitMs === 0 || deliveries === null || deliveries.length > 0;
        return isOver ? { deliveries } : { coming: server.coming(name, waitMs) };
      });
      try {
        const { deliveries, coming } = await fetched;
        if (coming === undefined) return deliveries;
        const come = await coming;
        // They are given out, whether or not anybody is still there.
        await wire.arrival();
        return come;
      } catch (error) {
        // Whoever fetches waits for a while, and takes what has come.
        if (StoreBusy.is(error)) return [];
        throw error;
      }
    },
    progressOf: (name) =>
      wire.request(`info of ${name}`, () => server.consumer(name)?.progress() ?? null),
    time: () => wire.request("time", now),
    acknowledge: async (deliveries) => {
      const acknowledge = (delivery: Acknowledgeable) =>
        wire.request(`acknowledge ${delivery.reply}`, () => {
          const { consumer, seq } = server.deliverer(delivery);
          consumer?.acknowledge(seq);
        });
      await Promise.all(deliveries.map(acknowledge));
    },
    working: (deliveries) => {
      for (const delivery of deliveries)
        wire.send("working", () => {
          const { consumer, seq } = server.deliverer(delivery);
          consumer?.working(seq);
        });
    },
    giveBack: (delivery) =>
      wire.send("give back", () => {
        const { consumer, seq } = server.deliverer(delivery);
        consumer?.giveBack(seq);
      }),
    async *follow(stream, filter, after, signal) {
      let last = after;
      while (!signal.aborted) {
        await server.ahead(stream, filter, last, signal);
        if (signal.aborted) return;
        await wire.arrival();
        const messages = streams[stream].after(filter, last, chunkMax);
        last = messages.at(-1)?.seq ?? last;
        if (messages.length > 0) yield messages;
      }
    },
    remove: async (stream, seqs) => {
      const remove = (seq: number) =>
        wire.request(`remove ${seq}`, () => streams[stream].remove(seq));
      await Promise.all(seqs.map(remove));
    },
    hint: (subject, from) => wire.send(`hint ${subject}`, () => server.hint(subject, from)),
    hurry: () => {},
    onHint: (subject, heard) => server.onHint(subject, (from) => wire.hinted(() => heard(from))),
    close: async () => {},
  };
}
