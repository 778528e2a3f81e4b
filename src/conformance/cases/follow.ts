/**
 * What follows from a change: the continuation of a job is stored with its completion or not at all,
 * and one that its key does not let in is skipped, so that a chain always has an end.
 */
import assert from "node:assert/strict";
import type { Job } from "../../core/job.js";
import { concern } from "../case.js";
import type { Environment, NewJob } from "../environment.js";

const appended = { outcome: "appended" } as const;
const conflict = { outcome: "conflict" } as const;

/** Settles a job so that it continues with another. */
function continued(env: Environment, job: Job, next: NewJob & { readonly id: string }) {
  const create = env.creation({ type: "next", chainId: job.id, ...next });
  const continuation = { jobId: next.id, type: "next" };
  const wish = { command: "complete", continuation, completedBy: "worker-1" } as const;
  return { wish: { ...wish, token: job.token }, follow: [create] };
}

export const followCases = concern("follow", [
  {
    name: "a continuation is there with the completion that it follows from, and is claimable",
    async run(env) {
      await env.create({ id: "first" });
      const job = await env.claimOne();
      const { wish, follow } = continued(env, job, { id: "second" });
      assert.deepEqual(await env.settle(job, wish, follow), appended);
      const [first, second] = [await env.load("first"), await env.load("second")];
      assert.deepEqual([first.state, first.continuedBy], ["completed", "second"]);
      assert.deepEqual([second.state, second.chainId], ["pending", "first"]);
      assert.equal((await env.claimOne({ type: "next" })).id, "second");
    },
  },
  {
    name: "a change that is refused stores nothing of what would follow from it",
    async run(env) {
      await env.create({ id: "first" });
      const job = await env.claimOne();
      await env.command("first", { command: "cancel", force: true });
      const { wish, follow } = continued(env, job, { id: "second" });
      assert.deepEqual(await env.settle(job, wish, follow), conflict);
      assert.equal(await env.find("second"), null);
      assert.deepEqual(await env.append({ ...env.change(job, wish), follow }), conflict);
      assert.equal(await env.find("second"), null);
    },
  },
  {
    name: "a change that is refused leaves nothing at the key of what would follow from it",
    needs: ["immediateViews"],
    async run(env) {
      const key = env.key("branch", { maxQueued: 2 });
      await env.create({ id: "known", type: "next", key });
      const { lastOutcome } = await env.keyRow(key);
      env.clock.advance(5);
      await env.create({ id: "first" });
      const job = await env.claimOne();
      await env.command("first", { command: "delete", reason: "by hand", force: true });
      const { wish, follow } = continued(env, job, { id: "second", key });
      assert.deepEqual(await env.settle(job, wish, follow), conflict);
      assert.equal(await env.find("second"), null);
      assert.deepEqual((await env.keyRow(key)).lastOutcome, lastOutcome);
    },
  },
  {
    name: "a change whose continuation cannot be stored is not stored either",
    async run(env) {
      await env.create({ id: "second", type: "next" });
      await env.create({ id: "first" });
      const job = await env.claimOne();
      const { wish, follow } = continued(env, job, { id: "second" });
      assert.deepEqual(await env.settle(job, wish, follow), { outcome: "exists" });
      assert.equal((await env.load("first")).state, "active");
      assert.deepEqual(await env.historyNames("second"), ["created"]);
    },
  },
  {
    name: "a whole row of steps is stored in order and in one go",
    async run(env) {
      const first = await env.create({ id: "first" });
      const second = env.creation({ id: "second", type: "next", chainId: "first" });
      const third = env.creation({ id: "third", type: "next", chainId: "first" });
      const goOn = (jobId: string) =>
        ({
          command: "complete",
          completedBy: null,
          continuation: { jobId, type: "next" },
        }) as const;
      const follow = [
        second,
        env.change(env.folded(second), goOn("third")),
        third,
        env.change(env.folded(third), { command: "complete", completedBy: null, result: 5 }),
      ];
      assert.deepEqual(
        await env.append({ ...env.change(first, goOn("second")), follow }),
        appended,
      );
      assert.deepEqual(await env.historyNames("second"), ["created", "completed"]);
      const end = await env.load("third");
      assert.deepEqual([end.state, end.result, end.completedBy], ["completed", 5, null]);
      await env.nothingClaimable({ type: "next" });
      assert.deepEqual(await env.append({ ...env.change(first, goOn("second")), follow }), {
        outcome: "exists",
      });
    },
  },
  {
    name: "what happens to a new job at once is stored with its creation",
    async run(env) {
      const refused = () => {
        const create = env.creation({ id: "only" });
        const skip = env.change(env.folded(create), { command: "skip", reason: "rejected late" });
        return { ...create, follow: [skip] };
      };
      assert.deepEqual(await env.append(refused()), appended);
      assert.deepEqual(await env.historyNames("only"), ["created", "skipped"]);
      assert.equal((await env.load("only")).reason, "rejected late");
      await env.nothingClaimable();
      assert.deepEqual(await env.append(refused()), { outcome: "exists" });
      assert.deepEqual(await env.historyNames("only"), ["created", "skipped"]);
    },
  },
  {
    name: "a continuation that a full key refuses is created and skipped",
    async run(env) {
      for (const whenFull of ["reject", "coalesce"] as const) {
        const id = `next-${whenFull}`;
        const key = env.key(whenFull, { type: "next", maxQueued: 0, whenFull });
        const holder = await env.create({ type: "next", key });
        const first = await env.create();
        const job = await env.claimOne();
        const { wish, follow } = continued(env, job, { id, key });
        assert.deepEqual(await env.settle(job, wish, follow), appended);
        assert.equal((await env.load(first.id)).state, "completed");
        assert.deepEqual(await env.historyNames(id), ["created", "skipped"]);
        const outcome = whenFull === "reject" ? "rejected" : "coalesced";
        const skipped = await env.load(id);
        assert.equal(skipped.reason, `${outcome} late`);
        assert.deepEqual(
          [skipped.policy?.outcome, skipped.policy?.existingJobId],
          [outcome, holder.id],
        );
        assert.equal((await env.row(id)).state, "skipped");
        assert.deepEqual((await env.keyRow(key)).queued, []);
      }
    },
  },
  {
    name: "a continuation that ends at once takes no place of its key, however full the key is",
    async run(env) {
      for (const whenFull of ["reject", "coalesce", "replace-oldest"] as const) {
        const maxQueued = whenFull === "replace-oldest" ? 1 : 0;
        const key = env.key(whenFull, { type: "next", maxQueued, whenFull });
        await env.createMany(1 + maxQueued, { type: "next", key });
        const { id } = await env.create();
        const job = await env.claimOne();
        const { wish, follow } = continued(env, job, { id: `next-${whenFull}`, key });
        const [create] = follow;
        assert.ok(create);
        const end = env.change(env.folded(create), { command: "complete", completedBy: null });
        assert.deepEqual(await env.settle(job, wish, [create, end]), appended);
        assert.equal((await env.load(id)).state, "completed");
        assert.deepEqual(await env.historyNames(`next-${whenFull}`), ["created", "completed"]);
        // Those who have places keep them, and leave them to nobody but the next.
        for (let place = 0; place <= maxQueued; place++) {
          const [held, ...others] = await env.claim({ type: "next" });
          assert.ok(held && others.length === 0);
          await env.complete(held);
        }
        await env.create({ id: `after-${whenFull}`, type: "next", key });
        assert.equal((await env.claimOne({ type: "next" })).id, `after-${whenFull}`);
        await env.complete(await env.load(`after-${whenFull}`));
      }
    },
  },
  {
    name: "the key of a continuation that ends at once is known, also when nobody has used it before",
    async run(env) {
      const key = env.key("unused", { type: "next", maxQueued: 3 });
      await env.create();
      const job = await env.claimOne();
      const { wish, follow } = continued(env, job, { id: "next", key });
      const [create] = follow;
      assert.ok(create);
      const end = env.change(env.folded(create), { command: "complete", completedBy: null });
      assert.deepEqual(await env.settle(job, wish, [create, end]), appended);
      const row = await env.keyRow(key);
      assert.deepEqual([row.active, row.queued, row.maxQueued], [[], [], 3]);
      assert.equal(row.lastOutcome?.outcome, "accepted");
    },
  },
  {
    name: "a continuation replaces a waiting job where the key's policy says so",
    async run(env) {
      const key = env.key("k", { type: "next", maxQueued: 1, whenFull: "replace-oldest" });
      await env.create({ type: "next", key });
      const waiting = await env.create({ type: "next", key });
      await env.claimOne({ type: "next" });
      await env.create({ id: "first" });
      const job = await env.claimOne();
      const { wish, follow } = continued(env, job, { id: "second", key });
      assert.deepEqual(await env.settle(job, wish, follow), appended);
      assert.equal((await env.load(waiting.id)).state, "skipped");
      assert.equal((await env.load("second")).state, "pending");
    },
  },
  {
    name: "a continuation has the place under a key that the job before it leaves, however full the key is",
    async run(env) {
      const key = env.key("k", { type: "next", maxQueued: 0 });
      await env.create({ id: "first", type: "next", key });
      const job = await env.claimOne({ type: "next" });
      const { wish, follow } = continued(env, job, { id: "second", key });
      assert.deepEqual(await env.settle(job, wish, follow), appended);
      const refused = await env.append(env.creation({ type: "next", key }));
      assert.equal(refused.outcome, "not_admitted");
      const second = await env.claimOne({ type: "next" });
      assert.equal(second.id, "second");
      await env.complete(second);
      assert.deepEqual((await env.keyRow(key)).active, []);
    },
  },
  {
    name: "a continuation comes after those who wait for the slot that is freed with it",
    async run(env) {
      const key = env.key("k", { type: "next" });
      await env.create({ id: "first", type: "next", key });
      const job = await env.claimOne({ type: "next" });
      await env.create({ id: "waiting", type: "next", key });
      const { wish, follow } = continued(env, job, { id: "second", key, priority: 5 });
      assert.deepEqual(await env.settle(job, wish, follow), appended);
      assert.equal((await env.claimOne({ type: "next" })).id, "waiting");
    },
  },
  {
    name: "a continuation that waits for its time is claimable when that has come",
    async run(env) {
      await env.create({ id: "first" });
      const job = await env.claimOne();
      const { wish, follow } = continued(env, job, { id: "second", runAt: env.now + 100 });
      assert.deepEqual(await env.settle(job, wish, follow), appended);
      await env.nothingClaimable({ type: "next" });
      env.clock.advance(100);
      assert.equal((await env.claimOne({ type: "next" })).id, "second");
    },
  },
]);
