/**
 * The embedded engine: one SQLite file, any number of processes, every acknowledged call fsynced.
 */
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { startedEvent } from "../../core/decide.js";
import type { JobEvent } from "../../core/event.js";
import { fold } from "../../core/evolve.js";
import { type Actor, isEnded } from "../../core/job.js";
import type { Capabilities } from "../capabilities.js";
import { distinctLanes } from "../claim-lanes.js";
import { type Clock, systemClock } from "../clock.js";
import type {
  AppendOutcome,
  Change,
  ClaimAnswer,
  ClaimAsk,
  ClaimedJob,
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
import { StoreClosed, StoreUnavailable } from "../errors.js";
import { feedPosition } from "../feed-position.js";
import type { Queries, QueryName } from "../query.js";
import type { RecordWrite, StoredRecord, SwapOutcome } from "../record.js";
import { flatChange, isNote, noteChange } from "../sql/change.js";
import { Commits } from "../sql/commits.js";
import {
  isPlainCreate,
  isPlainEnd,
  type PlainCreate,
  plainCreate,
  plainEnd,
} from "../sql/plain.js";
import { loadedJob } from "../sql/read.js";
import {
  createdValues,
  type EventValues,
  eventFrom,
  eventLength,
  headOf,
  type JobHead,
} from "../sql/rows.js";
import type { CallerTransaction, SyncTransaction } from "../transaction.js";
import { Channel } from "./channel.js";
import {
  type ClaimedValues,
  type FreshValues,
  neverTried,
  type TriedValues,
  triedHeadLength,
} from "./claim.js";
import { Enlisted } from "./enlist.js";
import type { Woke } from "./protocol.js";
import type { Read, Reads } from "./reads.js";
import { ringBells, WakeListeners } from "./wake.js";
import type { Write, Writes } from "./writes.js";

const capabilities: Capabilities = {
  transactions: true,
  synchronousTransactions: true,
  strictPriority: true,
  immediateViews: true,
  durable: true,
  shared: true,
};

/** How many events the feed reads at a time. */
const feedChunk = 500;

/** What the engine's threads run. */
const thread = new URL("./thread.js", import.meta.url);

/** Opens the engine on a file, making it if there is none. */
export async function openSqlite(
  url: string,
  options: { readonly clock?: Clock } = {},
): Promise<Engine> {
  const engine = new SqliteEngine(url, filePath(url), options.clock ?? systemClock);
  await engine.provision();
  return engine;
}

/** The path that a `file:` URL names: `file:jobs.db` is relative, `file:///var/lib/jobs.db` is absolute. */
export function filePath(url: string): string {
  const [, setting] = /\?(\w+)=/.exec(url) ?? [];
  if (setting !== undefined) {
    const message = `"${setting}" in the URL is not known; a file: URL takes no settings. Write a "?" of the file's name as "%3F".`;
    throw new StoreUnavailable({ url, message });
  }
  return url.startsWith("file://")
    ? fileURLToPath(url)
    : resolve(decodeURIComponent(url.slice("file:".length)));
}

class SqliteEngine implements Engine {
  readonly url: string;
  readonly capabilities = capabilities;
  readonly #path: string;
  readonly #clock: Clock;
  readonly #writer: Channel<Write>;
  readonly #wake: WakeListeners;
  readonly #enlisted: Enlisted;
  readonly #commits: Commits;
  #reader: Channel<Read> | null = null;
  #closed: Promise<void> | null = null;

  constructor(url: string, path: string, clock: Clock) {
    this.url = url;
    this.#path = path;
    this.#clock = clock;
    this.#wake = new WakeListeners(path);
    this.#commits = new Commits(clock);
    this.#writer = new Channel<Write>({
      url,
      thread,
      path,
      role: "writer",
      now: () => this.#given(),
      onWoke: (woke) => this.#onWoke(woke),
    });
    this.#enlisted = new Enlisted({
      url,
      path,
      clock,
      onEnded: (woke) => {
        ringBells(path, woke);
        this.#onWoke(woke);
      },
    });
  }

  async provision(): Promise<void> {
    try {
      await this.#writer.opened();
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  now(): number {
    return this.#clock.now();
  }

  /** The time that threads are to use: the machine's own, which they can tell, or that of another clock. */
  #given(): number | null {
    return this.#clock === systemClock ? null : this.#clock.now();
  }

  async load(
    ids: readonly string[],
    options: { readonly history?: boolean; readonly tx?: CallerTransaction } = {},
  ): Promise<readonly (LoadedJob | null)[]> {
    const { history = false, tx } = options;
    const logs =
      tx === undefined
        ? await this.#read("load", ids)
        : this.#enlisted.readToChange(tx, "load", ids);
    return logs.map((log) => log && loadedJob(log, history));
  }

  append(changes: readonly Change[], tx?: CallerTransaction): Promise<readonly AppendOutcome[]> {
    return this.#send(appendWrite(changes), tx);
  }

  async note(notes: readonly JobEvent[]): Promise<readonly boolean[]> {
    const known = notes.filter(isNote);
    const stored = await this.#write(
      "note",
      known.map((event) => flatChange(noteChange(event))),
    );
    let next = 0;
    return notes.map((event) => isNote(event) && stored[next++] === true);
  }

  async claim(asked: ClaimAsk): Promise<ClaimAnswer> {
    const ask = { ...asked, lanes: distinctLanes(asked.lanes) };
    const [answer] = await this.#write("claim", [ask]);
    if (!answer) return { jobs: [], nextDueAt: null };
    const { at, jobs, nextDueAt } = answer;
    return { jobs: jobs.map((job) => claimedJob(job, ask, at)), nextDueAt };
  }

  renew(held: readonly HeldLease[]): Promise<readonly RenewOutcome[]> {
    return this.#write("renew", held);
  }

  settle(changes: readonly Change[], tx?: CallerTransaction): Promise<readonly AppendOutcome[]> {
    return this.#send(settleWrite(changes), tx);
  }

  /** Nobody else can write once the transaction does, and before that there is nothing to lock: what is stored then compares. */
  async hold({ job, token }: JobHold, tx: CallerTransaction): Promise<boolean> {
    const [log] = this.#enlisted.read(tx, "load", [job.id]);
    const found = log && loadedJob(log, false)?.job;
    if (!found) return false;
    if (token === undefined) return !isEnded(found.state);
    return found.state === "active" && found.token === token;
  }

  within(tx: SyncTransaction): SyncStore {
    const enlisted = this.#enlisted;
    this.#refuseClosed();
    return {
      load: (ids) =>
        enlisted.readToChange(tx, "load", ids).map((log) => log && loadedJob(log, false)),
      append: (changes) => enlisted.write(tx, appendWrite(changes)),
      settle: (changes) => enlisted.write(tx, settleWrite(changes)),
      query: (name, ask) => enlisted.readToChange(tx, "query", { name, ask }) as never,
    };
  }

  records(ids: readonly string[]): Promise<readonly (StoredRecord | null)[]> {
    return this.#read("records", ids);
  }

  swap(writes: readonly RecordWrite[]): Promise<readonly SwapOutcome[]> {
    return this.#write("swap", writes);
  }

  due(ask: DueAsk, limit: number): Promise<readonly DueJob[]> {
    return this.#read("due", { due: ask, limit });
  }

  async query<Name extends QueryName>(
    name: Name,
    ask: Queries[Name]["ask"],
  ): Promise<Queries[Name]["answer"]> {
    return (await this.#read("query", { name, ask })) as Queries[Name]["answer"];
  }

  async *tail(
    cursor: string | null,
    signal: AbortSignal,
    extent: FeedExtent = "live",
  ): AsyncIterable<FeedItem> {
    let after = feedPosition(cursor);
    while (!signal.aborted && this.#closed === null) {
      const committed = this.#commits.next(signal);
      try {
        const rows = await this.#read("feed", { after, limit: feedChunk });
        for (const row of rows) {
          if (signal.aborted) return;
          after = row.seq;
          const head = row.head && headOf(row.head);
          yield { cursor: String(row.seq), event: eventFrom(head, row.values) };
        }
        if (rows.length === feedChunk) continue;
        if (extent === "stored") return;
        await committed.wait;
      } finally {
        committed.cancel();
      }
    }
  }

  async head(): Promise<string> {
    return String(await this.#read("head", null));
  }

  wake(topic: WakeTopic, on: () => void): () => void {
    return this.#wake.listen(topic, on);
  }

  async prune(before: number): Promise<number> {
    const [count] = await this.#write("prune", [before]);
    return count ?? 0;
  }

  health(): EngineHealth {
    return { writesQueued: this.#writer.waiting, readsQueued: this.#reader?.waiting ?? 0 };
  }

  close(): Promise<void> {
    this.#closed ??= this.#end();
    return this.#closed;
  }

  async #end(): Promise<void> {
    this.#enlisted.close();
    await this.#reader?.close();
    await this.#writer.close();
    this.#wake.close();
    this.#commits.ring();
  }

  async #write<Kind extends keyof Writes>(
    kind: Kind,
    items: Writes[Kind]["items"],
  ): Promise<Writes[Kind]["answer"]> {
    if (items.length === 0) return [];
    return (await this.#writer.call({ kind, items } as Write)) as Writes[Kind]["answer"];
  }

  #send(write: AppendWrite, tx?: CallerTransaction): Promise<readonly AppendOutcome[]> {
    if (write.items.length === 0) return Promise.resolve([]);
    if (tx !== undefined) return this.#enlist(write, tx);
    return this.#writer.call(write) as Promise<readonly AppendOutcome[]>;
  }

  async #enlist(write: AppendWrite, tx: CallerTransaction): Promise<readonly AppendOutcome[]> {
    this.#refuseClosed();
    return this.#enlisted.write(tx, write);
  }

  async #read<Kind extends keyof Reads>(
    kind: Kind,
    ask: Reads[Kind]["ask"],
  ): Promise<Reads[Kind]["answer"]> {
    await this.#writer.opened();
    this.#refuseClosed();
    if (this.#reader?.isDead) this.#reader = null;
    this.#reader ??= new Channel<Read>({
      url: this.url,
      thread,
      path: this.#path,
      role: "reader",
      now: () => this.#given(),
    });
    return (await this.#reader.call({ kind, ask } as Read)) as Reads[Kind]["answer"];
  }

  #refuseClosed(): void {
    if (this.#closed === null) return;
    throw new StoreClosed({ url: this.url, message: "The store was closed before this call." });
  }

  #onWoke(woke: Woke): void {
    if (woke.ready) this.#wake.hint("ready");
    if (woke.ended) this.#wake.hint("ended");
    if (woke.cancel) this.#wake.hint("cancel");
    this.#commits.ring();
  }
}

type AppendWrite = Extract<Write, { kind: "create" | "append" | "end" | "settle" }>;

/** Appends as one operation; plain creates take the short way. */
function appendWrite(changes: readonly Change[]): AppendWrite {
  if (changes.every(isPlainCreate)) return { kind: "create", items: plainCreates(changes) };
  return { kind: "append", items: changes.map(flatChange) };
}

/** Pushed, not mapped, because they are sent to a thread (see `Batcher`). */
function plainCreates(changes: readonly Change[]): readonly PlainCreate[] {
  const items: PlainCreate[] = [];
  for (const change of changes) items.push(plainCreate(change));
  return items;
}

/** Settlements as one operation; plain ends take the short way. */
function settleWrite(changes: readonly Change[]): AppendWrite {
  if (changes.every(isPlainEnd)) return { kind: "end", items: changes.map(plainEnd) };
  return { kind: "settle", items: changes.map(flatChange) };
}

/** A claimed job, folded from the values that came with it. */
function claimedJob(claimed: ClaimedValues, ask: ClaimAsk, at: number): ClaimedJob {
  const [isFresh, place, id, context] = claimed;
  const { service, type, leaseMs } = ask.lanes[place] as ClaimLane;
  const head = headOf([id, service, type, context]);
  const job = fold(isFresh === 1 ? freshLog(head, claimed, ask.worker, at) : log(head, claimed));
  if (!job) throw new Error(`The log of job ${id} does not begin with its creation.`);
  return { job, leaseUntil: at + leaseMs };
}

/** The log of a job that was never tried: it was created, and has started now. */
function freshLog(head: JobHead, values: FreshValues, worker: string, at: number): JobEvent[] {
  const [, , , , createdAt, createdId, createdBy, body, eventId] = values;
  const { state, version, run, tries, token } = neverTried;
  const { jobId: id, service, type, context } = head;
  const created = createdValues(state, createdAt, createdId, createdBy, body);
  const job = { id, service, type, state, version, run, tries, token, context };
  const origin = { eventId, actor: `worker:${worker}` as Actor };
  return [eventFrom(head, created), startedEvent(job, origin, worker, at)];
}

function log(head: JobHead, values: TriedValues): JobEvent[] {
  const events: JobEvent[] = [];
  for (let start = triedHeadLength; start < values.length; start += eventLength)
    events.push(
      eventFrom(head, values.slice(start, start + eventLength) as unknown as EventValues),
    );
  return events;
}
