// A durable consumer as nats-server keeps it: gives out what was not acknowledged in time again, before anything new.
import type { ConsumerProgress, Delivery } from "#millrace/engine/nats/port.js";
import type { SimulatedStream } from "./stream.js";

/** How often a message is given out at most. */
const deliveriesMax = 1_000;

interface Pending {
  /** When it is given out again. */
  until: number;
  deliveries: number;
}

export interface ConsumerOptions {
  readonly name: string;
  readonly filter: string;
  readonly ackWaitMs: number;
  readonly stream: SimulatedStream;
  readonly time: () => number;
}

export class SimulatedConsumer {
  readonly filter: string;
  readonly #options: ConsumerOptions;
  readonly #pending = new Map<number, Pending>();
  /** What is to be given out again, first come, first served. */
  #again: number[] = [];
  #delivered = 0;
  /** How far it has looked. */
  #seen = 0;

  constructor(options: ConsumerOptions) {
    this.#options = options;
    this.filter = options.filter;
  }

  /** Gives out what there is, at most so much. */
  fetch(limit: number): readonly Delivery[] {
    const { stream, time, filter, ackWaitMs } = this.#options;
    const now = time();
    const expired = [...this.#pending].filter(([, { until }]) => until <= now);
    for (const [seq, pending] of expired.sort(([a], [b]) => a - b)) this.#offer(seq, pending);
    const deliveries: Delivery[] = [];
    const give = (seq: number, times: number) => {
      this.#pending.set(seq, { until: now + ackWaitMs, deliveries: times });
      const message = stream.at(seq);
      if (message === null || times > deliveriesMax) {
        if (message === null) this.#pending.delete(seq);
        return;
      }
      const reply = `${this.#options.name}/${seq}`;
      deliveries.push({ ...message, reply, isRedelivery: times > 1 });
    };
    while (this.#again.length > 0 && deliveries.length < limit) {
      const seq = this.#again.shift() ?? 0;
      const pending = this.#pending.get(seq);
      if (pending) give(seq, pending.deliveries + 1);
    }
    const left = limit - deliveries.length;
    const fresh = stream.after(filter, this.#seen, left);
    for (const { seq } of fresh) {
      this.#delivered = seq;
      give(seq, 1);
    }
    this.#seen = fresh.length < left ? stream.lastSeq : Math.max(this.#seen, this.#delivered);
    return deliveries;
  }

  acknowledge(seq: number): void {
    this.#pending.delete(seq);
    this.#again = this.#again.filter((other) => other !== seq);
  }

  /** The wait for an acknowledgement begins anew. */
  working(seq: number): void {
    const pending = this.#pending.get(seq);
    if (pending && pending.until > this.#options.time())
      pending.until = this.#options.time() + this.#options.ackWaitMs;
  }

  /** Offers a message again at once. */
  giveBack(seq: number): void {
    const pending = this.#pending.get(seq);
    if (pending) this.#offer(seq, pending);
  }

  /** Forgets when and how often messages were given out, as a restart of the server may. */
  restart(): void {
    for (const [seq, pending] of this.#pending) {
      pending.deliveries = 0;
      this.#offer(seq, pending);
    }
  }

  /** What was given out, and up to where nothing is left to be acknowledged. */
  progress(): ConsumerProgress {
    const lowest = Math.min(...this.#pending.keys());
    return {
      deliveredUpTo: this.#delivered,
      acknowledgedUpTo: Number.isFinite(lowest) ? lowest - 1 : this.#delivered,
      ackWaitMs: this.#options.ackWaitMs,
    };
  }

  #offer(seq: number, pending: Pending): void {
    pending.until = Number.POSITIVE_INFINITY;
    if (!this.#again.includes(seq)) this.#again.push(seq);
  }
}
