/**
 * Blockers: what a job waits for is stored with it, must exist, and is found again when it has ended.
 */
import assert from "node:assert/strict";
import type { Blocker } from "../../core/job.js";
import { concern } from "../case.js";
import { type Environment, ids } from "../environment.js";

const appended = { outcome: "appended" } as const;

function after(...jobIds: readonly string[]): readonly Blocker[] {
  return jobIds.map((jobId) => ({ jobId, onBadEnd: "unreachable" }));
}

/** The blocked jobs that may go on, or can never. */
async function resolvable(env: Environment): Promise<readonly string[]> {
  return ids(await env.engine.due({ kind: "blocked", service: "shop" }, 100));
}

async function states(env: Environment, id: string): Promise<readonly (string | null)[]> {
  const [rows = []] = await env.engine.query("blockers", { ids: [id] });
  return rows.map(({ state }) => state);
}

export const blockerCases = concern("blockers", [
  {
    name: "a job with blockers is blocked, is not claimable, and goes on where it stands in line",
    async run(env) {
      await env.create({ id: "a", type: "other" });
      const blocked = await env.create({ id: "b", blockers: after("a"), priority: 5 });
      await env.create({ id: "c" });
      assert.equal(blocked.state, "blocked");
      assert.deepEqual(await resolvable(env), []);
      assert.deepEqual(ids(await env.claim({ free: 1 })), ["c"]);
      await env.complete(await env.claimOne({ type: "other" }));
      assert.deepEqual(await resolvable(env), ["b"]);
      await env.command("b", { command: "unblock", actor: "keeper:keeper-1" });
      assert.deepEqual(await resolvable(env), []);
      assert.equal((await env.claimOne()).id, "b");
    },
  },
  {
    name: "a blocker that does not exist is refused, unless it is created before in the same call",
    async run(env) {
      const missing = { outcome: "bad_blocker", reason: "missing", blockerId: "nobody" } as const;
      await env.create({ id: "a" });
      const creation = env.creation({ id: "b", blockers: after("a", "nobody") });
      assert.deepEqual(await env.append(creation), missing);
      assert.equal(await env.find("b"), null);
      const chain: readonly Blocker[] = [{ jobId: "a", onBadEnd: "continue", chain: true }];
      assert.deepEqual(await env.append(env.creation({ id: "b", blockers: chain })), {
        ...missing,
        blockerId: "a",
      });
      assert.deepEqual(
        await env.engine.append([
          env.creation({ id: "nobody" }),
          env.creation({ id: "b", blockers: after("a", "nobody") }),
          env.creation({ id: "c", blockers: after("d") }),
          env.creation({ id: "d" }),
        ]),
        [appended, appended, { ...missing, blockerId: "d" }, appended],
      );
    },
  },
  {
    name: "a job is found once all its blockers have ended, in any way that does not end it",
    async run(env) {
      await env.create({ id: "a" });
      await env.create({ id: "b" });
      await env.create({
        id: "c",
        blockers: [...after("a"), { jobId: "b", onBadEnd: "continue" }],
      });
      await env.command("a", { command: "complete", completedBy: null });
      assert.deepEqual(await resolvable(env), []);
      await env.command("b", { command: "cancel" });
      assert.deepEqual(await resolvable(env), ["c"]);
      assert.deepEqual(await states(env, "c"), ["completed", "cancelled"]);
    },
  },
  {
    name: "a job is found as soon as one blocker has ended badly that must not",
    async run(env) {
      await env.create({ id: "a" });
      await env.create({ id: "b" });
      await env.create({ id: "c", blockers: after("a", "b") });
      await env.command("b", { command: "cancel" });
      assert.deepEqual(await resolvable(env), ["c"]);
      await env.command("c", { command: "blockerEndedBadly", blockerId: "b" });
      assert.equal((await env.load("c")).state, "unreachable");
      assert.deepEqual(await resolvable(env), []);
      await env.command("c", { command: "retry", runAt: env.now });
      assert.equal((await env.load("c")).state, "blocked");
      await env.command("b", { command: "retry", runAt: env.now });
      assert.deepEqual(await resolvable(env), []);
    },
  },
  {
    name: "a job that is retried before it has ever started waits for its blockers again",
    async run(env) {
      const key = env.key("k", { maxQueued: 3 });
      await env.create({ id: "a", type: "other" });
      const deadline = env.now + 10;
      await env.create({ id: "cancelled", blockers: after("a") });
      await env.create({ id: "expired", blockers: after("a"), deadline });
      await env.create({ id: "completed", blockers: after("a") });
      await env.create({ id: "keyed", blockers: after("a"), key });
      env.clock.advance(10);
      await env.command("cancelled", { command: "cancel" });
      await env.command("expired", { command: "expire" });
      await env.command("completed", { command: "complete", completedBy: null });
      await env.command("keyed", { command: "cancel" });
      const all = ["cancelled", "expired", "completed", "keyed"];
      for (const id of all) {
        const retried = await env.command(id, { command: "retry", runAt: env.now, force: true });
        assert.deepEqual([retried?.state, retried?.run], ["blocked", 2]);
        assert.deepEqual(await env.load(id), retried);
        assert.equal((await env.row(id)).state, "blocked");
      }
      await env.nothingClaimable();
      assert.deepEqual(await resolvable(env), []);
      await env.complete(await env.claimOne({ type: "other" }));
      assert.deepEqual([...(await resolvable(env))].sort(), [...all].sort());
      for (const id of all) await env.command(id, { command: "unblock" });
      assert.deepEqual([...ids(await env.claim())].sort(), [...all].sort());
    },
  },
  {
    name: "a job that has started does not wait again when it is retried",
    async run(env) {
      await env.create({ id: "a", type: "other" });
      await env.create({ id: "b", blockers: after("a") });
      await env.command("a", { command: "complete", completedBy: null });
      await env.command("b", { command: "unblock" });
      await env.complete(await env.claimOne());
      await env.command("a", { command: "retry", runAt: env.now, force: true });
      const retried = await env.command("b", { command: "retry", runAt: env.now, force: true });
      assert.equal(retried?.state, "pending");
      assert.equal((await env.claimOne()).id, "b");
    },
  },
  {
    name: "a blocker that has ended before the job was created does not keep it waiting",
    async run(env) {
      await env.create({ id: "a" });
      await env.command("a", { command: "complete", completedBy: null });
      await env.create({ id: "b", blockers: after("a") });
      assert.deepEqual(await resolvable(env), ["b"]);
    },
  },
  {
    name: "a chain is waited for until its last job has ended",
    async run(env) {
      const first = await env.create({ id: "first", chainId: "first" });
      await env.create({
        id: "b",
        blockers: [{ jobId: "first", onBadEnd: "unreachable", chain: true }],
      });
      const continuation = { jobId: "second", type: "mail" };
      const wish = { command: "complete", completedBy: null, continuation } as const;
      const follow = [env.creation({ id: "second", chainId: "first" })];
      assert.deepEqual(await env.append({ ...env.change(first, wish), follow }), appended);
      assert.deepEqual(await resolvable(env), []);
      assert.deepEqual(await states(env, "b"), ["pending"]);
      const job = await env.claimOne();
      assert.deepEqual(await states(env, "b"), ["active"]);
      await env.complete(job);
      assert.deepEqual(await resolvable(env), ["b"]);
      const [[row] = []] = await env.engine.query("blockers", { ids: ["b"] });
      assert.deepEqual(row, {
        id: "first",
        isChain: true,
        onBadEnd: "unreachable",
        jobId: "second",
        state: "completed",
      });
    },
  },
  {
    name: "a continuation may wait for others, but not for a chain that waits for its own",
    async run(env) {
      const first = await env.create({ id: "x", chainId: "x" });
      await env.create({ id: "y", chainId: "y" });
      const other: Blocker = { jobId: "x", onBadEnd: "unreachable", chain: true };
      await env.create({ id: "z", chainId: "z", blockers: [other] });
      const goOn = (blockers: readonly Blocker[]) => {
        const continuation = { jobId: "x2", type: "mail" };
        const wish = { command: "complete", completedBy: null, continuation } as const;
        const follow = [env.creation({ id: "x2", chainId: "x", blockers })];
        return env.append({ ...env.change(first, wish), follow });
      };
      const chain = (jobId: string): Blocker => ({ ...other, jobId });
      const cycle = { outcome: "bad_blocker", reason: "cycle", blockerId: "z" } as const;
      assert.deepEqual(await goOn([chain("y"), chain("z")]), cycle);
      assert.deepEqual(await goOn([chain("x")]), { ...cycle, blockerId: "x" });
      assert.deepEqual(await goOn(after("nobody")), {
        outcome: "bad_blocker",
        reason: "missing",
        blockerId: "nobody",
      });
      assert.equal((await env.load("x")).state, "pending");
      assert.deepEqual(await goOn([chain("y")]), appended);
      assert.equal((await env.load("x2")).state, "blocked");
    },
  },
  {
    name: "a circle is found also behind more than a thousand others",
    async run(env) {
      const first = await env.create({ id: "x", chainId: "x" });
      const many = Array.from({ length: 1_000 }, (_, index) => `m${index}`);
      await env.engine.append(many.map((id) => env.creation({ id, type: "other" })));
      const chain = (jobId: string): Blocker => ({ jobId, onBadEnd: "unreachable", chain: true });
      await env.create({ id: "z", chainId: "z", blockers: [chain("x")] });
      await env.create({ id: "wide", blockers: after(...many) });
      await env.create({ id: "deep", blockers: [chain("z")] });
      const continuation = { jobId: "x2", type: "mail" };
      const wish = { command: "complete", completedBy: null, continuation } as const;
      const follow = [env.creation({ id: "x2", chainId: "x", blockers: after("wide", "deep") })];
      assert.deepEqual(await env.append({ ...env.change(first, wish), follow }), {
        outcome: "bad_blocker",
        reason: "cycle",
        blockerId: "deep",
      });
    },
  },
  {
    name: "a blocker that is removed is remembered as it ended, and an unfinished one as cancelled",
    async run(env) {
      await env.createMany(2);
      const [done, open] = ids(await env.claim());
      assert.ok(done && open);
      await env.complete(await env.load(done));
      await env.create({ id: "b", blockers: after(done, open) });
      await env.command(done, { command: "delete", reason: "by hand" });
      assert.deepEqual(await states(env, "b"), ["completed", "active"]);
      assert.deepEqual(await resolvable(env), []);
      await env.command(open, { command: "delete", reason: "by hand", force: true });
      assert.deepEqual(await states(env, "b"), ["completed", "cancelled"]);
      assert.deepEqual(await resolvable(env), ["b"]);
      const [rows = []] = await env.engine.query("blockers", { ids: ["b"] });
      assert.deepEqual(
        rows.map(({ jobId }) => jobId),
        [null, null],
      );
    },
  },
  {
    name: "a chain that is removed job by job is remembered as it ended",
    async run(env) {
      const first = await env.create({ id: "first", chainId: "first" });
      await env.create({
        id: "b",
        blockers: [{ jobId: "first", onBadEnd: "unreachable", chain: true }],
      });
      const continuation = { jobId: "second", type: "mail" };
      const wish = { command: "complete", completedBy: null, continuation } as const;
      const follow = [env.creation({ id: "second", chainId: "first" })];
      assert.deepEqual(await env.append({ ...env.change(first, wish), follow }), appended);
      await env.command("second", { command: "cancel" });
      await env.command("second", { command: "delete", reason: "by hand" });
      await env.command("first", { command: "delete", reason: "by hand" });
      assert.deepEqual(await states(env, "b"), ["cancelled"]);
    },
  },
  {
    name: "a chain is told by its last job also while the jobs before it are removed",
    async run(env) {
      const first = await env.create({ id: "first", chainId: "first" });
      const blockers = [{ jobId: "first", onBadEnd: "unreachable", chain: true }] as const;
      await env.create({ id: "b", blockers });
      const continuation = { jobId: "second", type: "mail" };
      const wish = { command: "complete", completedBy: null, continuation } as const;
      const follow = [env.creation({ id: "second", chainId: "first" })];
      assert.deepEqual(await env.append({ ...env.change(first, wish), follow }), appended);
      await env.command("second", { command: "cancel" });
      await env.command("first", { command: "delete", reason: "by hand" });
      const [[row] = []] = await env.engine.query("blockers", { ids: ["b"] });
      assert.deepEqual([row?.jobId, row?.state], ["second", "cancelled"]);
      await env.command("second", { command: "delete", reason: "by hand" });
      assert.deepEqual(await states(env, "b"), ["cancelled"]);
    },
  },
  {
    name: "retention leaves what unfinished jobs wait for, and lets it go when they have ended",
    async run(env) {
      await env.create({ id: "a" });
      await env.create({ id: "chained", chainId: "root" });
      for (const id of ["a", "chained"])
        await env.command(id, { command: "complete", completedBy: null });
      const chain: Blocker = { jobId: "root", onBadEnd: "unreachable", chain: true };
      await env.create({ id: "b", blockers: [...after("a"), chain] });
      env.clock.advance(10);
      const letGo = async () =>
        ids(
          await env.engine.due(
            {
              kind: "retention",
              service: "shop",
              type: "mail",
              state: "completed",
              endedBefore: env.now,
            },
            10,
          ),
        );
      assert.deepEqual(await letGo(), []);
      assert.deepEqual(await env.engine.query("dependents", { ids: ["root", "x"] }), ["b"]);
      await env.command("b", { command: "cancel" });
      assert.deepEqual(await env.engine.query("dependents", { ids: ["a"] }), []);
      assert.deepEqual(await letGo(), ["a", "chained"]);
    },
  },
  {
    name: "a blocked job of a key keeps its place in it",
    async run(env) {
      const key = env.key("k", { maxQueued: 1 });
      await env.create({ id: "a", type: "other" });
      await env.create({ id: "b", key, blockers: after("a") });
      await env.create({ id: "c", key });
      assert.equal((await env.append(env.creation({ id: "d", key }))).outcome, "not_admitted");
      await env.complete(await env.claimOne({ type: "other" }));
      const running = await env.claimOne();
      assert.equal(running.id, "c");
      await env.command("b", { command: "unblock" });
      await env.nothingClaimable();
      await env.complete(running);
      assert.equal((await env.claimOne()).id, "b");
    },
  },
  {
    name: "many wait for one, and one for many",
    async run(env) {
      await env.create({ id: "root" });
      const middle = Array.from({ length: 200 }, (_, index) => `m${index}`);
      await env.engine.append([
        ...middle.map((id) => env.creation({ id, type: "other", blockers: after("root") })),
        env.creation({ id: "end", blockers: after(...middle) }),
      ]);
      await env.complete(await env.claimOne());
      assert.equal((await resolvable(env)).length, 100);
      assert.equal((await states(env, "end")).length, 200);
      await Promise.all(middle.map((id) => env.command(id, { command: "unblock" })));
      const claimed = await env.claim({ type: "other", free: 199 }, { limit: 199 });
      await Promise.all(claimed.map((job) => env.complete(job)));
      assert.deepEqual(await resolvable(env), []);
      await env.complete(await env.claimOne({ type: "other" }));
      assert.deepEqual(await resolvable(env), ["end"]);
    },
  },
]);
