/**
 * A projection: the read model of jobs whose truth is a log that is kept elsewhere. It obeys: an event of the log is
 * never refused. It is disposable: cleared, it is the same again after the log is applied from the start.
 */
import { randomUUID } from "node:crypto";
import type { Clock } from "../clock.js";
import { batchMax, type DueAsk, type DueJob } from "../engine.js";
import { StoreClosed, StoreFailed, StoreUnavailable } from "../errors.js";
import type { EventText } from "../event-text.js";
import type { Queries, QueryName } from "../query.js";
import { Commits } from "../sql/commits.js";
import type { LoggedEvent, RenewedLease } from "./entry.js";
import type { Owner } from "./header.js";
import { appliedLengthMax, appliedMax, type Entries, unpacked } from "./packed.js";
import type { Reads } from "./reads.js";
import type { ProjectionStore } from "./store.js";
import type { DueTicket, DueTicketsAsk, StandingAsk, StandingJob, TicketScope } from "./tickets.js";
import type { MirroredRecord, Writes } from "./writes.js";

/** How long the lead is held. Whoever leads asks again several times within. */
export const leadMs = 15_000;

/** How a projection stands. */
export interface ProjectionStatus {
  readonly position: number;
  /** How far the position lies behind the newest event of the log. */
  readonly lag: number;
  /** How many events changed nothing, because the fold ignores them. */
  readonly ignored: number;
  /** Whether this process leads. */
  readonly leads: boolean;
}

/** What a projection is opened with. */
export interface ProjectionOptions extends Owner {
  readonly clock: Clock;
}

/** The read model of a log. Any number of processes may have it open; one of them should apply, and all may ask. */
export class Projection {
  readonly #store: ProjectionStore;
  readonly #owner: Owner;
  readonly #clock: Clock;
  readonly #commits: Commits;
  readonly #name = randomUUID();
  /** The newest position that this process has seen. */
  #known = 0;
  #leads = false;
  #looking: Promise<number> | null = null;
  #isListening = false;
  #closed: Promise<void> | null = null;

  private constructor(store: ProjectionStore, { identity, origin, clock }: ProjectionOptions) {
    this.#store = store;
    this.#owner = { identity, origin };
    this.#clock = clock;
    this.#commits = new Commits(clock);
  }

  /** Opens a projection, making it if there is none. One of another deployment is refused; that of an older log is cleared. */
  static async open(store: ProjectionStore, options: ProjectionOptions): Promise<Projection> {
    try {
      await store.open();
      const found = await store.write("enroll", {
        identity: options.identity,
        origin: options.origin,
      });
      if (found.identity === options.identity) return new Projection(store, options);
      const message = `${store.url} is the projection of "${found.identity}", not of "${options.identity}". Name another database for the projection.`;
      throw new StoreUnavailable({ url: store.url, message });
    } catch (error) {
      await store.close();
      throw error;
    }
  }

  /** Whether this process leads, as far as it knows. */
  get leads(): boolean {
    return this.#leads;
  }

  /** The position of the last event that is applied. */
  position(): Promise<number> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  /** How the projection stands against the newest position of the log. */
  async status(head: number): Promise<ProjectionStatus> {
    const { position, ignored } = await this.#read("header", null);
    return { position, lag: Math.max(head - position, 0), ignored, leads: this.#leads };
  }

  /**
   * Applies the events that follow on a position in the log, in order, a bounded number of them in a transaction, which
   * moves the projection's position, too. Those that are applied already are skipped, so that applying twice is
   * harmless, and so are two who apply at once. Gives the position after it. Where that lies before the last of the
   * events, somebody has cleared the projection, and the caller goes on reading the log from there.
   */
  async apply(after: number, entries: Entries): Promise<number> {
    if (!("bytes" in entries)) return this.#applyAll(after, entries);
    try {
      return await this.#applyTogether(after, entries);
    } catch (error) {
      if (!isOfOneEvent(error)) throw error;
      return this.#applyAll(after, [...unpacked(entries)]);
    }
  }

  async #applyAll(after: number, entries: readonly LoggedEvent[]): Promise<number> {
    let position = after;
    let follows = after;
    for (const chunk of transactions(entries)) {
      position = await this.#applyChunk(follows, chunk);
      follows = chunk.at(-1)?.seq ?? follows;
      if (position < follows) break;
    }
    return position;
  }

  /**
   * Extends leases that processes have renewed: of active jobs under that token, and the slots that ended ones still hold.
   * Only who leads, or where nobody ever did, has an effect.
   */
  async renew(leases: readonly RenewedLease[]): Promise<void> {
    for (const items of chunks(leases)) await this.#write("renew", { leader: this.#name, items });
  }

  /** Mirrors records as they are now. Only who leads, or where nobody ever did, has an effect. */
  async putRecords(records: readonly MirroredRecord[]): Promise<void> {
    for (const items of chunks(records))
      await this.#write("records", { leader: this.#name, items });
  }

  /** Asks the read model. */
  async query<Name extends QueryName>(
    name: Name,
    ask: Queries[Name]["ask"],
  ): Promise<Queries[Name]["answer"]> {
    return (await this.#read("query", { name, ask })) as Queries[Name]["answer"];
  }

  /** Jobs whose time has come, at most `limit`. */
  due(ask: DueAsk, limit: number): Promise<readonly DueJob[]> {
    return this.#read("due", { due: ask, limit });
  }

  /**
   * Jobs that wait to be claimed, whose run time has come by `now`, and that have had no ticket since: they were put in
   * line before that time, and no `ready` event has come after it. Those that are due longest come first.
   */
  dueTickets(ask: DueTicketsAsk): Promise<readonly DueTicket[]> {
    return this.#read("tickets", ask);
  }

  /** When the next job needs a ticket, or the next slot of an ended job lapses; `null` when nothing is to come. */
  nextDueAt(scope: TicketScope, now: number): Promise<number | null> {
    return this.#read("nextDue", { scope, now });
  }

  /** The keys of a service, by hash, of which a slot of an ended job has lapsed. */
  lapsedKeys(service: string, now: number, limit: number): Promise<readonly string[]> {
    return this.#read("lapsedKeys", { service, now, limit });
  }

  /** The jobs of a service that have stood in line since a time, oldest first, from one on. */
  longStanding(ask: StandingAsk): Promise<readonly StandingJob[]> {
    return this.#read("longStanding", ask);
  }

  /**
   * Takes the lead, or goes on leading, for `leadMs`. Gives whether this process leads. Throws `StoreUnavailable` where the
   * projection has become that of a newer log.
   */
  async lead(): Promise<boolean> {
    const until = this.#clock.now() + leadMs;
    const { origin } = this.#owner;
    const leads = await this.#write("lead", { leader: this.#name, origin, until });
    this.#leads = leads === true;
    if (leads === null) throw this.#ofNewerLog();
    return leads;
  }

  /** Resolves with `true` when the position is at least `seq`, whoever applies; with `false` when the signal aborts before. */
  async reached(seq: number, signal: AbortSignal): Promise<boolean> {
    if (!this.#isListening) {
      this.#isListening = true;
      this.#store.listen(() => this.#commits.ring());
    }
    while (!signal.aborted && this.#closed === null) {
      const committed = this.#commits.next(signal);
      try {
        if (this.#known >= seq || (await this.position()) >= seq) return true;
        await committed.wait;
      } finally {
        committed.cancel();
      }
    }
    return false;
  }

  /** Removes everything, for a rebuild: the log is to be applied from its start. */
  async clear(): Promise<void> {
    await this.#write("clear", null);
    this.#known = 0;
  }

  /** Gives the lead up and lets go of the database. Idempotent. */
  close(): Promise<void> {
    this.#closed ??= this.#end();
    return this.#closed;
  }

  async #end(): Promise<void> {
    if (this.#leads) {
      const { origin } = this.#owner;
      const step = this.#store.write("lead", { leader: this.#name, origin, until: null });
      // Whoever cannot be told waits for the lead to lapse.
      await step.catch(() => false);
    }
    await this.#store.close();
    this.#commits.ring();
  }

  async #look(): Promise<number> {
    const { position } = await this.#read("header", null);
    this.#known = position;
    return position;
  }

  /** Applies entries in one transaction. Where one of them cannot be stored, the others are, and that one counts as ignored. */
  async #applyChunk(after: number, entries: readonly LoggedEvent[]): Promise<number> {
    try {
      return await this.#applyTogether(after, entries);
    } catch (error) {
      if (!isOfOneEvent(error)) throw error;
    }
    const [only] = entries;
    if (only && entries.length === 1)
      return this.#applyTogether(after, [{ ...only, event: nothing }]);
    const middle = Math.ceil(entries.length / 2);
    const first = entries.slice(0, middle);
    const last = first.at(-1)?.seq ?? after;
    const position = await this.#applyChunk(after, first);
    return position < last ? position : this.#applyChunk(last, entries.slice(middle));
  }

  async #applyTogether(after: number, entries: Entries): Promise<number> {
    const { origin } = this.#owner;
    const position = await this.#write("apply", { origin, after, entries });
    if (position === null) throw this.#ofNewerLog();
    this.#known = position;
    this.#commits.ring();
    return position;
  }

  async #write<Kind extends keyof Writes>(
    kind: Kind,
    ask: Writes[Kind]["ask"],
  ): Promise<Writes[Kind]["answer"]> {
    this.#refuseClosed();
    return this.#store.write(kind, ask);
  }

  async #read<Kind extends keyof Reads>(
    kind: Kind,
    ask: Reads[Kind]["ask"],
  ): Promise<Reads[Kind]["answer"]> {
    this.#refuseClosed();
    return this.#store.read(kind, ask);
  }

  #ofNewerLog(): StoreUnavailable {
    const { url } = this.#store;
    const message = `${url} has become the projection of a newer log. Connect again.`;
    return new StoreUnavailable({ url, message });
  }

  #refuseClosed(): void {
    if (this.#closed === null) return;
    const { url } = this.#store;
    throw new StoreClosed({ url, message: "The projection was closed before this call." });
  }
}

/** Whether a fault lies with what an event says, and not with the database. */
function isOfOneEvent(error: unknown): boolean {
  if (!(error instanceof StoreFailed)) return false;
  return /^$|^SQLITE_(CONSTRAINT|MISMATCH|TOOBIG|ERROR)|^(22|23|54)/.test(error.code ?? "");
}

/** Stands for an event that cannot be stored. */
const nothing: EventText = { subject: "", body: "" };

/** As many entries together as a transaction takes. */
function* transactions(entries: readonly LoggedEvent[]): Iterable<readonly LoggedEvent[]> {
  let chunk: LoggedEvent[] = [];
  let length = 0;
  for (const entry of entries) {
    chunk.push(entry);
    // An event that was read already is in memory anyway.
    length += "body" in entry.event ? entry.event.body.length : 0;
    if (chunk.length < appliedMax && length < appliedLengthMax) continue;
    yield chunk;
    chunk = [];
    length = 0;
  }
  if (chunk.length > 0) yield chunk;
}

function* chunks<Item>(items: readonly Item[]): Iterable<readonly Item[]> {
  for (let start = 0; start < items.length; start += batchMax)
    yield items.slice(start, start + batchMax);
}
