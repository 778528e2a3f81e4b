/**
 * The memory engine: the reference implementation of the engine contract. Everything lives in plain maps
 * of this process, and every call takes effect in one synchronous step.
 */
import type { JobEvent } from "../../core/event.js";
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
import type { Queries, QueryName } from "../query.js";
import type { RecordWrite, StoredRecord, SwapOutcome } from "../record.js";
import type { CallerTransaction } from "../transaction.js";
import { appendChange, appendNote } from "./append.js";
import { renewLease } from "./attempts.js";
import { claimJobs } from "./claim.js";
import { answers, dueJobs } from "./read-model.js";
import { readRecord, swapRecord } from "./records.js";
import { copy, emptyStore, type Store } from "./store.js";

/** What a memory engine is opened with. */
export interface MemoryOptions {
  readonly clock?: Clock;
  readonly url?: string;
}

/** Opens an empty store in memory. It is gone when the process ends. */
export function openMemory(options: MemoryOptions = {}): Engine {
  return new MemoryEngine(options);
}

class MemoryEngine implements Engine {
  readonly url: string;
  readonly capabilities: Capabilities = {
    transactions: false,
    synchronousTransactions: false,
    strictPriority: true,
    immediateViews: true,
    durable: false,
    shared: false,
  };
  readonly #clock: Clock;
  readonly #store: Store;
  readonly #listeners: { readonly [Topic in WakeTopic]: Set<() => void> } = {
    ready: new Set(),
    ended: new Set(),
    cancel: new Set(),
  };
  /** The time of the call under way, so that all of it happens at one moment. */
  #time = 0;
  #closed = false;

  constructor({ clock = systemClock, url = "memory:" }: MemoryOptions) {
    this.url = url;
    this.#clock = clock;
    this.#store = emptyStore(() => this.#time);
  }

  now(): number {
    return this.#clock.now();
  }

  async provision(): Promise<void> {
    this.#step(() => {});
  }

  async load(
    ids: readonly string[],
    options?: { readonly history?: boolean; readonly tx?: CallerTransaction },
  ): Promise<readonly (LoadedJob | null)[]> {
    this.#refuse(options?.tx);
    return this.#step((store) =>
      ids.map((id) => {
        const entry = store.jobs.get(id);
        if (entry === undefined) return null;
        if (!options?.history) return { job: copy(entry.job) };
        const events = entry.positions.map((position) => store.feed.at(position));
        return { job: copy(entry.job), events: copy(events.filter((event) => event !== null)) };
      }),
    );
  }

  async append(
    changes: readonly Change[],
    tx?: CallerTransaction,
  ): Promise<readonly AppendOutcome[]> {
    this.#refuse(tx);
    return this.#step((store) =>
      changes.map((change) => {
        // Only a worker names its token, so that an append under one is the worker's own.
        const by = change.expect.token === undefined ? "outside" : "worker";
        return appendChange(store, change, by);
      }),
    );
  }

  async note(notes: readonly JobEvent[]): Promise<readonly boolean[]> {
    return this.#step((store) => notes.map((note) => appendNote(store, note)));
  }

  async claim(ask: ClaimAsk): Promise<ClaimAnswer> {
    return this.#step((store) => claimJobs(store, ask));
  }

  async renew(held: readonly HeldLease[]): Promise<readonly RenewOutcome[]> {
    return this.#step((store) => held.map((lease) => renewLease(store, lease)));
  }

  async settle(
    changes: readonly Change[],
    tx?: CallerTransaction,
  ): Promise<readonly AppendOutcome[]> {
    this.#refuse(tx);
    return this.#step((store) => changes.map((change) => appendChange(store, change, "worker")));
  }

  async hold(_hold: JobHold, tx: CallerTransaction): Promise<boolean> {
    this.#refuse(tx);
    return false;
  }

  within(): SyncStore {
    throw transactionsNotSupported(this.url);
  }

  async records(ids: readonly string[]): Promise<readonly (StoredRecord | null)[]> {
    return this.#step((store) => copy(ids.map((id) => readRecord(store, id))));
  }

  async swap(writes: readonly RecordWrite[]): Promise<readonly SwapOutcome[]> {
    return this.#step((store) => writes.map((write) => swapRecord(store, write)));
  }

  async due(ask: DueAsk, limit: number): Promise<readonly DueJob[]> {
    return this.#step((store) => dueJobs(store, ask, limit));
  }

  async query<Name extends QueryName>(
    name: Name,
    ask: Queries[Name]["ask"],
  ): Promise<Queries[Name]["answer"]> {
    return this.#step((store) => answers[name](store, ask));
  }

  tail(
    cursor: string | null,
    signal: AbortSignal,
    extent: FeedExtent = "live",
  ): AsyncIterable<FeedItem> {
    return this.#step((store) => store.feed.read(cursor, signal, extent));
  }

  async head(): Promise<string> {
    return this.#step((store) => String(store.feed.head));
  }

  wake(topic: WakeTopic, on: () => void): () => void {
    // A listener of its own, so that the same function given twice can be stopped twice.
    const listener = () => on();
    this.#listeners[topic].add(listener);
    return () => this.#listeners[topic].delete(listener);
  }

  async prune(before: number): Promise<number> {
    return this.#step((store) => store.feed.forgetDeleted(before));
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#store.feed.close();
    for (const listeners of Object.values(this.#listeners)) listeners.clear();
  }

  #refuse(tx: CallerTransaction | undefined): void {
    if (tx !== undefined) throw transactionsNotSupported(this.url);
  }

  /** Carries out one call in one go; its hints go out when the call is over. */
  #step<T>(work: (store: Store) => T): T {
    if (this.#closed) {
      const message = `The store ${this.url} was closed; connect again to use it.`;
      throw new StoreClosed({ message, url: this.url });
    }
    this.#time = this.#clock.now();
    try {
      return work(this.#store);
    } finally {
      this.#sendHints();
    }
  }

  #sendHints(): void {
    const topics = [...this.#store.hints];
    this.#store.hints.clear();
    if (topics.length === 0) return;
    queueMicrotask(() => {
      for (const topic of topics) for (const listener of [...this.#listeners[topic]]) listener();
    });
  }
}
