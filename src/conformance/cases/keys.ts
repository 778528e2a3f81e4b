/**
 * Concurrency keys: never more at once than a key allows, and the next in order when a slot is free.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { defaults, ids } from "../environment.js";

/** How often processes that get in each other's way claim at most. */
const roundsMax = 200;

export const keyCases = concern("keys", [
  {
    name: "one job of a key runs at a time",
    async run(env) {
      const key = env.key("k");
      const jobs = await env.createMany(3, { key });
      for (const { id } of jobs) {
        const [job, ...others] = await env.claim();
        assert.equal(job?.id, id);
        assert.deepEqual(others, []);
        await env.nothingClaimable();
        assert.ok(job);
        await env.complete(job);
      }
      await env.nothingClaimable();
    },
  },
  {
    name: "as many jobs of a key run as it allows, and no more",
    async run(env) {
      await env.createMany(5, { key: env.key("k", { maxActive: 3 }) });
      const running = await env.claim();
      assert.equal(running.length, 3);
      await env.nothingClaimable();
      const [first] = running;
      assert.ok(first);
      await env.complete(first);
      assert.equal((await env.claim()).length, 1);
      await env.nothingClaimable();
    },
  },
  {
    name: "claims at the same time do not exceed a key",
    async run(env) {
      await env.createMany(12, { key: env.key("k", { maxActive: 2 }) });
      for (let round = 0; round < 6; round++) {
        const claims = Array.from({ length: 5 }, (_, index) =>
          env.claim({}, { limit: 3, worker: `worker-${index}` }),
        );
        const running = (await Promise.all(claims)).flat();
        assert.equal(running.length, 2);
        await Promise.all(running.map((job) => env.complete(job)));
      }
      await env.nothingClaimable();
    },
  },
  {
    name: "two processes do not exceed a key",
    needs: ["shared"],
    async run(env) {
      const other = env.at(await env.open());
      await env.createMany(8, { key: env.key("k", { maxActive: 2 }) });
      let completed = 0;
      // A slot that two processes see at the same moment may be given away a moment later.
      for (let round = 0; round < roundsMax && completed < 8; round++) {
        const running = (await Promise.all([env.claim(), other.claim(), env.claim()])).flat();
        assert.ok(running.length <= 2, `${running.length} jobs of the key run at once`);
        await Promise.all(running.map((job, index) => (index ? env : other).complete(job)));
        completed += running.length;
      }
      assert.equal(completed, 8);
    },
  },
  {
    name: "keys do not disturb each other, nor jobs without one",
    async run(env) {
      await env.createMany(2, { key: env.key("a") });
      await env.createMany(2, { key: env.key("b") });
      await env.createMany(2);
      const claimed = await env.claim();
      const keys = claimed.map(({ key }) => key?.key ?? "none").sort();
      assert.deepEqual(keys, ["a", "b", "none", "none"]);
    },
  },
  {
    name: "a freed slot goes to the first in the order of claims",
    needs: ["strictPriority"],
    async run(env) {
      const key = env.key("k");
      await env.create({ id: "first", key });
      await env.create({ id: "low", key, priority: -1 });
      await env.create({ id: "high", key, priority: 9 });
      await env.create({ id: "middle", key, priority: 3 });
      const order: string[] = [];
      for (let turn = 0; turn < 4; turn++) {
        const job = await env.claimOne();
        order.push(job.id);
        await env.complete(job);
      }
      assert.deepEqual(order, ["first", "high", "middle", "low"]);
    },
  },
  {
    name: "a failed try frees its slot, and competes again when it is due",
    async run(env) {
      const key = env.key("k");
      await env.create({ id: "a", key });
      await env.create({ id: "b", key });
      await env.fail(await env.claimOne(), env.now + 10);
      const second = await env.claimOne();
      assert.equal(second.id, "b");
      env.clock.advance(10);
      await env.nothingClaimable();
      await env.complete(second);
      assert.equal((await env.claimOne()).id, "a");
    },
  },
  {
    name: "a try that fails and is due at once does not run beside the next",
    async run(env) {
      const key = env.key("k");
      await env.create({ id: "a", key, runAt: env.now - 5 });
      await env.create({ id: "b", key, runAt: env.now - 3 });
      await env.fail(await env.claimOne(), env.now);
      assert.deepEqual(ids(await env.claim()), ["b"]);
      await env.nothingClaimable();
    },
  },
  {
    name: "a release frees the slot",
    async run(env) {
      const key = env.key("k");
      await env.create({ id: "a", key });
      await env.create({ id: "b", key });
      const job = await env.claimOne();
      const wish = { command: "release", token: 1, cause: "snooze", runAt: env.now + 10 } as const;
      assert.equal((await env.settle(job, wish)).outcome, "appended");
      assert.deepEqual(ids(await env.claim()), ["b"]);
    },
  },
  {
    name: "a job that ends while it waits passes its slot on",
    async run(env) {
      const key = env.key("k");
      const [a, b, c] = await env.createMany(3, { key });
      assert.ok(a && b && c);
      await env.command(b.id, { command: "cancel" });
      await env.command(a.id, { command: "cancel" });
      assert.deepEqual(ids(await env.claim()), [c.id]);
    },
  },
  {
    name: "a job whose time has not come holds no slot",
    async run(env) {
      const key = env.key("k");
      await env.create({ id: "later", key, runAt: env.now + 100 });
      await env.create({ id: "now", key });
      const job = await env.claimOne();
      assert.equal(job.id, "now");
      env.clock.advance(100);
      await env.nothingClaimable();
      await env.complete(job);
      assert.equal((await env.claimOne()).id, "later");
    },
  },
  {
    name: "jobs that come due together compete in the order of claims",
    needs: ["strictPriority"],
    async run(env) {
      const key = env.key("k");
      await env.create({ id: "early", key, runAt: env.now + 10 });
      await env.create({ id: "urgent", key, runAt: env.now + 20, priority: 5 });
      env.clock.advance(25);
      assert.deepEqual(ids(await env.claim()), ["urgent"]);
    },
  },
  {
    name: "a freed slot goes to the first of all that are due, also to one that nobody had noticed",
    needs: ["strictPriority"],
    async run(env) {
      const key = env.key("k");
      await env.create({ id: "running", key });
      const job = await env.claimOne();
      await env.create({ id: "waiting", key });
      await env.create({ id: "urgent", key, runAt: env.now + 20, priority: 5 });
      env.clock.advance(25);
      await env.complete(job);
      assert.deepEqual(ids(await env.claim()), ["urgent"]);
    },
  },
  {
    name: "a new job does not overtake one of its key that came due before it",
    needs: ["strictPriority"],
    async run(env) {
      const key = env.key("k");
      await env.create({ id: "old", key, runAt: env.now + 10 });
      env.clock.advance(20);
      await env.create({ id: "new", key });
      assert.deepEqual(ids(await env.claim()), ["old"]);
    },
  },
  {
    name: "an unblocked job of a key waits for its slot like any other",
    async run(env) {
      const key = env.key("k");
      await env.create({ id: "x", type: "other" });
      const blockers = [{ jobId: "x", onBadEnd: "continue" }] as const;
      await env.create({ id: "blocked", key, blockers });
      await env.create({ id: "free", key });
      const job = await env.claimOne();
      assert.equal(job.id, "free");
      await env.complete(await env.claimOne({ type: "other" }));
      await env.command("blocked", { command: "unblock" });
      await env.nothingClaimable();
      await env.complete(job);
      assert.equal((await env.claimOne()).id, "blocked");
    },
  },
  {
    name: "a job that is retried by hand waits for its slot like any other",
    async run(env) {
      const key = env.key("k");
      const [a, b] = await env.createMany(2, { key });
      assert.ok(a && b);
      await env.command(a.id, { command: "cancel" });
      const running = await env.claimOne();
      assert.equal(running.id, b.id);
      await env.command(a.id, { command: "retry", runAt: env.now });
      await env.nothingClaimable();
      await env.complete(running);
      assert.deepEqual(ids(await env.claim()), [a.id]);
    },
  },
  {
    name: "each job keeps to the limit that it was created under",
    async run(env) {
      await env.create({ id: "wide-1", key: env.key("k", { maxActive: 3 }) });
      await env.create({ id: "wide-2", key: env.key("k", { maxActive: 3 }) });
      const wide = await env.claim();
      assert.equal(wide.length, 2);
      await env.create({ id: "narrow", key: env.key("k", { maxActive: 1 }) });
      await env.nothingClaimable();
      const [first, second] = wide;
      assert.ok(first && second);
      await env.complete(first);
      await env.nothingClaimable();
      await env.complete(second);
      assert.deepEqual(ids(await env.claim()), ["narrow"]);
    },
  },
  {
    name: "slots that come free go to jobs of different limits, each by its own",
    async run(env) {
      await env.create({ id: "first", key: env.key("k", { maxActive: 1 }) });
      const [first] = await env.claim();
      assert.ok(first);
      await env.create({ id: "narrow", key: env.key("k", { maxActive: 1 }) });
      for (const id of ["wide-1", "wide-2"])
        await env.create({ id, key: env.key("k", { maxActive: 2 }) });
      await env.complete(first);
      assert.deepEqual(new Set(ids(await env.claim())), new Set(["narrow", "wide-1"]));
      await env.nothingClaimable();
    },
  },
  {
    name: "a key spans versions and queues of its type",
    async run(env) {
      const key = env.key("k");
      await env.create({ key });
      await env.create({ key, typeVersion: 2 });
      await env.create({ key, queue: "other" });
      const lanes = [{}, { typeVersion: 2 }, { queue: "other" }];
      for (let turn = 0; turn < 3; turn++) {
        const [job, ...others] = await env.claim(lanes);
        assert.ok(job);
        assert.deepEqual(others, []);
        await env.complete(job);
      }
    },
  },
  {
    name: "a long line at a key drains one by one and loses nobody",
    async run(env) {
      const key = env.key("k", { maxActive: 2 });
      const created = await env.createMany(30, { key });
      const done: string[] = [];
      for (let turn = 0; turn < 30 && done.length < 30; turn++) {
        const running = await env.claim();
        assert.ok(running.length <= 2);
        for (const job of running) {
          await env.complete(job);
          done.push(job.id);
        }
      }
      assert.deepEqual(done.sort(), [...ids(created)].sort());
    },
  },
  {
    name: "an expired job of a key passes its slot on in the same claim",
    async run(env) {
      const key = env.key("k");
      const late = await env.create({ key, deadline: env.now + 10 });
      const next = await env.create({ key });
      env.clock.advance(defaults.leaseMs);
      assert.deepEqual(ids(await env.claim()), [next.id]);
      assert.equal((await env.load(late.id)).state, "expired");
    },
  },
  {
    name: "an expired job passes its slot on to one of a higher priority in the same claim",
    async run(env) {
      const key = env.key("k");
      const late = await env.create({ key, deadline: env.now + 10 });
      const next = await env.create({ key, priority: 5 });
      env.clock.advance(defaults.leaseMs);
      assert.deepEqual(ids(await env.claim()), [next.id]);
      assert.equal((await env.load(late.id)).state, "expired");
    },
  },
]);
