/**
 * Fencing: an outcome under an old token changes nothing, whatever happened since.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { defaults, type Environment } from "../environment.js";

const conflict = { outcome: "conflict" } as const;

/** A worker holds a job, sleeps past its lease, and another worker has the job now. */
async function takenOver(env: Environment) {
  const { id } = await env.create();
  const old = await env.claimOne({}, "sleeper");
  env.clock.advance(defaults.leaseMs);
  await env.lapse(id);
  const young = await env.claimOne({}, "worker-2");
  return { id, old, young };
}

export const fencingCases = concern("fencing", [
  {
    name: "a worker that was taken over records no outcome",
    async run(env) {
      const { id, old, young } = await takenOver(env);
      const wishes = [
        { command: "complete", token: old.token, completedBy: "sleeper" },
        {
          command: "fail",
          token: old.token,
          error: { message: "late", reason: "error" },
          retryAt: env.now,
        },
        { command: "release", token: old.token, cause: "shutdown", runAt: env.now },
        { command: "skip", token: old.token, reason: "late" },
      ] as const;
      for (const wish of wishes) assert.deepEqual(await env.settle(old, wish), conflict);
      assert.deepEqual(await env.load(id), young);
      await env.complete(young);
    },
  },
  {
    name: "an old outcome is refused at the current version, too",
    async run(env) {
      const { id, old, young } = await takenOver(env);
      const wish = { command: "complete", token: old.token, completedBy: "sleeper" } as const;
      const change = env.change(old, wish, old.token);
      const expect = { version: young.version, token: old.token };
      assert.deepEqual(await env.engine.settle([{ ...change, expect }]), [conflict]);
      assert.deepEqual(await env.load(id), young);
    },
  },
  {
    name: "an ignored outcome is recorded and changes nothing",
    async run(env) {
      const { id, old, young } = await takenOver(env);
      const note = env.event(young, {
        command: "reportStale",
        actor: "worker:sleeper",
        token: old.token,
        outcome: "completed",
      });
      assert.deepEqual(await env.engine.note([note]), [true]);
      assert.deepEqual(await env.load(id), young);
      assert.equal((await env.historyNames(id)).at(-1), "staleCompletionIgnored");
      await env.complete(young);
      assert.deepEqual(
        await env.engine.note([
          env.event(await env.load(id), {
            command: "reportStale",
            token: old.token,
            outcome: "completed",
          }),
        ]),
        [true],
      );
      assert.equal((await env.load(id)).state, "completed");
    },
  },
  {
    name: "an outcome after an end from outside is refused",
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      await env.command(id, { command: "complete", completedBy: null, result: "by hand" });
      const wish = { command: "complete", token: 1, result: "late", completedBy: "w" } as const;
      assert.deepEqual(await env.settle(job, wish), conflict);
      const done = await env.load(id);
      assert.deepEqual([done.result, done.completedBy], ["by hand", null]);
    },
  },
  {
    name: "an outcome of an earlier run does not end the next one",
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      await env.command(id, { command: "cancel", force: true });
      await env.command(id, { command: "retry", runAt: env.now });
      const wish = { command: "complete", token: 1, completedBy: "w" } as const;
      assert.deepEqual(await env.settle(job, wish), conflict);
      const again = await env.claimOne();
      assert.deepEqual([again.run, again.tries, again.token], [2, 1, 2]);
      assert.deepEqual(await env.settle(job, wish), conflict);
      await env.complete(again);
    },
  },
]);
