/**
 * Settling: the outcome of an attempt, recorded once and only under its own token and version.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { tally } from "../environment.js";

const error = { message: "no luck", name: "Error", reason: "error" } as const;
const appended = { outcome: "appended" } as const;
const conflict = { outcome: "conflict" } as const;

export const settleCases = concern("settle", [
  {
    name: "a completed job has its result and its end",
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      env.clock.advance(3);
      const result = { list: [1, "two", null] };
      const wish = { command: "complete", token: 1, result, completedBy: "worker-1" } as const;
      assert.deepEqual(await env.settle(job, wish), appended);
      const done = await env.load(id);
      assert.deepEqual(
        [done.state, done.result, done.endedAt, done.completedBy, done.worker],
        ["completed", result, env.now, "worker-1", undefined],
      );
      await env.nothingClaimable();
    },
  },
  {
    name: "a failed try waits for its time and is then claimable as the next try",
    async run(env) {
      const { id } = await env.create({ maxTries: 3 });
      await env.fail(await env.claimOne(), env.now + 100);
      const waiting = await env.load(id);
      assert.deepEqual([waiting.state, waiting.tries, waiting.runAt], ["retry", 1, env.now + 100]);
      env.clock.advance(99);
      await env.nothingClaimable();
      env.clock.advance(1);
      const again = await env.claimOne();
      assert.deepEqual([again.tries, again.token, again.error?.message], [2, 2, "no luck"]);
    },
  },
  {
    name: "the last failed try ends as dead, or as failed where dead letters are off",
    async run(env) {
      for (const deadLetter of [true, false]) {
        const { id } = await env.create({ maxTries: 1, deadLetter });
        await env.fail(await env.claimOne(), env.now);
        assert.equal((await env.load(id)).state, deadLetter ? "dead" : "failed");
      }
      await env.nothingClaimable();
    },
  },
  {
    name: "a release gives the try back, and the next start still has a fresh token",
    async run(env) {
      const { id } = await env.create({ maxTries: 1 });
      for (const token of [1, 2, 3]) {
        const job = await env.claimOne();
        assert.deepEqual([job.token, job.tries], [token, 1]);
        const wish = { command: "release", token, cause: "snooze", runAt: env.now + 5 } as const;
        assert.deepEqual(await env.settle(job, wish), appended);
        assert.deepEqual([(await env.load(id)).state, (await env.load(id)).tries], ["pending", 0]);
        await env.nothingClaimable();
        env.clock.advance(5);
      }
    },
  },
  {
    name: "terminate ends as failed and skip as skipped",
    async run(env) {
      await env.createMany(2);
      const [a, b] = await env.claim();
      assert.ok(a && b);
      assert.deepEqual(await env.settle(a, { command: "terminate", token: 1, error }), appended);
      const skip = { command: "skip", token: 1, reason: "nothing to do" } as const;
      assert.deepEqual(await env.settle(b, skip), appended);
      assert.equal((await env.load(a.id)).state, "failed");
      const { state, reason } = await env.load(b.id);
      assert.deepEqual([state, reason], ["skipped", "nothing to do"]);
    },
  },
  {
    name: "an attempt is settled once",
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      await env.complete(job);
      const wish = { command: "terminate", token: 1, error } as const;
      assert.deepEqual(await env.settle(job, wish), conflict);
      assert.equal((await env.load(id)).state, "completed");
      assert.deepEqual(await env.historyNames(id), ["created", "started", "completed"]);
    },
  },
  {
    name: "of many outcomes at the same time exactly one is recorded",
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      const wishes = Array.from({ length: 6 }, (_, index) =>
        index % 2 === 0
          ? env.settle(job, { command: "complete", token: 1, result: index, completedBy: null })
          : env.append(env.change(job, { command: "cancel", force: true })),
      );
      assert.deepEqual(tally(await Promise.all(wishes)), { appended: 1, conflict: 5 });
      assert.equal((await env.history(id)).length, 3);
    },
  },
  {
    name: "an outcome under another token or version is refused",
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      const wish = { command: "complete", token: 1, completedBy: null } as const;
      const change = env.change(job, wish, 1);
      const expectations = [
        { version: job.version, token: 2 },
        { version: job.version, token: 0 },
        { version: job.version - 1, token: 1 },
        { version: job.version + 1, token: 1 },
      ];
      for (const expect of expectations) {
        assert.deepEqual(await env.engine.settle([{ ...change, expect }]), [conflict]);
      }
      assert.deepEqual(await env.load(job.id), job);
    },
  },
  {
    name: "an outcome that was decided on what another process stored meanwhile is recorded",
    needs: ["shared"],
    async run(env) {
      const { id } = await env.create();
      await env.claimOne();
      await env.at(await env.open()).command(id, { command: "cancel" });
      const asked = await env.load(id);
      assert.notEqual(asked.cancelRequest, undefined);
      assert.deepEqual(await env.settle(asked, { command: "confirmCancel", token: asked.token }), {
        outcome: "appended",
      });
      assert.equal((await env.load(id)).state, "cancelled");
    },
  },
  {
    name: "a record changes with its outcome, or not at all",
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      const wish = { command: "complete", token: 1, completedBy: null } as const;
      const write = { id: "test/settled", expect: 0, body: { by: job.id } };
      const change = {
        ...env.change(job, wish, job.token),
        records: { before: [write], after: [] },
      };
      const stale = { ...change, expect: { version: job.version, token: 7 } };
      assert.deepEqual(await env.engine.settle([stale]), [conflict]);
      assert.deepEqual(await env.engine.records([write.id]), [null]);
      assert.deepEqual(await env.engine.settle([change]), [appended]);
      assert.deepEqual((await env.engine.records([write.id]))[0]?.body, { by: job.id });
    },
  },
]);
