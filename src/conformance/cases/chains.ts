/**
 * Chains in the read model: found by their first job, shown as their current one.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { type Environment, ids } from "../environment.js";

/** Completes a job from outside so that another continues its chain. */
async function goOn(env: Environment, id: string, nextId: string): Promise<void> {
  const job = await env.load(id);
  const follow = [env.creation({ id: nextId, type: "next", chainId: job.chainId ?? id })];
  const continuation = { jobId: nextId, type: "next" };
  const wish = { command: "complete", completedBy: null, continuation } as const;
  assert.deepEqual(await env.append({ ...env.change(job, wish), follow }), { outcome: "appended" });
}

export const chainCases = concern("chains", [
  {
    name: "a chain is listed once, with the state of the job that it has come to",
    async run(env) {
      await env.create({ id: "first", chainId: "first", tags: ["red"] });
      await env.create({ id: "alone" });
      await goOn(env, "first", "second");
      const { entries, count } = await env.engine.query("chains", {});
      assert.equal(count, 1);
      assert.deepEqual(entries, [
        {
          id: "first",
          service: "shop",
          type: "mail",
          tags: ["red"],
          createdAt: env.now,
          currentJobId: "second",
          currentType: "next",
          state: "pending",
          updatedAt: env.now,
        },
      ]);
      const [job] = await env.claim({ type: "next" });
      assert.ok(job);
      const states = async () =>
        (await env.engine.query("chains", {})).entries.map(({ state }) => state);
      assert.deepEqual(await states(), ["active"]);
      await env.complete(job);
      assert.deepEqual(await states(), ["completed"]);
    },
  },
  {
    name: "a job that is run again is the current one while it has not ended",
    async run(env) {
      await env.create({ id: "first", chainId: "first" });
      await goOn(env, "first", "second");
      await env.command("second", { command: "cancel" });
      await env.command("first", { command: "retry", runAt: env.now, force: true });
      const { entries } = await env.engine.query("chains", {});
      assert.deepEqual(
        entries.map(({ currentJobId, state }) => [currentJobId, state]),
        [["first", "pending"]],
      );
    },
  },
  {
    name: "chains are found by the names of the first job and the state of the current one, page by page",
    async run(env) {
      for (const id of ["a", "b", "c"]) {
        await env.create({ id, chainId: id, ...(id === "b" ? { tags: ["red"] } : null) });
        env.clock.advance(10);
      }
      await goOn(env, "a", "a2");
      await env.command("a2", { command: "cancel" });
      const found = async (ask: Parameters<typeof env.engine.query<"chains">>[1]) =>
        ids((await env.engine.query("chains", ask)).entries);
      assert.deepEqual(await found({}), ["c", "b", "a"]);
      assert.deepEqual(await found({ filter: { state: [] } }), []);
      assert.deepEqual(await found({ filter: { state: ["cancelled"] } }), ["a"]);
      assert.deepEqual(await found({ filter: { state: ["pending", "active"] } }), ["c", "b"]);
      assert.deepEqual(await found({ filter: { type: "next" } }), []);
      assert.deepEqual(await found({ filter: { tag: "red", service: "shop" } }), ["b"]);
      assert.deepEqual(await found({ filter: { since: env.now - 10 } }), ["c"]);
      const first = await env.engine.query("chains", { limit: 2 });
      assert.deepEqual([first.count, first.nextOffset], [3, 2]);
      assert.ok(first.nextCursor);
      assert.deepEqual(await found({ limit: 2, cursor: first.nextCursor }), ["a"]);
      assert.deepEqual(await found({ limit: 2, offset: 2 }), ["a"]);
      const cancelled = await env.engine.query("chains", { filter: { state: ["cancelled"] } });
      assert.equal(cancelled.count, 1);
    },
  },
  {
    name: "a chain whose last job was removed is listed no more, and nobody can begin to wait for it",
    async run(env) {
      await env.create({ id: "first", chainId: "first" });
      await goOn(env, "first", "second");
      await goOn(env, "second", "third");
      const blockers = [{ jobId: "first", onBadEnd: "unreachable", chain: true }] as const;
      await env.create({ id: "early", type: "other", blockers });
      const job = await env.claimOne({ type: "next" });
      await env.complete(job);
      await env.command("second", { command: "delete", reason: "by hand" });
      const listed = async (filter = {}) => {
        const { entries, count } = await env.engine.query("chains", { filter });
        assert.equal(count, entries.length);
        return entries.map(({ currentJobId, state }) => [currentJobId, state]);
      };
      assert.deepEqual(await listed(), [["third", "completed"]]);
      await env.command("third", { command: "delete", reason: "by hand" });
      assert.deepEqual(await listed(), []);
      assert.deepEqual(await listed({ state: ["completed"] }), []);
      assert.equal((await env.row("first")).detail, undefined);
      const late = env.creation({ id: "late", type: "other", blockers });
      assert.deepEqual(await env.append(late), {
        outcome: "bad_blocker",
        reason: "missing",
        blockerId: "first",
      });
      const [[row] = []] = await env.engine.query("blockers", { ids: ["early"] });
      assert.deepEqual([row?.jobId, row?.state], [null, "completed"]);
      await env.command("first", { command: "retry", runAt: env.now, force: true });
      assert.deepEqual(await listed(), [["first", "pending"]]);
      assert.deepEqual(await env.append(late), { outcome: "appended" });
    },
  },
  {
    name: "a chain whose first job was removed is listed no more, and its other jobs are still found",
    async run(env) {
      await env.create({ id: "first", chainId: "first" });
      await goOn(env, "first", "second");
      await env.command("first", { command: "delete", reason: "by hand" });
      assert.deepEqual((await env.engine.query("chains", {})).entries, []);
      const { entries } = await env.engine.query("jobs", { filter: { chainId: "first" } });
      assert.deepEqual(ids(entries), ["second"]);
    },
  },
]);
