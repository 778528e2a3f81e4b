// A run of the crash tests: processes create and carry out thousands of jobs while something goes wrong,
// and afterwards the log and the ledgers outside the system are judged.
import {
  type AnyService,
  connect,
  type Engine,
  type FeedItem,
  isEnded,
  isStoreError,
  type JobEvent,
  openEngine,
} from "millrace";
import { Pool } from "pg";
import { expect, onTestFinished } from "vitest";
import { boundJobs } from "#millrace/contract/definition.js";
import { CallersLedger, groupsOf, HandlerLedger } from "../simulation/ledger.js";
import { Random } from "../simulation/random.js";
import { judge } from "../simulation/verdict.js";
import { type BooksReport, booksOf, compareBooks, makeBooks } from "./books.js";
import { startChild } from "./children.js";
import { contract, keys, noWork } from "./contract.js";
import { Fleet, type Killed } from "./fleet.js";
import {
  type CallerLine,
  type FaultLine,
  type HandlerLine,
  ledgerFile,
  readLedger,
} from "./lines.js";
import { pass } from "./time.js";

const drainMaxMs = 90_000;
const drainPauseMs = 100;
const readPauseMs = 100;
const violationsShownMax = 20;

/** What a run consists of. */
export interface CrashPlan {
  readonly url: string;
  /** Where the ledgers are. */
  readonly folder: string;
  readonly workers: number;
  readonly creators: number;
  /** How many jobs each creator makes at least; it goes on as long as the trouble does. */
  readonly jobs: number;
  /** The faults of the store that the trouble excuses, so that callers may be told of them. */
  readonly excused: readonly ("StoreUnavailable" | "StoreBusy" | "ConnectionLost")[];
  /** Goes wrong while jobs are created and run. */
  trouble(fleet: Fleet, random: Random): Promise<unknown>;
}

/** What a run leaves behind, for what else a test wants to know. The test closes the engine. */
export interface CrashReport {
  readonly engine: Engine;
  readonly fleet: Fleet;
  /** How many creates were acknowledged. */
  readonly acknowledged: number;
}

/** Carries out a plan, and fails unless every rule was kept. */
export async function runCrash(plan: CrashPlan): Promise<CrashReport> {
  const { url, folder } = plan;
  const seed = Number(process.env.MILLRACE_CRASH_SEED ?? Date.now() % 100_000);
  console.log(`The crash test runs with MILLRACE_CRASH_SEED=${seed}.`);
  const engine = await openEngine(url);
  const operator = await connect(contract, { engine, instance: "operator" });
  const books = await openBooks(url);
  const feed = new FeedReader(engine, lastId);
  const fleet = new Fleet(plan.workers, url, folder);
  await fleet.ready();
  const creators = Array.from({ length: plan.creators }, (_, index) => {
    return startChild("./creator.ts", [url, folder, String(plan.jobs), String(seed + index)]);
  });
  await Promise.all(creators.map(({ said }) => said("ready")));
  await plan.trouble(fleet, new Random(seed));
  for (const { tell } of creators) tell("enough");
  await Promise.all(creators.map(({ said }) => said("created")));
  await fleet.ready();
  await drain(operator);
  const last = await operator.jobs.quick.create(noWork, { id: lastId }).orThrow();
  await last.wait().orThrow();
  await operator.stop();
  const calm = { code: 0, errors: "" };
  const endings = await fleet.stop();
  expect(endings, "workers stop when they are asked to").toEqual(Array(plan.workers).fill(calm));
  for (const { ended } of creators) expect(await ended).toMatchObject(calm);

  const items = await feed.all();
  const callers = callersLedger(folder, plan);
  const events = items.map(({ event }) => event);
  const report = await books?.(events);
  const judged = await judge({
    jobs: boundJobs(contract),
    engine,
    events,
    callers,
    handlers: handlersLedger(folder, fleet.killed),
  });
  const violations = [...judged, ...(report?.problems ?? [])];
  const shown = violations.slice(0, violationsShownMax);
  expect(shown, `${violations.length} rules were broken`).toEqual([]);
  expect(unproven(items, callers, report), "what has not happened in this run").toEqual([]);
  const middle = Math.floor(items.length / 2);
  const [live, again] = [items.slice(middle + 1), await feed.rereadFrom(middle)];
  expect(otherOrders(live, again), "jobs whose events were read in two orders").toEqual([]);
  if (report !== undefined) tellOfBooks(report, folder);
  return { engine, fleet, acknowledged: callers.acknowledged.size };
}

/** Says what was done in transactions, and how many of the callers' met others and were run again. */
function tellOfBooks({ counts: { created, completed, done } }: BooksReport, folder: string): void {
  const lines = readLedger<CallerLine>(ledgerFile.callers(folder));
  const again = lines.filter(({ line }) => line === "again").length;
  console.log(
    `In transactions ${created} jobs were created, ${completed} completed and ${done} carried out; ${again} were run again.`,
  );
}

/** Makes the books of the callers' own, where there are some; gives the way to compare them with the log. */
async function openBooks(
  url: string,
): Promise<((events: readonly JobEvent[]) => Promise<BooksReport>) | null> {
  const table = booksOf(url);
  if (table === null) return null;
  const pool = new Pool({ connectionString: url, max: 1 });
  pool.on("error", () => {});
  onTestFinished(() => pool.end());
  await makeBooks(pool, table);
  return (events) => compareBooks(pool, table, events);
}

/** The job that is created when all others have ended. */
const lastId = "the-last-one";

/** What a run must have met, or it has proven nothing about it. */
function unproven(
  items: readonly FeedItem[],
  callers: CallersLedger,
  report: BooksReport | undefined,
): readonly string[] {
  const events = items.map(({ event }) => event);
  const met = new Set(events.map(({ type, name }) => `${type} ${name}`));
  const last = events.filter(({ name, type }) => name === "created" && type !== "linked");
  const { created = 1, completed = 1, done = 1 } = report?.counts ?? {};
  const isMet = {
    "a job went on after its blockers": met.has("waits unblocked"),
    "a job's blocker ended badly": met.has("waits unreachable"),
    "a chain came to its last step": last.some(
      (event) => "chainId" in event && event.chainId !== event.jobId,
    ),
    "a create was repeated": callers.repetitions > 0,
    "a job was created in a transaction of its caller's": created > 0,
    "a chain was completed in a transaction of its caller's": completed > 0,
    "a job was carried out in a transaction of its handler's": done > 0,
  };
  return Object.entries(isMet).flatMap(([what, isSo]) => (isSo ? [] : [what]));
}

/** The order of events is promised per job: those of which two readings tell otherwise. */
function otherOrders(live: readonly FeedItem[], again: readonly FeedItem[]): readonly object[] {
  const [first, second] = [eventsByJob(live), eventsByJob(again)];
  return [...new Set([...first.keys(), ...second.keys()])].flatMap((jobId) => {
    const [told, toldAgain] = [first.get(jobId) ?? [], second.get(jobId) ?? []];
    return told.join() === toldAgain.join() ? [] : [{ jobId, told, toldAgain }];
  });
}

function eventsByJob(items: readonly FeedItem[]): ReadonlyMap<string, readonly string[]> {
  const byJob = new Map<string, string[]>();
  for (const { event } of items) {
    const told = byJob.get(event.jobId) ?? [];
    told.push(`${event.name} ${event.id}`);
    byJob.set(event.jobId, told);
  }
  return byJob;
}

/** Follows the feed while it grows, in a process that writes little to it. */
class FeedReader {
  readonly #engine: Engine;
  readonly #items: FeedItem[] = [];
  readonly #last: string;
  readonly #reading: Promise<void>;

  /** `last` is the id of the job whose end is the last thing that happens. */
  constructor(engine: Engine, last: string) {
    this.#engine = engine;
    this.#last = last;
    this.#reading = this.#read(this.#items, null);
  }

  /** Everything that the feed holds, as it was read while it grew. */
  async all(): Promise<readonly FeedItem[]> {
    await this.#reading;
    return this.#items;
  }

  /** Reads the feed again, from the item at an index on. */
  async rereadFrom(index: number): Promise<readonly FeedItem[]> {
    const items: FeedItem[] = [];
    await this.#read(items, this.#items[index]?.cursor ?? null);
    return items;
  }

  /** A reader that loses its store goes on where it was. */
  async #read(items: FeedItem[], from: string | null): Promise<void> {
    const stop = new AbortController();
    while (!stop.signal.aborted) {
      try {
        const cursor = items.at(-1)?.cursor ?? from;
        for await (const item of this.#engine.tail(cursor, stop.signal)) {
          items.push(item);
          if (item.event.jobId === this.#last && isEnded(item.event.state)) stop.abort();
        }
      } catch (error) {
        if (!isStoreError(error)) throw error;
        await pass(readPauseMs);
      }
    }
  }
}

/** Waits until every job has ended. Keys that a lost job blocks are released by an operator. */
async function drain(service: AnyService): Promise<void> {
  const endsAt = performance.now() + drainMaxMs;
  for (;;) {
    const counts = await service.reads.counts().orThrow();
    const open = counts.filter(({ state }) => !isEnded(state));
    if (open.length === 0) return;
    if (performance.now() > endsAt) throw new Error(`Jobs have not ended: ${JSON.stringify(open)}`);
    for (const key of keys) await service.keys.release({ type: "blocks", key }).orThrow();
    await pass(drainPauseMs);
  }
}

/** What the handlers wrote down, in the order in which it happened. */
function handlersLedger(folder: string, killed: readonly Killed[]): HandlerLedger {
  const ledger = new HandlerLedger();
  const boundByType = new Map(boundJobs(contract).map((bound) => [bound.type, bound]));
  const lines = readLedger<HandlerLine>(ledgerFile.handlers(folder));
  const kills = killed.map((kill) => ({ line: "killed", ...kill }) as const);
  for (const one of [...lines, ...kills].sort((a, b) => a.tick - b.tick)) {
    switch (one.line) {
      case "granted":
        ledger.granted(one.jobId, one.token, one.until);
        break;
      case "entered": {
        ledger.observe(one.at);
        const { jobId, token, process, type, key } = one;
        const bound = boundByType.get(type);
        ledger.entered({ jobId, token, process, groups: bound ? groupsOf(bound, key) : [] });
        break;
      }
      case "completing":
        ledger.completing(one.jobId, one.token);
        break;
      case "left":
        ledger.left(one.jobId, one.token, one.said);
        break;
      case "killed":
        ledger.processGone(one.process);
        break;
    }
  }
  return ledger;
}

function callersLedger(folder: string, plan: CrashPlan): CallersLedger {
  const ledger = new CallersLedger();
  for (const line of readLedger<CallerLine>(ledgerFile.callers(folder))) {
    switch (line.line) {
      case "acknowledged":
        ledger.acknowledged.add(line.id);
        if (line.idempotencyKey !== undefined) ledger.repeated(line.idempotencyKey, line.id);
        break;
      case "refused":
        ledger.refused.add(line.id);
        break;
      case "told":
        ledger.told.push({ id: line.id, state: line.state });
        break;
      case "fault":
        if (!isExpected(line, plan))
          ledger.violations.push(`A ${line.call} met a ${line.tag}: ${line.message}`);
        break;
    }
  }
  return ledger;
}

/**
 * Whether the trouble that a run makes excuses a fault. A server that is killed is not there for a while, and a process
 * that is paused amid a transaction holds its locks for longer than others wait. Transactions that get in each
 * other's way are the store's own business in any trouble.
 */
function isExpected({ tag, message }: FaultLine, { excused }: CrashPlan): boolean {
  return excused.some((kind) => kind === tag) && !message.includes("in each other's way");
}
