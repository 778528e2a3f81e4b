/**
 * The PostgreSQL engine: one schema of a database, any number of processes on any number of machines.
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
import { StoreClosed, TransactionRefused } from "../errors.js";
import type { Queries, QueryName } from "../query.js";
import type { RecordWrite, StoredRecord, SwapOutcome } from "../record.js";
import { isNote, noteChange } from "../sql/change.js";
import { Commits } from "../sql/commits.js";
import { isPlainCreate, isPlainEnd } from "../sql/plain.js";
import { loadedJob } from "../sql/read.js";
import { type Reads, readItem } from "../sql/reads.js";
import { eventFrom, headOf } from "../sql/rows.js";
import type { Step } from "../sql/statement.js";
import type { CallerTransaction } from "../transaction.js";
import { type Address, addressOf } from "./address.js";
import { CommitWatch } from "./commit-watch.js";
import { Database } from "./driver.js";
import { Enlisted } from "./enlist.js";
import {
  checkPlace,
  currentSnapshot,
  cursorOf,
  feedStart,
  placeOf,
  readFeed,
  readMoves,
} from "./feed.js";
import { isKeyedCreate } from "./keyed-create.js";
import { loadDriver, type PgModule } from "./module.js";
import { isUnblock } from "./plain-unblock.js";
import { readLogs } from "./read.js";
import { channelOf, Wake } from "./wake.js";
import { Writer } from "./writer.js";

const capabilities: Capabilities = {
  transactions: true,
  synchronousTransactions: false,
  strictPriority: true,
  immediateViews: true,
  durable: true,
  shared: true,
};

/** How many events the feed reads at a time, and how many jobs one statement loads. */
const feedChunk = 500;
const loadChunk = 500;

/** Opens the engine on a database, making its schema if there is none. */
export async function openPostgres(
  url: string,
  options: { readonly clock?: Clock } = {},
): Promise<Engine> {
  const address = addressOf(url);
  const engine = new PostgresEngine(
    await loadDriver(address.where),
    address,
    options.clock ?? systemClock,
  );
  try {
    await engine.provision();
  } catch (error) {
    await engine.close();
    throw error;
  }
  return engine;
}

class PostgresEngine implements Engine {
  readonly url: string;
  readonly capabilities = capabilities;
  readonly #database: Database;
  readonly #writer: Writer;
  readonly #enlisted: Enlisted;
  readonly #commitWatch: CommitWatch;
  readonly #wake: Wake;
  readonly #commits: Commits;
  #provisioned: Promise<void> | null = null;
  #closed: Promise<void> | null = null;

  constructor(pg: PgModule, address: Address, clock: Clock) {
    this.url = address.where;
    const given = clock === systemClock ? null : () => clock.now();
    this.#database = new Database(pg, address, given);
    this.#commits = new Commits(clock);
    this.#wake = new Wake({
      clock,
      channel: channelOf(address.schema),
      connect: () => this.#database.listener(),
      notify: (notice) => this.#database.notify(notice),
    });
    this.#writer = new Writer(this.#database, clock, {
      tell: (woke) => {
        this.#wake.hint(woke);
        this.#commits.ring();
      },
      ready: () => this.#wake.notice("ready"),
      creating: () => this.#wake.creating(),
      created: () => this.#wake.created(),
      told: (woke, notice) => {
        this.#wake.told(notice);
        this.#wake.hintHere(woke);
        this.#commits.ring();
      },
    });
    this.#commitWatch = new CommitWatch({ clock, run: (step) => this.#database.run(step) });
    this.#enlisted = new Enlisted({
      database: this.#database,
      writer: this.#writer,
      commitWatch: this.#commitWatch,
    });
  }

  provision(): Promise<void> {
    this.#provisioned ??= this.#database.provision().catch(async (error: unknown) => {
      this.#provisioned = null;
      throw await this.#database.faultOf(error);
    });
    return this.#provisioned;
  }

  now(): number {
    return this.#database.now();
  }

  async load(
    ids: readonly string[],
    options: { readonly history?: boolean; readonly tx?: CallerTransaction } = {},
  ): Promise<readonly (LoadedJob | null)[]> {
    if (options.tx) return this.#enlisted.load(ids, options.history === true, options.tx);
    const loaded: (LoadedJob | null)[] = [];
    for (let start = 0; start < ids.length; start += loadChunk) {
      const logs = await this.#read(readLogs(ids.slice(start, start + loadChunk)));
      for (const log of logs) loaded.push(log && loadedJob(log, options.history === true));
    }
    return loaded;
  }

  /** No async function: every create comes by, and would wait for three turns of promises more. */
  append(changes: readonly Change[], tx?: CallerTransaction): Promise<readonly AppendOutcome[]> {
    if (changes.length === 0) return Promise.resolve([]);
    if (this.#closed !== null) return Promise.reject(this.#closedBefore());
    if (tx) return this.#enlisted.append(changes, tx);
    if (changes.every(isPlainCreate)) return this.#writer.create(changes);
    if (changes.every(isKeyedCreate)) return this.#writer.createKeyed(changes);
    return changes.every(isUnblock) ? this.#writer.unblock(changes) : this.#writer.append(changes);
  }

  async note(notes: readonly JobEvent[]): Promise<readonly boolean[]> {
    const known = notes.filter(isNote).map(noteChange);
    if (known.length === 0) return notes.map(() => false);
    this.#checkOpen();
    const stored = await this.#writer.note(known);
    let next = 0;
    return notes.map((event) => isNote(event) && stored[next++] === true);
  }

  async claim(ask: ClaimAsk): Promise<ClaimAnswer> {
    this.#checkOpen();
    return this.#writer.claim(ask);
  }

  async renew(held: readonly HeldLease[]): Promise<readonly RenewOutcome[]> {
    if (held.length === 0) return [];
    this.#checkOpen();
    return this.#writer.renew(held);
  }

  async settle(
    changes: readonly Change[],
    tx?: CallerTransaction,
  ): Promise<readonly AppendOutcome[]> {
    if (changes.length === 0) return [];
    this.#checkOpen();
    if (tx) return this.#enlisted.settle(changes, tx);
    if (changes.every(isPlainEnd)) return this.#writer.end(changes);
    const isPlain = changes.map(isPlainEnd);
    if (!isPlain.includes(true)) return this.#writer.settle(changes);
    // One retry among many ends does not make all of them go one by one.
    const [ends, others] = await Promise.all([
      this.#writer.end(changes.filter((_, place) => isPlain[place])),
      this.#writer.settle(changes.filter((_, place) => !isPlain[place])),
    ]);
    const [nextEnd, nextOther] = [ends.values(), others.values()];
    return isPlain.map((isEnd) => (isEnd ? nextEnd : nextOther).next().value as AppendOutcome);
  }

  async hold(hold: JobHold, tx: CallerTransaction): Promise<boolean> {
    this.#checkOpen();
    return this.#enlisted.hold(hold, tx);
  }

  within(): SyncStore {
    const message =
      "A transaction of PostgreSQL cannot be used by a synchronous call; await create(…, { tx }) instead.";
    throw new TransactionRefused({ reason: "not_synchronous", message });
  }

  records(ids: readonly string[]): Promise<readonly (StoredRecord | null)[]> {
    return this.#ask("records", ids);
  }

  async swap(writes: readonly RecordWrite[]): Promise<readonly SwapOutcome[]> {
    this.#checkOpen();
    return this.#writer.swap(writes);
  }

  due(ask: DueAsk, limit: number): Promise<readonly DueJob[]> {
    return this.#ask("due", { due: ask, limit });
  }

  async query<Name extends QueryName>(
    name: Name,
    ask: Queries[Name]["ask"],
  ): Promise<Queries[Name]["answer"]> {
    return (await this.#ask("query", { name, ask })) as Queries[Name]["answer"];
  }

  async *tail(
    cursor: string | null,
    signal: AbortSignal,
    extent: FeedExtent = "live",
  ): AsyncIterable<FeedItem> {
    let place = cursor === null ? feedStart : placeOf(cursor);
    // Who goes on with a snapshot that was begun does not ask for another one, which tells of moves, too.
    let isUnchecked = place.until !== null;
    while (!signal.aborted && this.#closed === null) {
      const committed = this.#commits.next(signal);
      try {
        const begun = place.until;
        const { until, moves, lowest } =
          begun === null
            ? await this.#read(currentSnapshot(place.seen))
            : { until: begun, moves: place.moves, lowest: place.seq + 1 };
        const [rows, current] = await Promise.all([
          lowest === null ? [] : this.#read(readFeed(place.seen, until, lowest, feedChunk)),
          isUnchecked ? this.#read(readMoves()) : moves,
        ]);
        checkPlace(place, current);
        isUnchecked = false;
        for (const { seq, head, values } of rows) {
          if (signal.aborted) return;
          place = { seen: place.seen, until, seq, moves };
          yield { cursor: cursorOf(place), event: eventFrom(head && headOf(head), values) };
        }
        if (rows.length === feedChunk) continue;
        place = { seen: until, until: null, seq: 0, moves };
        // An older snapshot has been read to its end, and more may have been committed since.
        if (begun !== null) continue;
        if (extent === "stored") return;
        await committed.wait;
      } finally {
        committed.cancel();
      }
    }
  }

  async head(): Promise<string> {
    const { until, moves } = await this.#read(currentSnapshot(null));
    return cursorOf({ seen: until, until: null, seq: 0, moves });
  }

  wake(topic: WakeTopic, on: () => void): () => void {
    return this.#wake.listen(topic, on);
  }

  async prune(before: number): Promise<number> {
    this.#checkOpen();
    return this.#writer.prune(before);
  }

  health(): EngineHealth {
    const { open, used, waitedFor } = this.#database.load;
    return {
      connectionsOpen: open,
      connectionsUsed: used,
      connectionsWaitedFor: waitedFor,
      writesQueued: this.#writer.waiting,
    };
  }

  close(): Promise<void> {
    this.#closed ??= this.#end();
    return this.#closed;
  }

  async #end(): Promise<void> {
    await this.#commitWatch.close();
    await this.#writer.close();
    await this.#wake.close();
    this.#commits.ring();
    await this.#database.close();
  }

  async #ask<Kind extends keyof Reads>(
    kind: Kind,
    ask: Reads[Kind]["ask"],
  ): Promise<Reads[Kind]["answer"]> {
    const step = readItem(this.now(), { kind, ask } as Parameters<typeof readItem>[1]);
    return (await this.#read(step, kind === "query")) as Reads[Kind]["answer"];
  }

  /** Reads what is asked for. A question of people's may be about few rows or nearly all. */
  async #read<Value>(step: Step<Value>, isOfPeople = false): Promise<Value> {
    this.#checkOpen();
    try {
      return await (isOfPeople ? this.#database.look(step) : this.#database.run(step));
    } catch (error) {
      throw await this.#database.faultOf(error);
    }
  }

  #checkOpen(): void {
    if (this.#closed !== null) throw this.#closedBefore();
  }

  #closedBefore(): StoreClosed {
    return new StoreClosed({ url: this.url, message: "The store was closed before this call." });
  }
}
