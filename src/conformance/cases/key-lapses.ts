/**
 * Lapsed leases of keyed jobs: what each stale policy does with the job and with its key.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { defaults, ids } from "../environment.js";

const { leaseMs, service } = defaults;

export const keyLapseCases = concern("key lapses", [
  {
    name: "a lapsed lease holds its slot until the lapse is in the log",
    async run(env) {
      await env.createMany(2, { key: env.key("k") });
      await env.claimOne();
      env.clock.advance(leaseMs * 3);
      await env.nothingClaimable();
    },
  },
  {
    name: "fail-stale ends the job and lets the next in",
    async run(env) {
      const key = env.key("k", { stalePolicy: "fail-stale" });
      const [a, b] = await env.createMany(2, { key });
      assert.ok(a && b);
      await env.claimOne();
      env.clock.advance(leaseMs);
      const stale = await env.lapse(a.id);
      assert.deepEqual([stale.state, stale.reason], ["stale", "lapsed"]);
      assert.deepEqual(ids(await env.claim()), [b.id]);
    },
  },
  {
    name: "requeue puts the job back in line",
    async run(env) {
      const key = env.key("k", { stalePolicy: "requeue" });
      const [a, b] = await env.createMany(2, { key });
      assert.ok(a && b);
      await env.claimOne();
      env.clock.advance(leaseMs);
      assert.equal((await env.lapse(a.id, env.now + 10)).state, "retry");
      const next = await env.claimOne();
      assert.equal(next.id, b.id);
      env.clock.advance(10);
      await env.nothingClaimable();
      await env.complete(next);
      assert.deepEqual(ids(await env.claim()), [a.id]);
    },
  },
  {
    name: "what waits under keys, and which keys are blocked, is counted by type",
    needs: ["immediateViews"],
    async run(env) {
      assert.deepEqual(await env.engine.query("keyCounts", {}), []);
      const key = env.key("k", { stalePolicy: "block" });
      const [first] = await env.createMany(3, { key });
      await env.createMany(2, { key: env.key("other"), type: "report" });
      await env.create();
      assert.ok(first);
      const { type } = defaults;
      const waiting = (blocked: number) => [
        { service, type, waiting: 2, blocked },
        { service, type: "report", waiting: 1, blocked: 0 },
      ];
      assert.deepEqual(await env.engine.query("keyCounts", {}), waiting(0));
      await env.claim();
      env.clock.advance(leaseMs);
      await env.lapse(first.id);
      assert.deepEqual(await env.engine.query("keyCounts", {}), waiting(1));
    },
  },
  {
    name: "block keeps the key taken until an admin releases it",
    async run(env) {
      const key = env.key("k", { stalePolicy: "block" });
      const [a, b] = await env.createMany(2, { key });
      assert.ok(a && b);
      await env.claimOne();
      env.clock.advance(leaseMs);
      const blocked = await env.lapse(a.id);
      assert.deepEqual([blocked.state, blocked.keyBlocked], ["active", true]);
      env.clock.advance(leaseMs * 10);
      await env.nothingClaimable();
      assert.deepEqual(await env.engine.due({ kind: "lapsed", service }, 10), []);
      const released = await env.command(a.id, { command: "releaseKey", actor: "admin:anna" });
      assert.deepEqual([released?.state, released?.reason], ["stale", "key_released"]);
      assert.deepEqual(ids(await env.claim()), [b.id]);
    },
  },
  {
    name: "a worker that returns to a blocked key holds it still and may complete",
    async run(env) {
      const key = env.key("k", { stalePolicy: "block" });
      const [a, b] = await env.createMany(2, { key });
      assert.ok(a && b);
      const job = await env.claimOne();
      env.clock.advance(leaseMs);
      const blocked = await env.lapse(a.id);
      const [renewed] = await env.engine.renew([{ job, token: job.token, leaseMs }]);
      assert.equal(renewed?.outcome, "held");
      await env.complete(blocked);
      assert.equal((await env.load(a.id)).state, "completed");
      assert.deepEqual(ids(await env.claim()), [b.id]);
    },
  },
  {
    name: "takeovers are counted per key",
    needs: ["immediateViews"],
    async run(env) {
      const key = env.key("k", { stalePolicy: "requeue" });
      const other = env.key("other");
      const { id } = await env.create({ key, maxTries: 2 });
      await env.create({ key: other });
      for (const expected of [1, 2]) {
        await env.claim();
        env.clock.advance(leaseMs);
        await env.lapse(id);
        assert.equal((await env.keyRow(key)).takeovers, expected);
      }
      assert.equal((await env.load(id)).state, "dead");
      assert.equal((await env.keyRow(other)).takeovers, 0);
    },
  },
  {
    name: "a failed try and a cancel are no takeovers",
    needs: ["immediateViews"],
    async run(env) {
      const key = env.key("k");
      const { id } = await env.create({ key });
      await env.fail(await env.claimOne(), env.now);
      await env.command(id, { command: "cancel" });
      assert.equal((await env.keyRow(key)).takeovers, 0);
    },
  },
]);
