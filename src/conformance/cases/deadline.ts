/**
 * Deadlines: a job whose time is over is never started, and the keeper can find it.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { defaults, type Environment, ids } from "../environment.js";

const { service } = defaults;

function overdue(env: Environment, limit = 100) {
  return env.engine.due({ kind: "deadline", service }, limit);
}

export const deadlineCases = concern("deadline", [
  {
    name: "a job whose deadline has come is expired by a claim, not started",
    async run(env) {
      const { id } = await env.create({ deadline: env.now + 10 });
      env.clock.advance(10);
      assert.deepEqual(await env.claim(), []);
      const job = await env.load(id);
      assert.deepEqual([job.state, job.endedAt, job.tries, job.token], ["expired", env.now, 0, 0]);
      assert.deepEqual(await env.historyNames(id), ["created", "expired"]);
    },
  },
  {
    name: "a job is started up to the last moment before its deadline",
    async run(env) {
      const { id } = await env.create({ deadline: env.now + 10 });
      env.clock.advance(9);
      assert.deepEqual(ids(await env.claim()), [id]);
    },
  },
  {
    name: "a claim that meets overdue jobs goes on to those behind them",
    async run(env) {
      await env.createMany(3, { deadline: env.now + 10, priority: 5 });
      const job = await env.create();
      env.clock.advance(10);
      assert.deepEqual(ids(await env.claim({ free: 1 }, { limit: 1 })), [job.id]);
    },
  },
  {
    name: "overdue jobs are found while they wait or run, in the order of their deadlines",
    async run(env) {
      await env.create({ id: "c", deadline: env.now + 30, runAt: env.now + 1_000 });
      await env.create({ id: "b", deadline: env.now + 20 });
      await env.create({ id: "a", deadline: env.now + 20, type: "other" });
      await env.create({ id: "in-time", deadline: env.now + 31 });
      await env.create({ id: "without" });
      await env.create({ id: "elsewhere", deadline: env.now + 1, service: "bank" });
      await env.create({ id: "ended", deadline: env.now + 1 });
      await env.command("ended", { command: "cancel" });
      await env.claim({ type: "other" });
      env.clock.advance(30);
      const found = await overdue(env);
      assert.deepEqual(ids(found), ["a", "b", "c"]);
      assert.deepEqual(found[0], { service, type: "other", id: "a", version: 2, token: 1 });
      assert.deepEqual(ids(await overdue(env, 2)), ["a", "b"]);
    },
  },
  {
    name: "an overdue job that waits for its key is found and passes nothing on",
    async run(env) {
      const key = env.key("k");
      await env.create({ id: "runs", key });
      const job = await env.claimOne();
      await env.create({ id: "late", key, deadline: env.now + 10 });
      await env.create({ id: "next", key });
      env.clock.advance(10);
      assert.deepEqual(ids(await overdue(env)), ["late"]);
      await env.command("late", { command: "expire", actor: "keeper:keeper-1" });
      await env.nothingClaimable();
      await env.complete(job);
      assert.deepEqual(ids(await env.claim()), ["next"]);
    },
  },
  {
    name: "a retry by hand takes the deadline away",
    async run(env) {
      const { id } = await env.create({ deadline: env.now + 10 });
      env.clock.advance(10);
      await env.claim();
      await env.command(id, { command: "retry", runAt: env.now });
      assert.deepEqual(await overdue(env), []);
      const job = await env.claimOne();
      assert.deepEqual([job.id, job.run, job.deadline], [id, 2, undefined]);
    },
  },
  {
    name: "a deadline holds over tries",
    async run(env) {
      const { id } = await env.create({ deadline: env.now + 10 });
      await env.fail(await env.claimOne(), env.now + 10);
      env.clock.advance(10);
      assert.deepEqual(await env.claim(), []);
      assert.equal((await env.load(id)).state, "expired");
    },
  },
]);
