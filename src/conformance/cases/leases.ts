/**
 * Leases: renewed by the holder, found when they lapse, and lost for good once somebody moved the job on.
 */
import assert from "node:assert/strict";
import type { Job } from "../../core/job.js";
import type { RenewOutcome } from "../../engine/engine.js";
import { concern } from "../case.js";
import { defaults, type Environment, ids } from "../environment.js";

const { leaseMs, service } = defaults;

async function renew(env: Environment, job: Job, token = job.token): Promise<RenewOutcome> {
  const [outcome] = await env.engine.renew([{ job, token, leaseMs }]);
  assert.ok(outcome);
  return outcome;
}

function lapsed(env: Environment, limit = 100) {
  return env.engine.due({ kind: "lapsed", service }, limit);
}

export const leaseCases = concern("leases", [
  {
    name: "a lease lapses at its time and not before",
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      env.clock.advance(leaseMs - 1);
      assert.deepEqual(await lapsed(env), []);
      env.clock.advance(1);
      const { id, type, version, token } = job;
      assert.deepEqual(await lapsed(env), [{ service, type, id, version, token }]);
    },
  },
  {
    name: "a renewed lease holds from the renewal on",
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      env.clock.advance(leaseMs - 1);
      const until = env.now + leaseMs;
      const held = { outcome: "held", leaseUntil: until, cancelRequested: false };
      assert.deepEqual(await renew(env, job), held);
      env.clock.advance(leaseMs - 1);
      assert.deepEqual(await lapsed(env), []);
      env.clock.advance(1);
      assert.equal((await lapsed(env)).length, 1);
    },
  },
  {
    name: "lapsed leases come in the order of their time, then id, of one service, within the limit",
    async run(env) {
      for (const id of ["b", "a", "c"]) await env.create({ id });
      await env.create({ service: "bank" });
      await env.claim({ leaseMs: 200 }, { limit: 2 });
      await env.claim({ leaseMs: 100 });
      await env.claim({ service: "bank", leaseMs: 10 });
      env.clock.advance(500);
      assert.deepEqual(ids(await lapsed(env)), ["c", "a", "b"]);
      assert.deepEqual(ids(await lapsed(env, 2)), ["c", "a"]);
    },
  },
  {
    name: "a lapsed lease that nobody has reaped still belongs to its worker",
    async run(env) {
      await env.createMany(2);
      const [first, second] = await env.claim();
      assert.ok(first && second);
      env.clock.advance(leaseMs * 2);
      assert.equal((await renew(env, first)).outcome, "held");
      assert.deepEqual(ids(await lapsed(env)), [second.id]);
      await env.complete(second);
      await env.complete(first);
    },
  },
  {
    name: "a lapsed lease is not handed out before the lapse is in the log",
    async run(env) {
      await env.create();
      await env.claimOne();
      env.clock.advance(leaseMs * 2);
      await env.nothingClaimable();
    },
  },
  {
    name: "a lapse that the worker has renewed away is refused",
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      env.clock.advance(leaseMs);
      const actor = "keeper:keeper-1" as const;
      const lapse = { command: "lapse", actor, token: job.token, retryAt: env.now } as const;
      const change = env.change(job, lapse);
      await renew(env, job);
      assert.deepEqual(await env.append(change), { outcome: "conflict" });
      assert.deepEqual(await env.load(job.id), job);
    },
  },
  {
    name: "a lapse puts an unkeyed job back, and on its last try ends it as dead",
    async run(env) {
      const { id } = await env.create({ maxTries: 2 });
      await env.claimOne();
      env.clock.advance(leaseMs);
      const waiting = await env.lapse(id, env.now + 50);
      assert.deepEqual([waiting.state, waiting.error?.reason], ["retry", "orphaned"]);
      await env.nothingClaimable();
      env.clock.advance(50);
      assert.equal((await env.claimOne()).tries, 2);
      env.clock.advance(leaseMs);
      assert.equal((await env.lapse(id)).state, "dead");
    },
  },
  {
    name: "the old worker has lost a job that waits again, runs elsewhere or is gone",
    async run(env) {
      const { id } = await env.create();
      const old = await env.claimOne();
      env.clock.advance(leaseMs);
      await env.lapse(id, env.now + 10);
      assert.deepEqual(await renew(env, old), { outcome: "lost", state: "retry" });
      env.clock.advance(10);
      const young = await env.claimOne({}, "worker-2");
      assert.deepEqual(await renew(env, old), { outcome: "lost", state: "active" });
      await env.complete(young);
      assert.deepEqual(await renew(env, old), { outcome: "lost", state: "completed" });
      assert.deepEqual(await renew(env, young), { outcome: "ended", state: "completed" });
      await env.command(id, { command: "delete", reason: "test" });
      assert.deepEqual(await renew(env, young), { outcome: "lost", state: null });
    },
  },
  {
    name: "a renewal tells that the job was ended from outside, or asked to stop",
    async run(env) {
      await env.createMany(2);
      const [first, second] = await env.claim();
      assert.ok(first && second);
      await env.command(first.id, { command: "cancel", force: true });
      await env.command(second.id, { command: "cancel" });
      assert.deepEqual(await renew(env, first), { outcome: "ended", state: "cancelled" });
      const held = await renew(env, second);
      assert.ok(held.outcome === "held" && held.cancelRequested);
    },
  },
  {
    name: "a token that was never given out holds nothing",
    async run(env) {
      const { id } = await env.create();
      const waiting = await env.load(id);
      assert.deepEqual(await renew(env, waiting, 0), { outcome: "lost", state: "pending" });
      assert.deepEqual(await renew(env, waiting, 1), { outcome: "lost", state: "pending" });
      const job = await env.claimOne();
      assert.deepEqual(await renew(env, job, 2), { outcome: "lost", state: "active" });
    },
  },
  {
    name: "a batch of renewals has an outcome for each, in order",
    async run(env) {
      await env.createMany(3);
      const [a, b, c] = await env.claim();
      assert.ok(a && b && c);
      await env.complete(b);
      const held = [a, b, c].map((job) => ({ job, token: job.token, leaseMs }));
      const outcomes = await env.engine.renew(held);
      assert.deepEqual(
        outcomes.map(({ outcome }) => outcome),
        ["held", "ended", "held"],
      );
    },
  },
  {
    name: "a renewal is no event and no change",
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      env.clock.advance(5);
      await renew(env, job);
      assert.deepEqual(await env.load(job.id), job);
      assert.deepEqual(await env.historyNames(job.id), ["created", "started"]);
    },
  },
  {
    name: "a released job is lost to the worker that released it",
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      const release = {
        command: "release",
        token: job.token,
        cause: "shutdown",
        runAt: env.now,
      } as const;
      assert.equal((await env.settle(job, release)).outcome, "appended");
      assert.deepEqual(await renew(env, job), { outcome: "lost", state: "pending" });
    },
  },
]);
