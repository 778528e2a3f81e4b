/**
 * The JetStream engine: the log is a stream, work is claimed from it, records are a bucket beside it,
 * and lists are answered by a projection.
 */
import { randomBytes } from "node:crypto";
import type { JobEvent } from "../../core/event.js";
import { isEnded, type Job } from "../../core/job.js";
import type { Capabilities } from "../capabilities.js";
import { type Clock, systemClock } from "../clock.js";
import type {
  AppendOutcome,
  Change,
  ClaimAnswer,
  ClaimAsk,
  DueAsk,
  DueJob,
  Engine,
  FeedItem,
  HeldLease,
  LoadedJob,
  RenewOutcome,
  SyncStore,
  TokenLease,
  WakeTopic,
} from "../engine.js";
import { StoreClosed, transactionsNotSupported } from "../errors.js";
import { type KeyRow, pageMax, type Queries, type QueryName } from "../query.js";
import { type RecordWrite, recordId, type StoredRecord, type SwapOutcome } from "../record.js";
import type { CallerTransaction } from "../transaction.js";
import { type CapScope, Caps } from "./caps.js";
import { type ChangedBy, Changes } from "./changes.js";
import { Claims } from "./claim.js";
import { eventOf, startFactsOf } from "./entry.js";
import { Held } from "./held.js";
import { JetStreamPort } from "./jetstream.js";
import { Keys } from "./keys.js";
import { Leases } from "./leases.js";
import { loadNats } from "./libraries.js";
import { Log } from "./log.js";
import type { Port, StoredMessage } from "./port.js";
import { provision, type Topology } from "./provision.js";
import { Records } from "./records.js";
import { renewLeases } from "./renewals.js";
import { Subjects } from "./subjects.js";
import { MemoryView } from "./view.js";
import { Wake } from "./wake.js";

const capabilities: Capabilities = {
  transactions: false,
  strictPriority: false,
  immediateViews: true,
  durable: true,
  shared: true,
};

/** How many due jobs one claim writes tickets for, and how many old deletions one call forgets. */
const ticketsMax = 500;
const pruneMax = 5_000;

/** Opens the engine on a server, making its streams if there are none. */
export async function openNats(
  url: string,
  options: { readonly clock?: Clock } = {},
): Promise<Engine> {
  const nats = await loadNats(url);
  const parsed = new URL(url);
  const prefix = parsed.searchParams.get("prefix") ?? "millrace";
  const connection = await nats.connect({ servers: parsed.host, maxReconnectAttempts: -1 });
  const topology = await provision(connection, prefix);
  const port = new JetStreamPort({ nats, connection, topology, url: `nats://${parsed.host}` });
  return new NatsEngine({
    port,
    topology,
    url: `nats://${parsed.host}`,
    clock: options.clock ?? systemClock,
  });
}

class NatsEngine implements Engine {
  readonly url: string;
  readonly capabilities = capabilities;
  readonly #clock: Clock;
  readonly #port: Port;
  readonly #subjects: Subjects;
  readonly #log: Log;
  readonly #records: Records;
  readonly #leases: Leases;
  readonly #caps: Caps;
  readonly #keys: Keys;
  readonly #held = new Held();
  readonly #changes: Changes;
  readonly #claims: Claims;
  readonly #wake: Wake;
  readonly #view: MemoryView;
  readonly #stop = new AbortController();
  readonly #waiting = new Set<() => void>();
  readonly #session = randomBytes(9).toString("base64url");
  #viewing: Promise<void> | null = null;
  /** What was asked and is not done yet. */
  readonly #calls = new Set<Promise<unknown>>();
  #isClosed = false;
  #eventCount = 0;
  #storedSeq = 0;

  constructor({
    port,
    topology,
    url,
    clock,
  }: { port: Port; topology: Topology; url: string; clock: Clock }) {
    this.url = url;
    this.#clock = clock;
    this.#port = port;
    this.#subjects = new Subjects(topology.prefix);
    const now = () => this.now();
    const newEventId = () => `${this.#session}-${(this.#eventCount++).toString(36)}`;
    const hint = (topic: WakeTopic, service: string) => this.#wake.hint(topic, service);
    const stored = (seq: number) => {
      this.#storedSeq = Math.max(this.#storedSeq, seq);
    };
    this.#wake = new Wake(port, this.#subjects, this.#session);
    this.#log = new Log(port, this.#subjects, topology.atomicBatches);
    this.#records = new Records(port, topology.recordsBucket, now);
    this.#leases = new Leases(this.#records);
    this.#caps = new Caps(this.#records);
    const parts = {
      port,
      subjects: this.#subjects,
      log: this.#log,
      records: this.#records,
      leases: this.#leases,
      caps: this.#caps,
      held: this.#held,
      now,
      newEventId,
      hint,
      stored,
    };
    this.#keys = new Keys({ ...parts, actor: `keeper:${this.#session}` });
    this.#changes = new Changes({
      ...parts,
      keys: this.#keys,
      currentOfChain: (id) => this.#currentOfChain(id),
    });
    this.#claims = new Claims({
      ...parts,
      keys: this.#keys,
      changes: this.#changes,
      session: this.#session,
      activeUnder: (scope) => this.#activeUnder(scope),
    });
    this.#view = new MemoryView(now);
  }

  async provision(): Promise<void> {
    this.#mustBeOpen();
  }

  now(): number {
    return this.#clock.now();
  }

  async load(
    ids: readonly string[],
    options?: { readonly history?: boolean; readonly tx?: CallerTransaction },
  ): Promise<readonly (LoadedJob | null)[]> {
    this.#refuse(options?.tx);
    const loaded = await Promise.all(ids.map((id) => this.#log.load(id)));
    return loaded.map(({ job, events }) => {
      if (job === null) return null;
      return options?.history ? { job, events } : { job };
    });
  }

  async append(
    changes: readonly Change[],
    tx?: CallerTransaction,
  ): Promise<readonly AppendOutcome[]> {
    this.#refuse(tx);
    return this.#call(() =>
      this.#appendAll(changes, (change) =>
        change.expect.token === undefined ? "outside" : "worker",
      ),
    );
  }

  async settle(
    changes: readonly Change[],
    tx?: CallerTransaction,
  ): Promise<readonly AppendOutcome[]> {
    this.#refuse(tx);
    return this.#call(() => this.#appendAll(changes, () => "worker"));
  }

  /** Changes go together, but for those that may speak of others of the same call: these wait for what is before them. */
  async #appendAll(
    changes: readonly Change[],
    by: (change: Change) => ChangedBy,
  ): Promise<readonly AppendOutcome[]> {
    const outcomes: Promise<AppendOutcome>[] = [];
    for (const change of changes) {
      const isAlone = speaksOfOthers(change);
      if (isAlone) await Promise.all(outcomes);
      const outcome = this.#changes.append(change, by(change));
      outcomes.push(outcome);
      if (isAlone) await outcome;
    }
    return Promise.all(outcomes);
  }

  async #activeUnder({ service, type, queue }: CapScope): Promise<number> {
    const names = {
      service,
      ...(type !== undefined && { type }),
      ...(queue !== undefined && { queue }),
    };
    const counts = this.#view.query("counts", { filter: { ...names, state: ["active"] } });
    return counts.reduce((sum, { count }) => sum + count, 0);
  }

  async #currentOfChain(chainId: string): Promise<Job | null> {
    await this.#caughtUp();
    const { entries } = this.#view.query("jobs", { filter: { chainId }, limit: pageMax });
    const current = entries.find(({ state }) => !isEnded(state)) ?? entries[0];
    return current ? (await this.#log.load(current.id)).job : null;
  }

  async note(notes: readonly JobEvent[]): Promise<readonly boolean[]> {
    return this.#call(() => Promise.all(notes.map((note) => this.#changes.note(note))));
  }

  async claim(ask: ClaimAsk): Promise<ClaimAnswer> {
    this.#mustBeOpen();
    await this.#writeTickets(ask);
    const jobs = await this.#claims.claim(ask);
    await this.#caughtUp();
    return { jobs, nextDueAt: this.#view.nextDueAt(ask.lanes.map(({ lane }) => lane)) };
  }

  async #writeTickets({ lanes }: ClaimAsk): Promise<void> {
    await this.#caughtUp();
    const now = this.now();
    const due = this.#view.dueTickets(
      lanes.map(({ lane }) => lane),
      now,
      ticketsMax,
    );
    await Promise.all(
      due.map(async ({ id, keyed }) => {
        if (!keyed) return this.#keys.ticket(id, "due");
        const { job } = await this.#log.load(id);
        if (job) await this.#keys.tend(job);
      }),
    );
    for (const { service, type, key } of this.#view.lapsedKeys(now))
      await this.#keys.tend({ service, type, key } as Job);
  }

  async renew(held: readonly HeldLease[]): Promise<readonly RenewOutcome[]> {
    this.#mustBeOpen();
    const { log, leases, caps, keys, port } = {
      log: this.#log,
      leases: this.#leases,
      caps: this.#caps,
      keys: this.#keys,
      port: this.#port,
    };
    return renewLeases(
      {
        port,
        log,
        leases,
        caps,
        keys,
        held: this.#held,
        now: () => this.now(),
        renewed: async (renewed) => {
          await this.#caughtUp();
          this.#view.renew(renewed);
        },
      },
      held,
    );
  }

  async hold(_lease: TokenLease, tx: CallerTransaction): Promise<boolean> {
    this.#refuse(tx);
    return false;
  }

  within(): SyncStore {
    throw transactionsNotSupported(this.url);
  }

  async records(ids: readonly string[]): Promise<readonly (StoredRecord | null)[]> {
    this.#mustBeOpen();
    return Promise.all(ids.map(async (id) => (await this.#records.get(id)).record));
  }

  async swap(writes: readonly RecordWrite[]): Promise<readonly SwapOutcome[]> {
    this.#mustBeOpen();
    const outcomes = await Promise.all(writes.map((write) => this.#records.swap(write)));
    for (const { id } of writes)
      if (id.startsWith(recordId.queues)) this.#wake.hint("ready", id.split("/")[1] ?? "");
    return outcomes;
  }

  async due(ask: DueAsk, limit: number): Promise<readonly DueJob[]> {
    await this.#caughtUp();
    return this.#view.due(ask, limit);
  }

  async query<Name extends QueryName>(
    name: Name,
    ask: Queries[Name]["ask"],
  ): Promise<Queries[Name]["answer"]> {
    this.#mustBeOpen();
    if (name === "records") {
      const { prefix, limit = 100 } = ask as Queries["records"]["ask"];
      return (await this.#records.list(prefix)).slice(0, limit) as Queries[Name]["answer"];
    }
    await this.#caughtUp();
    if (name === "queues")
      this.#view.putRecords(
        (await this.#records.list(recordId.queues)).map((record) => ({ id: record.id, record })),
      );
    const answer = this.#view.query(name, ask);
    if (name === "key" && answer)
      return (await this.#overlay(answer as KeyRow)) as Queries[Name]["answer"];
    if (name === "keys") {
      const page = answer as Queries["keys"]["answer"];
      return {
        ...page,
        entries: await Promise.all(page.entries.map((row) => this.#overlay(row))),
      } as Queries[Name]["answer"];
    }
    return answer;
  }

  async #overlay(row: KeyRow): Promise<KeyRow> {
    const state = await this.#keys.state(row.service, row.hash);
    if (!state) return row;
    const { maxActive, maxQueued, whenFull, takeovers, lastOutcome } = state;
    return {
      ...row,
      maxActive,
      maxQueued,
      whenFull,
      takeovers,
      ...(lastOutcome && { lastOutcome }),
    };
  }

  async *tail(cursor: string | null, signal: AbortSignal): AsyncIterable<FeedItem> {
    this.#mustBeOpen();
    const both = AbortSignal.any([signal, this.#stop.signal]);
    for await (const messages of this.#port.follow(
      "jobs",
      this.#subjects.feedFilter(),
      Number(cursor ?? 0),
      both,
    )) {
      for (const message of messages) {
        if (both.aborted) return;
        const event = eventOf(message);
        if (event.name !== "ready") yield { cursor: String(message.seq), event };
      }
    }
  }

  async head(): Promise<string> {
    this.#mustBeOpen();
    return String(await this.#head());
  }

  wake(topic: WakeTopic, on: () => void): () => void {
    return this.#wake.listen(topic, on);
  }

  async prune(before: number): Promise<number> {
    this.#mustBeOpen();
    const deleted = await this.#port.read("jobs", this.#subjects.deletedFilter());
    const old = deleted.filter((message) => eventOf(message).at < before).slice(0, pruneMax);
    await this.#port.remove(
      "jobs",
      old.map(({ seq }) => seq),
    );
    return old.length;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#wake.close();
    await Promise.allSettled(this.#calls);
    this.#stop.abort();
    await this.#log.idle();
    await this.#viewing;
    await this.#port.close();
  }

  async #head(): Promise<number> {
    const last = await this.#port.last("jobs", this.#subjects.feedFilter());
    return last?.seq ?? 0;
  }

  /** Waits until the view has everything that is in the log now. */
  async #caughtUp(): Promise<void> {
    this.#viewing ??= this.#project();
    const head = Math.max(await this.#head());
    while (this.#view.position < head && !this.#stop.signal.aborted)
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
  }

  async #project(): Promise<void> {
    for await (const messages of this.#port.follow(
      "jobs",
      this.#subjects.feedFilter(),
      0,
      this.#stop.signal,
    )) {
      this.#view.apply(messages.map(entryOf));
      for (const wake of this.#waiting) wake();
      this.#waiting.clear();
    }
    for (const wake of this.#waiting) wake();
  }

  /** Carries out a call, which is waited for when the engine is closed. */
  #call<T>(work: () => Promise<T>): Promise<T> {
    this.#mustBeOpen();
    const call = work();
    this.#calls.add(call);
    const done = () => void this.#calls.delete(call);
    call.then(done, done);
    return call;
  }

  #refuse(tx: CallerTransaction | undefined): void {
    this.#mustBeOpen();
    if (tx !== undefined) throw transactionsNotSupported(this.url);
  }

  #mustBeOpen(): void {
    if (!this.#isClosed) return;
    const message = `The store ${this.url} was closed; connect again to use it.`;
    throw new StoreClosed({ message, url: this.url });
  }
}

/** Whether a change has blockers or continuations, which may be other jobs of the same call. */
function speaksOfOthers({ event, follow }: Change): boolean {
  return follow !== undefined || (event.name === "created" && event.blockers.length > 0);
}

function entryOf(message: StoredMessage) {
  const event = eventOf(message);
  const leaseUntil =
    event.name === "started" ? { leaseUntil: startFactsOf(message).leaseUntil } : {};
  return { seq: message.seq, event, ...leaseUntil };
}
