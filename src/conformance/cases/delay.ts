/**
 * Delays: a job is claimable from its run time on, with nobody's help.
 */
import assert from "node:assert/strict";
import type { ClaimAnswer } from "../../engine/engine.js";
import { concern } from "../case.js";
import { type Environment, ids, type LaneAsk } from "../environment.js";

function ask(env: Environment, lanes: readonly LaneAsk[] = [{}]): Promise<ClaimAnswer> {
  return env.askFor({ worker: "w", limit: 10, lanes: lanes.map((lane) => env.lane(lane)) });
}

export const delayCases = concern("delay", [
  {
    name: "a delayed job is claimable at its run time and not before",
    async run(env) {
      const { id, state } = await env.create({ runAt: env.now + 100 });
      assert.equal(state, "pending");
      await env.nothingClaimable();
      env.clock.advance(99);
      await env.nothingClaimable();
      env.clock.advance(1);
      assert.deepEqual(ids(await env.claim()), [id]);
    },
  },
  {
    name: "a claim says when the next job of its lanes is due",
    async run(env) {
      const { now } = env;
      assert.deepEqual(await ask(env), { jobs: [], nextDueAt: null });
      await env.create({ runAt: now + 300 });
      await env.create({ runAt: now + 100 });
      await env.create({ runAt: now + 50, service: "bank" });
      assert.equal((await ask(env)).nextDueAt, now + 100);
      assert.equal((await ask(env, [{}, { service: "bank" }])).nextDueAt, now + 50);
      env.clock.advance(100);
      const answer = await ask(env);
      assert.deepEqual([answer.jobs.length, answer.nextDueAt], [1, now + 300]);
    },
  },
  {
    name: "a try that failed is next due at its new run time",
    async run(env) {
      await env.create();
      await env.fail(await env.claimOne(), env.now + 70);
      assert.equal((await ask(env)).nextDueAt, env.now + 70);
    },
  },
  {
    name: "a job that is not due stands in nobody's way",
    async run(env) {
      await env.create({ priority: 100, runAt: env.now + 10 });
      const job = await env.create();
      assert.deepEqual(ids(await env.claim({ free: 1 }, { limit: 1 })), [job.id]);
    },
  },
  {
    name: "jobs that came due stand in the order of claims with the others",
    needs: ["strictPriority"],
    async run(env) {
      await env.create({ id: "now" });
      await env.create({ id: "later", runAt: env.now + 10 });
      await env.create({ id: "urgent", runAt: env.now + 20, priority: 1 });
      env.clock.advance(20);
      assert.deepEqual(ids(await env.claim()), ["urgent", "now", "later"]);
    },
  },
  {
    name: "a hundred jobs that come due at once are all claimable",
    async run(env) {
      const changes = Array.from({ length: 100 }, () => env.creation({ runAt: env.now + 10 }));
      await env.engine.append(changes);
      env.clock.advance(10);
      assert.equal((await env.claim()).length, 100);
    },
  },
]);
