// Creates under keys that come together are decided as if they had come one by one: batches of them on PostgreSQL are
// answered, stored and claimed as on SQLite, which takes one after the other, whatever they share, replace or repeat.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { Environment, MovableClock } from "millrace/conformance";
import { expect, it } from "vitest";
import type { JobEvent } from "#millrace/core/event.js";
import { jobHash } from "#millrace/core/evolve.js";
import type { Job, JobKeyPolicy } from "#millrace/core/job.js";
import type { Change, Engine } from "#millrace/engine/engine.js";
import { openEngine } from "#millrace/engine/open.js";
import { newSchema } from "../support/postgres.js";

interface Item {
  readonly key: string;
  readonly maxActive: number;
  readonly maxQueued: number;
  readonly whenFull: JobKeyPolicy["whenFull"];
  readonly priority: number;
  readonly delayMs: number;
  /** An id that others may have, too; otherwise one is made for the job. */
  readonly id: string | null;
  readonly tags: readonly string[];
  readonly isChained: boolean;
}

type Play =
  | { readonly kind: "create"; readonly items: readonly Item[] }
  | { readonly kind: "claim"; readonly limit: number }
  | { readonly kind: "end" | "cancel" | "delete"; readonly choice: number }
  | { readonly kind: "advance"; readonly ms: number };

const leaseMs = 100;
const keyNames = ["k1", "k2", "k3"];

/** How many of each key may be active, unless limits are mixed. */
const maxActives: Readonly<Record<string, number>> = { k1: 1, k2: 2, k3: 3 };

const items: fc.Arbitrary<Item> = fc.record({
  key: fc.constantFrom(...keyNames),
  maxActive: fc.constantFrom(1, 2, 2, 3, 5),
  maxQueued: fc.constantFrom(0, 1, 3, 3, 20),
  whenFull: fc.oneof(
    { weight: 9, arbitrary: fc.constantFrom("reject" as const, "coalesce" as const) },
    { weight: 1, arbitrary: fc.constant("replace-oldest" as const) },
  ),
  priority: fc.integer({ min: -1, max: 1 }),
  delayMs: fc.constantFrom(0, 0, 0, 0, 50),
  id: fc.option(fc.constantFrom("same-1", "same-2"), { freq: 5 }),
  tags: fc.subarray(["red", "blue"]),
  isChained: fc.boolean(),
});

const fixedItems = items.map((item) => ({ ...item, maxActive: maxActives[item.key] ?? 1 }));

const createsOf = (item: fc.Arbitrary<Item>) =>
  fc.record({
    kind: fc.constant("create" as const),
    items: fc.array(item, { minLength: 1, maxLength: 12, size: "max" }),
  });
const claims = fc.record({
  kind: fc.constant("claim" as const),
  limit: fc.integer({ min: 1, max: 4 }),
});
const advances = fc.record({
  kind: fc.constant("advance" as const),
  ms: fc.constantFrom(1, 60, 120),
});
const choices = (kind: "end" | "cancel" | "delete") =>
  fc.record({ kind: fc.constant(kind), choice: fc.nat() });

const plays: fc.Arbitrary<Play> = fc.oneof(
  { weight: 5, arbitrary: createsOf(fixedItems) },
  { weight: 3, arbitrary: claims },
  { weight: 3, arbitrary: choices("end") },
  { weight: 2, arbitrary: choices("cancel") },
  { weight: 1, arbitrary: choices("delete") },
  { weight: 3, arbitrary: advances },
);

/** Limits of a key that change from job to job. Claims let several in at once and pass over whom they do not fit. */
const mixedPlays: fc.Arbitrary<Play> = fc.oneof(
  { weight: 5, arbitrary: createsOf(items) },
  { weight: 2, arbitrary: choices("cancel") },
  { weight: 2, arbitrary: advances },
);

/** Creates, claims and ends on one engine. What it answers can be compared. */
class Game {
  readonly #env: Environment;
  readonly #created = new Set<string>();
  readonly #held: Job[] = [];
  #count = 0;

  constructor(engine: Engine, clock: MovableClock) {
    const alone = () => Promise.reject(new Error("A game opens its store once."));
    this.#env = new Environment(engine, clock, alone);
  }

  async play(play: Exclude<Play, { kind: "advance" }>): Promise<unknown> {
    switch (play.kind) {
      case "create":
        return this.#create(play.items);
      case "claim": {
        const claimed = await this.#env.claimed({ leaseMs }, { limit: play.limit });
        this.#held.push(...claimed.map(({ job }) => job));
        return claimed;
      }
      case "end":
        return this.#end(play.choice);
      case "cancel":
        return this.#outside(play.choice, { command: "cancel", force: true, reason: "enough" });
      case "delete":
        return this.#outside(play.choice, { command: "delete", force: true, reason: "test" });
    }
  }

  /** Every fold, log and row of the store. A key's row tells who has a slot and who waits for one, in order. */
  async everything(): Promise<unknown> {
    const { engine } = this.#env;
    const ids = [...this.#created];
    const loaded = await engine.load(ids, { history: true });
    const jobs = loaded.map((entry) => entry && [jobHash(entry.job), entry.events?.map(told)]);
    const rows = [];
    for (const id of ids) rows.push(await engine.query("job", { id }));
    const keys = [];
    for (const name of keyNames) {
      const row = await engine.query("key", { hash: this.#env.key(name).hash });
      const holders = row?.active.map((holder) => JSON.stringify(holder)).sort();
      keys.push(row && { ...row, active: holders });
    }
    const page = await engine.query("jobs", { limit: 100 });
    const tagged = await engine.query("jobs", { limit: 100, filter: { tag: "red" } });
    const feed = [];
    for await (const { event } of engine.tail(null, new AbortController().signal, "stored"))
      if (event.name !== "started") feed.push(event);
    return { jobs, rows, keys, page: page.entries, tagged: tagged.entries, feed };
  }

  async #create(wishes: readonly Item[]): Promise<unknown> {
    const changes = wishes.map((wish): Change => {
      const { key, maxActive, maxQueued, whenFull, priority, delayMs, tags, isChained } = wish;
      const id = wish.id ?? `job-${String(this.#count++).padStart(4, "0")}`;
      const change = this.#env.creation({
        id,
        key: this.#env.key(key, { maxActive, maxQueued, whenFull }),
        priority,
        runAt: this.#env.now + delayMs,
        tags,
        ...(isChained && { chainId: id }),
      });
      return wish.id === null ? { ...change, isFresh: true } : change;
    });
    const outcomes = await this.#env.engine.append(changes);
    for (const [place, { outcome }] of outcomes.entries())
      if (outcome === "appended") this.#created.add(changes[place]?.job.id ?? "");
    return outcomes;
  }

  async #end(which: number): Promise<unknown> {
    const [job] = this.#held.splice(which % Math.max(this.#held.length, 1), 1);
    if (!job) return null;
    const wish = { command: "complete", token: job.token, completedBy: "worker-1" } as const;
    return this.#env.settle(job, wish);
  }

  async #outside(
    which: number,
    wish: Parameters<Environment["change"]>[1] & { readonly command: "cancel" | "delete" },
  ): Promise<unknown> {
    const ids = [...this.#created];
    const job = await this.#env.find(ids[which % Math.max(ids.length, 1)] ?? "");
    if (job === null || (wish.command === "cancel" && job.endedAt !== undefined)) return null;
    return this.#env.append(this.#env.change(job, wish));
  }
}

/** What an event tells; the store that starts a job makes up the id of that event. */
function told(event: JobEvent): unknown {
  return event.name === "started" ? { ...event, id: null } : event;
}

/** A job of each key. A create that is locked with others and then finds its id taken leaves the row of a new key empty. */
const allKeys: Play = {
  kind: "create",
  items: keyNames.map((key) => ({
    ...{
      key,
      maxActive: maxActives[key] ?? 1,
      maxQueued: 3,
      whenFull: "reject",
      priority: 0,
      delayMs: 0,
    },
    ...{ id: null, tags: [], isChained: false },
  })),
};

async function playOnBoth(sequence: readonly Play[]): Promise<void> {
  const clock = new MovableClock();
  const folder = await mkdtemp(join(tmpdir(), "millrace-keyed-"));
  const { url, remove } = await newSchema();
  const engines = [
    await openEngine(`file:${join(folder, "jobs.db")}`, { clock }),
    await openEngine(url, { clock }),
  ];
  try {
    const [sqlite, postgres] = engines.map((engine) => new Game(engine, clock));
    for (const [index, play] of [allKeys, ...sequence].entries()) {
      if (play.kind === "advance") {
        clock.advance(play.ms);
        continue;
      }
      const expected = await sqlite?.play(play);
      expect(await postgres?.play(play), `play ${index}, ${play.kind}`).toEqual(expected);
    }
    expect(await postgres?.everything()).toEqual(await sqlite?.everything());
  } finally {
    await Promise.all(engines.map((engine) => engine.close()));
    await remove();
    await rm(folder, { recursive: true, force: true });
  }
}

const runs = Number(process.env.MILLRACE_MODEL_RUNS ?? 20);
const settings = { interruptAfterTimeLimit: 50_000, markInterruptAsFailure: false } as const;

it.each([
  ["whatever happens between them", plays],
  ["whatever limits they bring along", mixedPlays],
])("batches of keyed creates are decided in order, %s", { timeout: 120_000 }, async (_, play) => {
  const sequences = fc.array(play, { minLength: 5, maxLength: 40, size: "max" });
  await fc.assert(fc.asyncProperty(sequences, playOnBoth), { numRuns: runs, ...settings });
});
