// Creates under keys that come together are a handful of statements on PostgreSQL. Limits hold and nothing is lost or told
// wrongly, however many processes create and end jobs of the same keys, and whoever is in the way.
import { Environment, MovableClock } from "millrace/conformance";
import pg from "pg";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { callerTransaction } from "#millrace/client/transactions/recognise.js";
import type { JobKeyPolicy } from "#millrace/core/job.js";
import type { AppendOutcome, Change, Engine } from "#millrace/engine/engine.js";
import { openEngine } from "#millrace/engine/open.js";
import type { CallerTransaction } from "#millrace/engine/transaction.js";
import { execute, freshSchema } from "../support/postgres.js";

async function openStore() {
  const { url, schema, storeUrl } = await freshSchema();
  const clock = new MovableClock();
  const open = async () => {
    const engine = await openEngine(storeUrl, { clock });
    onTestFinished(() => engine.close());
    return engine;
  };
  const env = new Environment(await open(), clock, open);
  const ask = (sql: string) => execute(url, sql.replaceAll("$", `${schema}.`));
  return { env, clock, url, schema, ask };
}

/** A connection with a transaction that has begun. */
async function begun(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query("BEGIN");
  return client;
}

const outcomesOf = (outcomes: readonly AppendOutcome[]) => outcomes.map(({ outcome }) => outcome);

/** Creates of jobs with ids in their order. */
function creations(env: Environment, count: number, key: JobKeyPolicy, prefix = "job"): Change[] {
  return Array.from({ length: count }, (_, place) =>
    env.creation({ id: `${prefix}-${String(place).padStart(4, "0")}`, key }),
  );
}

describe("a batch of keyed creates", () => {
  it("takes as many statements for 300 jobs of 100 keys as for one", async () => {
    const { env } = await openStore();
    await env.create({ key: env.key("other") });
    const changes = Array.from({ length: 300 }, (_, place): Change => {
      const change = env.creation({ key: env.key(`key-${place % 100}`) });
      return { ...change, isFresh: true };
    });
    const query = vi.spyOn(pg.Client.prototype, "query");
    onTestFinished(() => query.mockRestore());
    const outcomes = await env.engine.append(changes);
    // It begins, makes the keys, locks them, looks at them, stores and commits; others may tell of it.
    expect(query.mock.calls.length).toBeLessThan(12);
    expect(new Set(outcomesOf(outcomes))).toEqual(new Set(["appended"]));
    expect((await env.claim({ free: 1_000 }, { limit: 1_000 })).length).toBe(101);
  });

  it("fills a key up to its limit in order, beside others, and refuses the rest", async () => {
    const { env } = await openStore();
    const narrow = env.key("narrow", { maxActive: 2, maxQueued: 3 });
    const wide = env.key("wide", { maxActive: 3 });
    const changes = creations(env, 8, narrow, "n").flatMap((change, place) => [
      change,
      ...creations(env, 1, wide, `w${place}`),
    ]);
    const outcomes = await env.engine.append(changes);
    const ofNarrow = outcomes.filter((_, place) => place % 2 === 0);
    expect(outcomesOf(ofNarrow)).toEqual([
      ...Array(5).fill("appended"),
      ...Array(3).fill("not_admitted"),
    ]);
    expect(ofNarrow[5]).toMatchObject({
      admission: { reason: "queue_full", existingJobId: "n-0000", active: 2, queued: 3, limit: 5 },
    });
    const claimed = await env.claim();
    expect(claimed.map(({ id }) => id)).toEqual([
      ...["n-0000", "n-0001"],
      ...["w0-0000", "w1-0000", "w2-0000"],
    ]);
    const { lastOutcome } = await env.keyRow(narrow);
    expect(lastOutcome).toMatchObject({ outcome: "rejected", existingJobId: "n-0000" });
  });

  it("stores all but the one that cannot be stored", async () => {
    const { env } = await openStore();
    const [a, b, c] = creations(env, 3, env.key("k")) as [Change, Change, Change];
    const far = { ...b, event: { ...b.event, priority: 2 ** 40 } } as Change;
    const outcomes = await env.engine.append([a, far, c]);
    expect(outcomesOf(outcomes)).toEqual(["appended", "faulted", "appended"]);
    expect((await env.keyRow(env.key("k"))).queuedCount).toBe(1);
  });

  it("tells that an id is taken, also one that should have been fresh, and leaves its key alone", async () => {
    const { env } = await openStore();
    await env.create({ id: "job-0001", key: env.key("k") });
    const changes = creations(env, 3, env.key("k")).map((change): Change => {
      return { ...change, isFresh: true };
    });
    expect(outcomesOf(await env.engine.append(changes))).toEqual([
      "appended",
      "exists",
      "appended",
    ]);
    const [again] = creations(env, 1, env.key("new"));
    expect(await env.append(again as Change)).toEqual({ outcome: "exists" });
    expect(await env.engine.query("key", { hash: env.key("new").hash })).toBeNull();
  });

  it("lets all in to whom slots came free before, however many", async () => {
    const { env, clock } = await openStore();
    const key = env.key("k", { maxActive: 150, maxQueued: 150 });
    const later = Array.from({ length: 140 }, () => env.creation({ key, runAt: env.now + 10 }));
    await env.engine.append(later);
    clock.advance(10);
    await env.engine.append([env.creation({ key }), env.creation({ key })]);
    const { active, queuedCount } = await env.keyRow(key);
    expect([active.length, queuedCount]).toEqual([142, 0]);
  });
});

describe("a keyed create", () => {
  /** A key whose only slot has lapsed, with a job in line that nobody has let in yet. */
  async function lapsed() {
    const store = await openStore();
    const { env, clock } = store;
    const key = env.key("k");
    const first = await env.create({ key });
    const second = await env.create({ key });
    await env.claimOne({ leaseMs: 100 });
    await env.command(first.id, { command: "cancel", force: true, reason: "enough" });
    clock.advance(100);
    return { ...store, key, second };
  }

  it("lets the job in that stands before it", async () => {
    const { env, key, second } = await lapsed();
    await env.create({ key });
    const { active, queuedCount } = await env.keyRow(key);
    expect(active.map(({ jobId }) => jobId)).toContain(second.id);
    expect(queuedCount).toBe(1);
  });

  it("does not stand in the way of somebody who ends that job", async () => {
    const { env, key, second, url, schema } = await lapsed();
    const client = await begun(url);
    await client.query(`DELETE FROM ${schema}.waiting WHERE id = '${second.id}'`);
    const third = env.creation({ key });
    const query = vi.spyOn(pg.Client.prototype, "query");
    onTestFinished(() => query.mockRestore());
    const created = env.append(third);
    await vi.waitFor(() => expect(JSON.stringify(query.mock.calls)).toContain("SKIP LOCKED"));
    // Who ends a job holds its row, and then waits for its key.
    await client.query(`SELECT 1 FROM ${schema}.keys WHERE hash = '${key.hash}' FOR UPDATE`);
    await client.query("COMMIT");
    expect(await created).toMatchObject({ outcome: "appended" });
    expect((await env.keyRow(key)).active.map(({ jobId }) => jobId)).toContain(third.job.id);
  });
});

describe("who needs a key that others change", () => {
  /** A key with a job, which somebody's open transaction has changed, and whoever asks for it later. */
  async function contended() {
    const { env, url, schema, ask } = await openStore();
    const key = env.key("k", { maxQueued: 9 });
    const { id } = await env.create({ key });
    const change = `UPDATE ${schema}.keys SET outcome_at = outcome_at WHERE hash = '${key.hash}'`;
    const waiting = `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%${schema}%'`;
    const waitsFor = (count: number) =>
      vi.waitFor(async () => expect(await ask(waiting)).toHaveLength(count), 5_000);
    const [first, later] = await Promise.all([begun(url), begun(url)]);
    await first.query(change);
    /** The other one asks after whoever waits already, and keeps the key when it has it. */
    const freed = async () => {
      await waitsFor(1);
      const changed = later.query(change);
      await waitsFor(2);
      await first.query("COMMIT");
      return changed;
    };
    return { env, url, id, key, freed };
  }

  it("gets it before those who ask for it later, as a command", async () => {
    const { env, id, freed } = await contended();
    const told = env.command(id, { command: "cancel", force: false, reason: "enough" });
    const [job] = await Promise.all([told, freed()]);
    expect(job?.state).toBe("cancelled");
  });

  it("gets it before those who ask for it later, in a transaction of its own", async () => {
    const { env, url, key, freed } = await contended();
    const own = await begun(url);
    const tx = callerTransaction(own) as CallerTransaction;
    const created = env.engine
      .append([env.creation({ key })], tx)
      .finally(() => own.query("COMMIT"));
    const [outcomes] = await Promise.all([created, freed()]);
    expect(outcomesOf(outcomes)).toEqual(["appended"]);
  });
});

describe("the row of a key that is removed because nobody used it for long", () => {
  it.each(["by themselves", "in transactions of their own"])(
    "is made anew by creates %s that were about to lock it, one of which is let in",
    async (way) => {
      const { env, url, schema, ask } = await openStore();
      const key = env.key("k", { maxQueued: 0 });
      const old = await env.create({ key });
      await env.command(old.id, { command: "delete", force: true, reason: "test" });
      const client = await begun(url);
      await client.query(`DELETE FROM ${schema}.keys WHERE hash = '${key.hash}'`);
      const others = await Promise.all([env.open(), env.open()]);
      const created = Promise.all(
        others.map(async (engine) => {
          if (way === "by themselves") return engine.append([env.creation({ key })]);
          const own = await begun(url);
          const tx = callerTransaction(own) as CallerTransaction;
          return engine.append([env.creation({ key })], tx).finally(() => own.query("COMMIT"));
        }),
      );
      const waiting = `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%${schema}%'`;
      await vi.waitFor(async () => expect(await ask(waiting)).toHaveLength(2), 5_000);
      await client.query("COMMIT");
      expect(outcomesOf((await created).flat()).sort()).toEqual(["appended", "not_admitted"]);
    },
  );
});

describe("processes that create and end jobs of the same keys", () => {
  const keysMax = 5;
  const limits = { maxActive: 2, maxQueued: 6 };

  /** Creates batches under keys in an order of its own; gives the ids that were let in. */
  async function create(env: Environment, name: string, rounds: number): Promise<string[]> {
    const created: string[] = [];
    for (let round = 0; round < rounds; round++) {
      const changes = Array.from({ length: 12 }, (_, place) => {
        const key = env.key(`key-${(round * 7 + place * 3) % keysMax}`, limits);
        return env.creation({ id: `${name}-${round}-${place}`, key });
      });
      const half = changes.length / 2;
      const parts = [changes.slice(0, half), changes.slice(half)];
      const answers = await Promise.all(parts.map((part) => env.engine.append(part)));
      for (const [place, { outcome }] of answers.flat().entries()) {
        expect(["appended", "not_admitted"]).toContain(outcome);
        if (outcome === "appended") created.push(changes[place]?.job.id ?? "");
      }
    }
    return created;
  }

  /** Claims and completes until it is told to stop and nothing is left; counts who is active under each key. */
  async function work(env: Environment, active: Map<string, number>, isOver: () => boolean) {
    const done: string[] = [];
    for (;;) {
      const wasOver = isOver();
      const jobs = await env.claim({}, { limit: 4 });
      for (const { key } of jobs) {
        const count = (active.get(key?.key ?? "") ?? 0) + 1;
        expect(count).toBeLessThanOrEqual(limits.maxActive);
        active.set(key?.key ?? "", count);
      }
      for (const job of jobs) {
        active.set(job.key?.key ?? "", (active.get(job.key?.key ?? "") ?? 0) - 1);
        await env.complete(job);
        done.push(job.id);
      }
      if (jobs.length > 0) continue;
      if (wasOver && (await unfinished(env.engine)) === 0) return done;
    }
  }

  async function unfinished(engine: Engine): Promise<number> {
    const counts = await engine.query("counts", {});
    return counts.reduce((sum, { state, count }) => sum + (state === "pending" ? count : 0), 0);
  }

  it("keep every limit, lose nothing and run everything once", { timeout: 60_000 }, async () => {
    const { env, ask } = await openStore();
    const others = [env.at(await env.open()), env.at(await env.open())];
    const active = new Map<string, number>();
    let isOver = false;
    let most = 0;
    const creating = Promise.all([
      create(env, "a", 25),
      create(others[0] as Environment, "b", 25),
      create(others[1] as Environment, "c", 25),
    ]).finally(() => {
      isOver = true;
    });
    const watching = (async () => {
      while (!isOver) {
        const [row] = (await ask(`SELECT max(count)::int AS most FROM (
          SELECT hash, (SELECT count(*) FROM $slots WHERE scope = 'k:' || hash) +
            (SELECT count(*) FROM $waiting WHERE key = hash) AS count FROM $keys) AS k`)) as [
          { readonly most: number | null },
        ];
        most = Math.max(most, row.most ?? 0);
      }
    })();
    const working = [env, ...others].map((each) => work(each, active, () => isOver));
    const created = (await creating).flat();
    const done = (await Promise.all(working)).flat();
    await watching;
    expect(done.sort()).toEqual(created.sort());
    expect(most).toBeGreaterThan(limits.maxActive);
    expect(most).toBeLessThanOrEqual(limits.maxActive + limits.maxQueued);
    expect(await ask("SELECT 1 FROM $slots UNION ALL SELECT 1 FROM $waiting")).toEqual([]);
  });
});
