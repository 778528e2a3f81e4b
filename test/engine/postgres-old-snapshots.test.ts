// A transaction of the caller's may see the database as it was when it began. What became of a key since then is not hidden from
// it: where it would take a place that is taken, it fails as one that has to be run again. So it does where it would wait for a
// job that it does not see.
import { Environment, MovableClock } from "millrace/conformance";
import type pg from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { callerTransaction } from "#millrace/client/transactions/recognise.js";
import type { Blocker, JobKeyPolicy } from "#millrace/core/job.js";
import type { Engine } from "#millrace/engine/engine.js";
import { openEngine } from "#millrace/engine/open.js";
import type { CallerTransaction } from "#millrace/engine/transaction.js";
import { freshSchema } from "../support/postgres.js";
import { connected, openTransaction } from "../support/postgres-locks.js";

const laterMs = 1_000;

/** A store, and an engine of a caller whose clock stands still. */
async function openStore() {
  const { url, storeUrl } = await freshSchema();
  const open = async (clock: MovableClock): Promise<Engine> => {
    const engine = await openEngine(storeUrl, { clock });
    onTestFinished(() => engine.close());
    return engine;
  };
  const clock = new MovableClock();
  const env = new Environment(await open(clock), clock, () => open(clock));
  return { env, url, caller: await open(new MovableClock()), client: await connected(url) };
}

type Store = Awaited<ReturnType<typeof openStore>>;

/** Creates a job under a key in a transaction that sees what was there when it began, before something else happened. */
async function createLate(
  { env, caller, client }: Store,
  key: JobKeyPolicy,
  meanwhile: () => Promise<unknown>,
) {
  await begin(client);
  await meanwhile();
  return caller.append([env.creation({ id: "late", key })], enlisted(client));
}

const enlisted = (client: pg.Client) => callerTransaction(client) as CallerTransaction;

async function begin(client: pg.Client): Promise<void> {
  await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
  await client.query("SELECT 1");
}

/** What may become of a job so that it takes the only place of its key: how it is created, and what happens then. */
type Way = (store: Store, key: JobKeyPolicy) => Promise<() => Promise<unknown>>;

const ways: Record<string, Way> = {
  "was created":
    async ({ env }, key) =>
    () =>
      env.create({ key }),
  "waited for others": async ({ env }, key) => {
    await env.create({ id: "first" });
    const blockers = [{ jobId: "first", onBadEnd: "unreachable" }] as const;
    await env.create({ id: "blocked", key, blockers });
    return () => env.command("blocked", { command: "unblock" });
  },
  "was tried again by hand": async ({ env }, key) => {
    const { id } = await env.create({ key });
    await env.command(id, { command: "cancel" });
    return () => env.command(id, { command: "retry", runAt: env.now });
  },
  "waited for its time": async ({ env }, key) => {
    const { id } = await env.create({ key, runAt: env.now + laterMs });
    return async () => {
      env.clock.advance(laterMs);
      expect((await env.claimOne()).id).toBe(id);
    };
  },
  "was let in when somebody completed another": async ({ env, url }, key) => {
    await env.create({ id: "first" });
    const blockers = [{ jobId: "first", onBadEnd: "unreachable" }] as const;
    const blocked = await env.create({ id: "blocked", key, blockers });
    const { id } = await env.create({ key, runAt: env.now + laterMs });
    return async () => {
      env.clock.advance(laterMs);
      const tx = await openTransaction(url);
      const wish = { command: "complete", completedBy: null } as const;
      await env.engine.append([env.change(blocked, wish)], enlisted(tx));
      await tx.query("COMMIT");
      expect((await env.claim()).map((job) => job.id)).toContain(id);
    };
  },
  "was next in line": async ({ env }, key) => {
    const [, second] = await env.createMany(2, { key });
    const first = await env.claimOne();
    return async () => {
      await env.complete(first);
      expect((await env.claimOne()).id).toBe(second?.id);
    };
  },
};

it.each(Object.entries(ways))(
  "a place of a key is not taken twice, whose job %s",
  async (_, way) => {
    const store = await openStore();
    const { env, caller, client } = store;
    const key = env.key("k");
    const created = createLate(store, key, await way(store, key));
    await expect(created).rejects.toMatchObject({ _tag: "TransactionConflict" });
    await client.query("ROLLBACK");
    // Run again, it waits for its place.
    await begin(client);
    const again = await caller.append([env.creation({ id: "late", key })], enlisted(client));
    expect(again).toMatchObject([{ outcome: "appended" }]);
    await client.query("COMMIT");
    await env.claim();
    expect((await env.load("late")).state).toBe("pending");
  },
);

it("a place in the line of a key is not taken twice, whose job was tried again by hand", async () => {
  const store = await openStore();
  const { env } = store;
  const key = env.key("k", { maxQueued: 0 });
  const { id } = await env.create({ key });
  await env.command(id, { command: "cancel" });
  const retried = () => env.command(id, { command: "retry", runAt: env.now + laterMs });
  await expect(createLate(store, key, retried)).rejects.toMatchObject({
    _tag: "TransactionConflict",
  });
});

describe("a blocker that was created after a transaction had begun", () => {
  const late = (env: Environment, blocker: Blocker, id = "late") =>
    env.creation({ id, blockers: [blocker] });
  const isMissing = { outcome: "bad_blocker", reason: "missing" } as const;

  it.each([
    ["REPEATABLE READ", "a job"],
    ["SERIALIZABLE", "a job"],
    ["REPEATABLE READ", "a chain"],
  ])("is told as a conflict at %s, as %s, and found when it is run again", async (level, what) => {
    const { env, caller, client } = await openStore();
    const isChain = what === "a chain";
    const blocker: Blocker = {
      jobId: "first",
      ...(isChain ? { chain: true } : null),
      onBadEnd: "unreachable",
    };
    await client.query(`BEGIN ISOLATION LEVEL ${level}`);
    await client.query("SELECT 1");
    await env.create({ id: "first", ...(isChain ? { chainId: "first" } : null) });
    const refused = caller.append(
      [env.creation({ id: "other" }), late(env, blocker)],
      enlisted(client),
    );
    await expect(refused).rejects.toMatchObject({
      _tag: "TransactionConflict",
      message: expect.stringMatching(/does not see "first".* run it again/),
    });
    // A failing call leaves nothing behind.
    const [other] = await caller.load(["other"], { tx: enlisted(client) });
    expect(other).toBeNull();
    await client.query("ROLLBACK");
    await client.query(`BEGIN ISOLATION LEVEL ${level}`);
    const again = await caller.append([late(env, blocker)], enlisted(client));
    expect(again).toMatchObject([{ outcome: "appended" }]);
    await client.query("COMMIT");
    expect((await env.load("late")).state).toBe("blocked");
  });

  it("is missing where nobody has created it, or not as what it is waited for", async () => {
    const { env, caller, client } = await openStore();
    await begin(client);
    await env.create({ id: "first" });
    const answers = await caller.append(
      [
        late(env, { jobId: "nobody", onBadEnd: "unreachable" }, "a"),
        late(env, { jobId: "first", chain: true, onBadEnd: "unreachable" }, "b"),
      ],
      enlisted(client),
    );
    expect(answers).toMatchObject([isMissing, isMissing]);
  });

  it("is told as a conflict to who completes a job and goes on with one that waits for it", async () => {
    const { env, caller, client } = await openStore();
    const done = await env.create({ id: "done" });
    await begin(client);
    await env.create({ id: "first" });
    const follow = [late(env, { jobId: "first", onBadEnd: "unreachable" })];
    const change = env.change(done, { command: "complete", completedBy: null });
    await expect(caller.append([{ ...change, follow }], enlisted(client))).rejects.toMatchObject({
      _tag: "TransactionConflict",
    });
    await client.query("ROLLBACK");
    expect((await env.load("done")).state).toBe("pending");
  });
});
