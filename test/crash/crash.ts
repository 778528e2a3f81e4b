// A run of the crash tests: processes create and carry out thousands of jobs while something goes wrong,
// and afterwards the log and the ledgers outside the system are judged.
import {
  type AnyService,
  connect,
  type Engine,
  type FeedItem,
  isEnded,
  isStoreError,
  openEngine,
} from "millrace";
import { expect } from "vitest";
import { boundJobs } from "#millrace/contract/definition.js";
import { CallersLedger, groupsOf, HandlerLedger } from "../simulation/ledger.js";
import { Random } from "../simulation/random.js";
import { judge } from "../simulation/verdict.js";
import { startChild } from "./children.js";
import { contract, keys, noWork } from "./contract.js";
import { Fleet, type Killed } from "./fleet.js";
import { type CallerLine, type HandlerLine, ledgerFile, readLedger } from "./lines.js";
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
  /** How many jobs each creator makes. */
  readonly jobs: number;
  /** Whether the store itself is in trouble, so that callers may be told that it is not there. */
  readonly isStoreInTrouble: boolean;
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
  const feed = new FeedReader(engine, lastId);
  const fleet = new Fleet(plan.workers, url, folder);
  await fleet.ready();
  const creators = Array.from({ length: plan.creators }, (_, index) => {
    const store = plan.isStoreInTrouble ? ["in trouble"] : [];
    const parameters = [url, folder, String(plan.jobs), String(seed + index), ...store];
    return startChild("./creator.ts", parameters);
  });
  await Promise.all(creators.map(({ said }) => said("ready")));
  await plan.trouble(fleet, new Random(seed));
  await Promise.all(creators.map(({ said }) => said("created")));
  await fleet.ready();
  await drain(operator);
  const last = await operator.jobs.quick.create(noWork, { id: lastId }).orThrow();
  await last.wait().orThrow();
  await operator.stop();
  const codes = await fleet.stop();
  expect(codes, "workers stop when they are asked to").toEqual(Array(plan.workers).fill(0));
  for (const { ended } of creators) expect(await ended).toMatchObject({ code: 0, errors: "" });

  const items = await feed.all();
  const callers = callersLedger(folder);
  const violations = await judge({
    jobs: boundJobs(contract),
    engine,
    events: items.map(({ event }) => event),
    callers,
    handlers: handlersLedger(folder, fleet.killed),
  });
  const shown = violations.slice(0, violationsShownMax);
  expect(shown, `${violations.length} rules were broken`).toEqual([]);
  const middle = Math.floor(items.length / 2);
  expect(idsByJob(await feed.rereadFrom(middle))).toEqual(idsByJob(items.slice(middle + 1)));
  return { engine, fleet, acknowledged: callers.acknowledged.size };
}

/** The job that is created when all others have ended. */
const lastId = "the-last-one";

/** The order of events is promised per job. */
function idsByJob(items: readonly FeedItem[]): ReadonlyMap<string, readonly string[]> {
  const byJob = new Map<string, string[]>();
  for (const { event } of items) {
    byJob.set(event.jobId, [...(byJob.get(event.jobId) ?? []), event.id]);
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

function callersLedger(folder: string): CallersLedger {
  const ledger = new CallersLedger();
  for (const line of readLedger<CallerLine>(ledgerFile.callers(folder))) {
    if (line.line === "acknowledged") ledger.acknowledged.add(line.id);
    else if (line.line === "refused") ledger.refused.add(line.id);
    else ledger.told.push({ id: line.id, state: line.state });
  }
  return ledger;
}
