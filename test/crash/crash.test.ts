// Real processes on one SQLite file: workers are killed and paused past their leases while thousands of
// jobs run. Nothing is lost, no limit is exceeded, and no outcome is recorded twice.
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "better-sqlite3";
import {
  type AnyService,
  connect,
  type Engine,
  type FeedItem,
  isEnded,
  openEngine,
} from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { boundJobs } from "#millrace/contract/definition.js";
import { CallersLedger, groupsOf, HandlerLedger } from "../simulation/ledger.js";
import { Random } from "../simulation/random.js";
import { judge } from "../simulation/verdict.js";
import { startChild } from "./children.js";
import { contract, keys } from "./contract.js";
import { Fleet, type Killed } from "./fleet.js";
import { type CallerLine, type HandlerLine, ledgerFile, readLedger } from "./lines.js";

const workers = 3;
const jobs = 3_000;
const drainMaxMs = 90_000;
const violationsShownMax = 20;
const walBytesMax = 80 * 1024 * 1024;

it("loses nothing and exceeds nothing while workers are killed and paused", {
  timeout: 240_000,
}, async () => {
  const folder = await mkdtemp(join(tmpdir(), "millrace-crash-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const path = join(folder, "jobs.db");
  const url = `file:${path}`;
  const seed = Number(process.env.MILLRACE_CRASH_SEED ?? Date.now() % 100_000);
  console.log(`The crash test runs with MILLRACE_CRASH_SEED=${seed}.`);

  const engine = await openEngine(url);
  const feed = new FeedReader(engine);
  const fleet = new Fleet(workers, url, folder);
  await fleet.ready();
  const creator = startChild("./creator.ts", [url, folder, String(jobs), String(seed)]);
  await creator.said("ready");
  await fleet.trouble(new Random(seed));
  await creator.said("created");
  await fleet.ready();
  await drain(engine, drainMaxMs);
  expect(await fleet.stop(), "workers stop when they are asked to").toEqual(Array(workers).fill(0));
  expect(await creator.ended).toMatchObject({ code: 0, errors: "" });

  const items = await feed.all();
  const events = items.map(({ event }) => event);
  const handlers = handlersLedger(folder, fleet.killed);
  const callers = callersLedger(folder);
  const evidence = { jobs: boundJobs(contract), engine, events, callers, handlers };
  const violations = await judge(evidence);
  expect(violations.slice(0, violationsShownMax), `${violations.length} rules were broken`).toEqual(
    [],
  );
  expect(callers.acknowledged.size).toBeGreaterThan(jobs / 2);
  expect(fleet.killed).toHaveLength(3 * workers);
  expect(fleet.pauses).toBe(4 * workers);
  expect(await feed.rereadFrom(Math.floor(items.length / 2))).toEqual(
    items.slice(Math.floor(items.length / 2) + 1),
  );

  expect((await stat(`${path}-wal`)).size).toBeLessThan(walBytesMax);
  await engine.close();
  const database = new Database(path);
  expect(database.pragma("integrity_check", { simple: true })).toBe("ok");
  database.close();
});

/** Follows the feed while it grows, in a process that writes nothing to it. */
class FeedReader {
  readonly #engine: Engine;
  readonly #items: FeedItem[] = [];
  readonly #stop = new AbortController();
  readonly #reading: Promise<void>;
  #until: string | null = null;

  constructor(engine: Engine) {
    this.#engine = engine;
    this.#reading = this.#read();
  }

  /** Everything that the feed holds, as it was read while it grew. */
  async all(): Promise<readonly FeedItem[]> {
    this.#until = await this.#engine.head();
    if (this.#items.at(-1)?.cursor === this.#until) this.#stop.abort();
    await this.#reading;
    return this.#items;
  }

  /** Reads the feed again, from the item at an index on. */
  async rereadFrom(index: number): Promise<readonly FeedItem[]> {
    const items: FeedItem[] = [];
    const stop = new AbortController();
    for await (const item of this.#engine.tail(this.#items[index]?.cursor ?? null, stop.signal)) {
      items.push(item);
      if (item.cursor === this.#until) stop.abort();
    }
    return items;
  }

  async #read(): Promise<void> {
    for await (const item of this.#engine.tail(null, this.#stop.signal)) {
      this.#items.push(item);
      if (item.cursor === this.#until) this.#stop.abort();
    }
  }
}

/** Waits until every job has ended. Keys that a lost job blocks are released by an operator. */
async function drain(engine: Engine, withinMs: number): Promise<void> {
  const service: AnyService = await connect(contract, { engine, instance: "operator" });
  const endsAt = performance.now() + withinMs;
  for (;;) {
    const counts = await service.reads.counts().orThrow();
    const open = counts.filter(({ state }) => !isEnded(state));
    if (open.length === 0) break;
    if (performance.now() > endsAt) throw new Error(`Jobs have not ended: ${JSON.stringify(open)}`);
    for (const key of keys) await service.keys.release({ type: "blocks", key }).orThrow();
    await new Promise((resolve) => setTimeout(resolve, 100)); // clock: looks at the store until other processes are done
  }
  await service.stop();
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
