/**
 * Asks that stand at consumers. A worker that found nothing leaves one with each of those that last had something for it, and
 * the server hands the next ticket over as it comes. Otherwise somebody would have to be told of it before anybody asks.
 */
import type { Clock } from "../clock.js";
import type { OwnTickets } from "./own-tickets.js";
import type { Delivery, Port } from "./port.js";

/** How long an ask stands. An idle worker looks by itself before that, and leaves new ones. */
const standMs = 10_000;

/** How long a ticket that a hint tells of may take to come by itself. Then somebody else has it, or the ask was lost. */
const comingMs = 50;

/** At how many consumers asks stand: those that had something last. Each ties a ticket to this process if it dies. */
const placesMax = 8;

/** A consumer, and the service whose jobs it hands out. */
export interface Source {
  readonly consumer: string;
  readonly service: string;
}

/** A ticket that has come. */
interface Arrived {
  readonly source: Source;
  readonly delivery: Delivery;
}

/** What standing asks need of the engine. */
export interface StandingContext {
  readonly port: Port;
  readonly ownTickets: Pick<OwnTickets, "givenOut">;
  readonly after: Clock["after"];
  /** Tells workers of this process that tickets have come. Who can take them claims before this returns. */
  readonly onArrival: () => void;
  /** Tells workers of this process to look at consumers, although asks stand there. */
  readonly onOverdue: (consumers: ReadonlySet<string>) => void;
  /** Tells everybody that a consumer has something which this process did not take. */
  readonly onReturned: (source: Source) => void;
}

/** The standing asks of a process. */
export class Standing {
  readonly #context: StandingContext;
  /** The consumers that had something, the last one at the end. */
  readonly #used = new Set<string>();
  /** Where an ask stands. */
  readonly #asked = new Set<string>();
  /** Where a hint has told of a ticket that has not come yet, and where none came in time. */
  readonly #expected = new Set<string>();
  readonly #overdue = new Set<string>();
  /** What has come and was not taken yet. */
  #arrived: Arrived[] = [];
  #claims = 0;
  #isClosed = false;

  constructor(context: StandingContext) {
    this.#context = context;
  }

  /** A consumer had something. */
  used(consumer: string): void {
    this.#used.delete(consumer);
    this.#used.add(consumer);
    const [oldest] = this.#used;
    if (this.#used.size > placesMax && oldest !== undefined) this.#used.delete(oldest);
  }

  /** Leaves an ask with each of some consumers that had something lately and has none. */
  leave(sources: readonly Source[]): void {
    for (const source of sources)
      if (this.#used.has(source.consumer) && !this.#asked.has(source.consumer)) this.#ask(source);
  }

  /** Whether what a hint tells of comes by itself. If it does not, that is told later. */
  awaits(consumers: ReadonlySet<string>): boolean {
    if (consumers.size === 0 || this.#asked.size === 0) return false;
    for (const each of consumers)
      if (!this.#asked.has(each) || this.#overdue.has(each)) return false;
    if (this.#expected.size === 0) this.#context.after(comingMs, () => this.#giveUp());
    for (const consumer of consumers) this.#expected.add(consumer);
    return true;
  }

  /** A consumer was looked at and had nothing, so that no ticket was kept from an ask. */
  foundEmpty(consumer: string): void {
    this.#overdue.delete(consumer);
  }

  /** Whether anything has come. */
  get hasArrived(): boolean {
    return this.#arrived.length > 0;
  }

  /** Takes what has come from some consumers, at most so much. */
  take(consumers: readonly string[], limit: number): readonly Delivery[] {
    const isWanted = ({ source }: Arrived) => consumers.includes(source.consumer);
    const taken = new Set(this.#arrived.filter(isWanted).slice(0, limit));
    if (taken.size > 0) this.#arrived = this.#arrived.filter((each) => !taken.has(each));
    return [...taken].map(({ delivery }) => delivery);
  }

  /** Carries out a claim. While one is under way, what comes waits for the next one. */
  async during<Value>(claim: () => Promise<Value>): Promise<Value> {
    this.#claims += 1;
    try {
      return await claim();
    } finally {
      this.#claims -= 1;
      this.#returnSoon();
    }
  }

  /** Takes nothing more: what comes from now on is given back. */
  close(): void {
    this.#isClosed = true;
    this.#return();
  }

  #ask(source: Source): void {
    if (this.#isClosed) return;
    const { consumer } = source;
    this.#asked.add(consumer);
    const over = () => {
      for (const known of [this.#asked, this.#expected, this.#overdue]) known.delete(consumer);
    };
    this.#context.port.fetch(consumer, 1, standMs).then((deliveries) => {
      over();
      for (const delivery of deliveries ?? []) {
        this.used(consumer);
        this.#context.ownTickets.givenOut(consumer, delivery.seq);
        this.#arrived.push({ source, delivery });
      }
      if (this.#arrived.length === 0) return;
      if (!this.#isClosed) this.#context.onArrival();
      this.#returnSoon();
    }, over);
  }

  /** Nothing came of what was expected. */
  #giveUp(): void {
    const overdue = new Set(this.#expected);
    this.#expected.clear();
    if (overdue.size === 0 || this.#isClosed) return;
    for (const consumer of overdue) this.#overdue.add(consumer);
    this.#context.onOverdue(overdue);
  }

  /** Who wanted something has taken it by the end of the turn, unless a claim is under way. */
  #returnSoon(): void {
    if (this.#arrived.length === 0 || this.#claims > 0) return;
    process.nextTick(() => {
      if (this.#claims === 0) this.#return();
    });
  }

  #return(): void {
    const arrived = this.#arrived;
    this.#arrived = [];
    for (const { source, delivery } of arrived) {
      this.#context.port.giveBack(delivery);
      this.#context.onReturned(source);
    }
  }
}
