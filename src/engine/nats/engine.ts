/**
 * The JetStream engine: the log is a stream, work is claimed from it, records are a bucket beside it,
 * and lists are answered by a projection.
 */
import type { JobEvent } from "../../core/event.js";
import type { Capabilities } from "../capabilities.js";
import type {
  AppendOutcome,
  Change,
  ClaimAnswer,
  ClaimAsk,
  ClaimLane,
  DueAsk,
  DueJob,
  Engine,
  EngineHealth,
  FeedExtent,
  FeedItem,
  HeldLease,
  JobHold,
  LoadedJob,
  RenewOutcome,
  SyncStore,
  WakeTopic,
} from "../engine.js";
import { StoreClosed, transactionsNotSupported } from "../errors.js";
import { eventOf, unreadable } from "../event-text.js";
import { feedPosition } from "../feed-position.js";
import { type Logger, silentLogger } from "../logger.js";
import type { Projection, ProjectionStatus } from "../projection/projection.js";
import type { Queries, QueryName } from "../query.js";
import { type RecordWrite, recordId, type StoredRecord, type SwapOutcome } from "../record.js";
import type { CallerTransaction } from "../transaction.js";
import { Advisories } from "./advisories.js";
import { Caps } from "./caps.js";
import { endOfChain } from "./chain-ends.js";
import { type ChangedBy, Changes } from "./changes.js";
import { Claims } from "./claim.js";
import { ForgottenRecords, MissedDeletions } from "./forgotten.js";
import { GivenOut } from "./given-out.js";
import { inGroups } from "./groups.js";
import { Held } from "./held.js";
import { Keys } from "./keys.js";
import { Leases } from "./leases.js";
import { Log } from "./log.js";
import { News, none, type Where } from "./news.js";
import { Notes } from "./notes.js";
import { OwnTickets } from "./own-tickets.js";
import { OwnWrites } from "./own-writes.js";
import { Pauses } from "./pauses.js";
import type { Port } from "./port.js";
import type { Topology } from "./provision.js";
import { ReadModel } from "./read-model.js";
import { machineRest, type Rest } from "./record-lines.js";
import { Records } from "./records.js";
import { forgetDeletions } from "./removal.js";
import { renewLeases } from "./renewals.js";
import { Repair } from "./repair.js";
import type { ServerClock } from "./server-clock.js";
import type { Subjects } from "./subjects.js";
import { Tending } from "./tending.js";
import { Wake } from "./wake.js";

const capabilities: Capabilities = {
  transactions: false,
  synchronousTransactions: false,
  strictPriority: false,
  immediateViews: true,
  durable: true,
  shared: true,
};

/** One whose tickets are fetched, one whose starts are stored, and one whose jobs are handed over. */
const claimsAtOnce = 3;

/** What an engine is made of. */
export interface NatsParts {
  readonly url: string;
  readonly port: Port;
  readonly subjects: Subjects;
  readonly topology: Pick<Topology, "recordsBucket" | "atomicBatches" | "replicas" | "identity">;
  readonly clock: ServerClock;
  readonly openProjection: () => Promise<Projection>;
  /** Tells this process from all others, and begins the ids of events that it writes itself. */
  readonly session: string;
  /** Waits while others are in the way; by the machine's own clock where nothing else is given. */
  readonly rest?: Rest;
  readonly logger?: Logger;
}

/** The engine over a port. */
export class NatsEngine implements Engine {
  readonly url: string;
  readonly capabilities = capabilities;
  readonly claimsAtOnce = claimsAtOnce;
  readonly scope?: string;
  readonly #clock: ServerClock;
  readonly #port: Port;
  readonly #subjects: Subjects;
  readonly #log: Log;
  readonly #records: Records;
  readonly #forgotten: ForgottenRecords;
  readonly #leases: Leases;
  readonly #caps: Caps;
  readonly #keys: Keys;
  readonly #held = new Held();
  readonly #changes: Changes;
  readonly #notes: Notes;
  readonly #claims: Claims;
  readonly #readModel: ReadModel;
  readonly #tending: Tending;
  readonly #advisories: Advisories;
  readonly #wake: Wake;
  readonly #session: string;
  readonly #stop = new AbortController();
  /** What was asked and is not done yet. */
  readonly #calls = new Set<Promise<unknown>>();
  #eventCount = 0;
  #closed: Promise<void> | null = null;

  constructor(given: NatsParts) {
    const { url, port, subjects, topology, clock, openProjection: open, session } = given;
    const { rest = machineRest, logger = silentLogger } = given;
    this.url = url;
    if (subjects.scope !== undefined) this.scope = subjects.scope;
    this.#session = session;
    this.#clock = clock;
    this.#port = port;
    this.#subjects = subjects;
    const now = () => clock.now();
    // Who tends looks at what is there at first, whatever it is told.
    const [claimNews, tendNews, endNews] = [new News(), new News(none), new News(none)];
    const monotonic = () => clock.monotonic();
    const own = () => (topology.replicas > 1 ? new OwnWrites(monotonic) : null);
    const { atomicBatches, recordsBucket: bucket } = topology;
    const isAtomic = () => atomicBatches && port.takesBatches !== false;
    const ownTickets = new OwnTickets({ port, rest });
    this.#log = new Log({ port, subjects, isAtomic, monotonic, rest, own: own(), ownTickets });
    const { scope } = subjects;
    this.#records = new Records({ url, port, rest, bucket, scope, now, own: own() });
    const pauses = new Pauses(this.#records, now);
    const news = { ready: [claimNews, tendNews, pauses], ended: [endNews] };
    const isAwaited = (topic: WakeTopic, where: Where) =>
      topic === "ready" && this.#claims.awaits(where);
    this.#wake = new Wake({ port, subjects, session, news, isAwaited });
    this.#leases = new Leases(this.#records);
    this.#caps = new Caps(this.#records);
    const stores = {
      log: this.#log,
      records: this.#records,
      leases: this.#leases,
      caps: this.#caps,
    };
    const parts = {
      ...stores,
      port,
      subjects,
      now,
      rest,
      held: this.#held,
      newEventId: () => `${this.#session}-${(this.#eventCount++).toString(36)}`,
      hint: (topic: WakeTopic, service: string, where?: Where) =>
        this.#wake.hint(topic, service, where),
    };
    const actor = `keeper:${this.#session}` as const;
    const keys = new Keys({ ...parts, actor });
    this.#keys = keys;
    const followUp: Changes["followUp"] = (id, follow) => this.#changes.followUp(id, follow);
    const givenOut = new GivenOut(parts);
    const repair = new Repair({ ...parts, keys, actor, followUp, givenOut });
    const observe: Repair["observe"] = (told, seq) => repair.observe(told, seq);
    this.#forgotten = new ForgottenRecords(this.#records, topology.identity);
    const missed = new MissedDeletions(() => this.#forgotten.read(scope));
    const view = { keys, clock, observe, open, endNews, logger, missed };
    const readModel = new ReadModel({ ...parts, ...view, url });
    this.#readModel = readModel;
    const chainEnd = (chainId: string) => endOfChain({ ...parts, readModel }, chainId);
    this.#changes = new Changes({ ...parts, keys, actor, chainEnd });
    this.#notes = new Notes({ ...parts, keys });
    const changes = this.#changes;
    const activeUnder: ReadModel["activeUnder"] = (scope) => readModel.activeUnder(scope);
    this.#claims = new Claims({
      ...parts,
      keys,
      changes,
      session: this.#session,
      activeUnder,
      news: claimNews,
      pauses,
      ownTickets,
      after: (delayMs, call) => clock.after(delayMs, call),
      onArrival: () => this.#wake.ring("ready"),
      onOverdue: (consumers) => {
        claimNews.add(consumers);
        this.#wake.ring("ready");
      },
      onReturned: ({ service, consumer }) => parts.hint("ready", service, new Set([consumer])),
      areHintsHeard: () => this.#wake.isHeard("ready"),
    });
    const append = (change: Change) => this.#changes.append(change, "outside");
    this.#advisories = new Advisories({ ...parts, actor, append });
    this.#tending = new Tending({
      ...parts,
      keys,
      repair,
      givenOut,
      advisories: this.#advisories,
      projection: (isTold) => readModel.forKeeper(isTold),
      news: tendNews,
    });
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
    return this.#call(async () => {
      if (!options?.history) {
        const jobs = await this.#log.loadJobs(ids);
        return jobs.map((job) => job && { job });
      }
      const loaded = await Promise.all(ids.map((id) => this.#log.load(id)));
      return loaded.map(({ job, events }) => job && { job, events });
    });
  }

  async append(
    changes: readonly Change[],
    tx?: CallerTransaction,
  ): Promise<readonly AppendOutcome[]> {
    this.#refuse(tx);
    // Only a worker names its token, so that an append under one is the worker's own.
    const by = ({ expect }: Change) => (expect.token === undefined ? "outside" : "worker");
    return this.#call(() => this.#appendAll(changes, by));
  }

  async note(notes: readonly JobEvent[]): Promise<readonly boolean[]> {
    return this.#call(() => Promise.all(notes.map((note) => this.#notes.append(note))));
  }

  async prepareClaims(lanes: readonly Omit<ClaimLane, "free">[]): Promise<void> {
    return this.#call(() => this.#claims.prepare(lanes));
  }

  async claim(ask: ClaimAsk): Promise<ClaimAnswer> {
    // The keeper writes a ticket for whatever becomes due, and tickets come with a hint.
    return this.#call(async () => ({ jobs: await this.#claims.claim(ask), nextDueAt: null }));
  }

  async tend(service: string): Promise<number | null> {
    return this.#call(() => this.#tending.tend(service));
  }

  async renew(held: readonly HeldLease[]): Promise<readonly RenewOutcome[]> {
    const context = {
      port: this.#port,
      log: this.#log,
      leases: this.#leases,
      caps: this.#caps,
      keys: this.#keys,
      records: this.#records,
      held: this.#held,
      now: () => this.now(),
      renewed: (leases: Parameters<ReadModel["renewed"]>[0]) => this.#readModel.renewed(leases),
    };
    return this.#call(() => renewLeases(context, held));
  }

  async settle(
    changes: readonly Change[],
    tx?: CallerTransaction,
  ): Promise<readonly AppendOutcome[]> {
    this.#refuse(tx);
    return this.#call(() => this.#appendAll(changes, () => "worker"));
  }

  async hold(_hold: JobHold, tx: CallerTransaction): Promise<boolean> {
    this.#refuse(tx);
    return false;
  }

  within(): SyncStore {
    throw transactionsNotSupported(this.url);
  }

  async records(ids: readonly string[]): Promise<readonly (StoredRecord | null)[]> {
    return this.#call(() =>
      Promise.all(ids.map(async (id) => (await this.#records.get(id)).record)),
    );
  }

  async swap(writes: readonly RecordWrite[]): Promise<readonly SwapOutcome[]> {
    return this.#call(async () => {
      const outcomes = await Promise.all(writes.map((write) => this.#records.swap(write)));
      // A queue may have been unpaused, so workers should look again.
      for (const { id } of writes)
        if (id.startsWith(recordId.queues)) this.#wake.hint("ready", id.split("/")[1] ?? "");
      return outcomes;
    });
  }

  async due(ask: DueAsk, limit: number): Promise<readonly DueJob[]> {
    return this.#call(async () => {
      const due = await this.#readModel.due(ask, limit);
      return ask.kind === "lapsed" ? this.#lapsed(due) : due;
    });
  }

  /** Those whose lease has lapsed: a renewal that is newer than the view stands on its sheet. */
  async #lapsed(due: readonly DueJob[]): Promise<readonly DueJob[]> {
    const logs = await Promise.all(due.map(({ id }) => this.#log.load(id)));
    const now = this.now();
    const have = await Promise.all(logs.map((logged) => this.#leases.hasLapsed(logged, now)));
    return due.filter((_, place) => have[place]);
  }

  async query<Name extends QueryName>(
    name: Name,
    ask: Queries[Name]["ask"],
  ): Promise<Queries[Name]["answer"]> {
    return this.#call(() => this.#readModel.query(name, ask));
  }

  /** How the projection stands against the log. Opens it, so that it is brought up to date from now on. */
  async viewStatus(): Promise<ProjectionStatus> {
    return this.#call(() => this.#readModel.status());
  }

  /** Makes the projection anew from the log; resolves when it is there again. Questions wait for that long. */
  async rebuildView(): Promise<void> {
    return this.#call(() => this.#readModel.rebuild());
  }

  async *tail(
    cursor: string | null,
    signal: AbortSignal,
    extent: FeedExtent = "live",
  ): AsyncIterable<FeedItem> {
    this.#mustBeOpen();
    const both = AbortSignal.any([signal, this.#stop.signal]);
    const after = feedPosition(cursor);
    const end = extent === "live" ? Number.POSITIVE_INFINITY : Number(await this.head());
    if (after >= end) return;
    for await (const messages of this.#port.follow(
      "jobs",
      this.#subjects.feedFilter(),
      after,
      both,
    )) {
      for (const message of messages) {
        if (both.aborted) return;
        const event = eventOf(message);
        const isTold = event.name !== "ready" && event.name !== (unreadable as string);
        if (isTold) yield { cursor: String(message.seq), event };
        if (message.seq >= end) return;
      }
    }
  }

  async head(): Promise<string> {
    return this.#call(async () => String(await this.#log.head()));
  }

  wake(topic: WakeTopic, on: () => void): () => void {
    return this.#wake.listen(topic, on);
  }

  async prune(before: number): Promise<number> {
    // Who may see one service only may not remove messages; an engine without that limit does it for all.
    if (this.#subjects.scope !== undefined) return 0;
    const parts = {
      ...{ port: this.#port, log: this.#log, subjects: this.#subjects },
      ...{ forgotten: this.#forgotten, now: () => this.now() },
    };
    return this.#call(async () => {
      const forgotten = await forgetDeletions(parts, before);
      // Who removes what is old also acts on advisories, because keepers that see one service only cannot.
      await this.#advisories.act(null);
      return forgotten;
    });
  }

  health(): EngineHealth {
    return { writesQueued: this.#log.waiting };
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#port.hurry();
    this.#readModel.hurry();
    await Promise.allSettled(this.#calls);
    this.#stop.abort();
    this.#clock.stop();
    this.#wake.close();
    this.#claims.close();
    await this.#log.idle();
    await this.#readModel.close();
    await this.#port.close();
  }

  /** Changes go together, but for those that speak of others of the same call: these wait for what is before them. */
  async #appendAll(
    changes: readonly Change[],
    by: (change: Change) => ChangedBy,
  ): Promise<readonly AppendOutcome[]> {
    const [first = [], ...rest] = inGroups(changes);
    if (rest.length === 0) return this.#changes.appendEach(first, by);
    const outcomes = [...(await this.#changes.appendEach(first, by))];
    for (const group of rest) outcomes.push(...(await this.#changes.appendEach(group, by)));
    return outcomes;
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
    if (this.#closed === null) return;
    const message = `The store ${this.url} was closed; connect again to use it.`;
    throw new StoreClosed({ message, url: this.url });
  }
}
