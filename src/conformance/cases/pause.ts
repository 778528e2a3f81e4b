/**
 * Pauses: nothing is claimed from a paused queue, and everything else goes on.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { ids } from "../environment.js";

export const pauseCases = concern("pause", [
  {
    name: "nothing is claimed from a paused queue until it is unpaused",
    async run(env) {
      const job = await env.create();
      await env.pause("mail", true);
      await env.nothingClaimable();
      await env.create();
      await env.nothingClaimable();
      await env.pause("mail", false);
      assert.equal(ids(await env.claim())[0], job.id);
    },
  },
  {
    name: "a pause stops one queue of one service",
    async run(env) {
      await env.create();
      await env.create({ type: "other" });
      await env.create({ service: "bank" });
      await env.pause("mail", true);
      const lanes = [{}, { type: "other" }, { service: "bank" }];
      const claimed = await env.claim(lanes);
      assert.deepEqual(claimed.map(({ service, type }) => `${service}/${type}`).sort(), [
        "bank/mail",
        "shop/other",
      ]);
    },
  },
  {
    name: "a pause stops every type of its queue",
    async run(env) {
      const queue = "shared";
      await env.create({ type: "a", queue });
      await env.create({ type: "b", queue, typeVersion: 2 });
      await env.pause(queue, true);
      const lanes = [
        { type: "a", queue },
        { type: "b", queue, typeVersion: 2 },
      ];
      assert.deepEqual(await env.claim(lanes), []);
      await env.pause(queue, false);
      assert.equal((await env.claim(lanes)).length, 2);
    },
  },
  {
    name: "jobs that run in a paused queue are renewed and settled as ever",
    async run(env) {
      await env.createMany(2);
      const [first, second] = await env.claim();
      assert.ok(first && second);
      await env.pause("mail", true);
      const [renewed] = await env.engine.renew([{ job: first, token: 1, leaseMs: 10 }]);
      assert.equal(renewed?.outcome, "held");
      await env.complete(first);
      await env.fail(second, env.now);
      await env.nothingClaimable();
      await env.pause("mail", false);
      assert.deepEqual(ids(await env.claim()), [second.id]);
    },
  },
  {
    name: "jobs that come due in a paused queue wait",
    async run(env) {
      const { id } = await env.create({ runAt: env.now + 10 });
      await env.pause("mail", true);
      env.clock.advance(10);
      await env.nothingClaimable();
      await env.pause("mail", false);
      assert.deepEqual(ids(await env.claim()), [id]);
    },
  },
  {
    name: "a pause of another process holds here, too",
    needs: ["shared"],
    async run(env) {
      const other = env.at(await env.open());
      await env.create();
      await other.pause("mail", true);
      await env.nothingClaimable();
      await other.pause("mail", false);
      assert.equal((await env.claim()).length, 1);
    },
  },
]);
