/**
 * Runs: a retry by hand opens a new run of the same job; a dismissal marks a dead one.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { defaults, ids } from "../environment.js";

export const runCases = concern("runs", [
  {
    name: "a retry by hand opens a new run with all its tries",
    async run(env) {
      const { id } = await env.create({ maxTries: 1 });
      await env.fail(await env.claimOne(), env.now);
      assert.equal((await env.load(id)).state, "dead");
      const retried = await env.command(id, { command: "retry", runAt: env.now + 10 });
      assert.deepEqual(
        [retried?.state, retried?.run, retried?.tries, retried?.error, retried?.endedAt],
        ["pending", 2, 0, undefined, undefined],
      );
      assert.deepEqual(await env.load(id), retried);
      await env.nothingClaimable();
      env.clock.advance(10);
      const job = await env.claimOne();
      assert.deepEqual([job.run, job.tries, job.token], [2, 1, 2]);
      await env.complete(job);
    },
  },
  {
    name: "a completed job runs again only when it is forced, and loses its result",
    async run(env) {
      const { id } = await env.create();
      const wish = { command: "complete", token: 1, result: 42, completedBy: "w" } as const;
      await env.settle(await env.claimOne(), wish);
      await env.command(id, { command: "retry", runAt: env.now, force: true });
      const job = await env.claimOne();
      assert.deepEqual([job.run, job.result, job.completedBy], [2, undefined, undefined]);
    },
  },
  {
    name: "each run has one outcome, and a job can have many runs",
    async run(env) {
      const { id } = await env.create();
      for (let run = 1; run <= 3; run++) {
        const job = await env.claimOne();
        assert.equal(job.run, run);
        await env.complete(job);
        await env.command(id, { command: "retry", runAt: env.now, force: true });
      }
      const names = await env.historyNames(id);
      assert.equal(names.filter((name) => name === "completed").length, 3);
      assert.equal(names.length, 10);
    },
  },
  {
    name: "of two retries decided on the same version one is refused",
    async run(env) {
      const { id } = await env.create();
      const job = await env.command(id, { command: "cancel" });
      assert.ok(job);
      const retries = [1, 2].map(() =>
        env.append(env.change(job, { command: "retry", runAt: env.now })),
      );
      const outcomes = (await Promise.all(retries)).map(({ outcome }) => outcome).sort();
      assert.deepEqual(outcomes, ["appended", "conflict"]);
      assert.equal((await env.claim()).length, 1);
    },
  },
  {
    name: "a dismissed job stays as it was, marked",
    async run(env) {
      const { id } = await env.create({ maxTries: 1 });
      await env.fail(await env.claimOne(), env.now);
      const dead = await env.load(id);
      env.clock.advance(5);
      const job = await env.command(id, { command: "dismiss", reason: "known" });
      assert.deepEqual(
        [job?.state, job?.reason, job?.endedAt, job?.error],
        ["dismissed", "known", dead.endedAt, dead.error],
      );
      assert.deepEqual(await env.load(id), job);
      await env.nothingClaimable();
    },
  },
  {
    name: "retention finds ended jobs of one type and state by the time of their end",
    async run(env) {
      const { service, type } = defaults;
      for (const id of ["b", "a", "c"]) await env.create({ id });
      await env.create({ id: "other", type: "other" });
      await env.create({ id: "open" });
      for (const id of ["b", "a", "other"]) await env.command(id, { command: "cancel" });
      env.clock.advance(10);
      await env.command("c", { command: "cancel" });
      const due = async (endedBefore: number, limit = 10) =>
        ids(
          await env.engine.due(
            { kind: "retention", service, type, state: "cancelled", endedBefore },
            limit,
          ),
        );
      assert.deepEqual(await due(env.now - 10), []);
      assert.deepEqual(await due(env.now), ["a", "b"]);
      assert.deepEqual(await due(env.now + 1), ["a", "b", "c"]);
      assert.deepEqual(await due(env.now + 1, 2), ["a", "b"]);
      const failed = {
        kind: "retention",
        service,
        type,
        state: "failed",
        endedBefore: env.now + 1,
      } as const;
      assert.deepEqual(await env.engine.due(failed, 10), []);
      const [first] = await env.engine.due({ ...failed, state: "cancelled" }, 1);
      assert.deepEqual(first, { service, type, id: "a", version: 2, token: 0 });
    },
  },
]);
