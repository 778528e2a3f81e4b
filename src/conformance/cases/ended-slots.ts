/**
 * Slots of jobs that were ended from outside: they stay taken until the worker confirms or its lease lapses,
 * because the worker may still be at it.
 */
import assert from "node:assert/strict";
import type { Job } from "../../core/job.js";
import { concern } from "../case.js";
import { defaults, type Environment, ids, type LaneAsk, type Wish } from "../environment.js";

const { leaseMs } = defaults;

/** The ways in which somebody other than the worker ends an active job. */
const endings: readonly { readonly name: string; readonly wish: Wish }[] = [
  { name: "a completion by nobody", wish: { command: "complete", completedBy: null } },
  { name: "a forced cancel", wish: { command: "cancel", force: true } },
  { name: "a deadline", wish: { command: "expire", actor: "keeper:keeper-1" } },
  { name: "a skip by hand", wish: { command: "skip", reason: "not needed" } },
  { name: "a forced delete", wish: { command: "delete", reason: "test", force: true } },
];

/** The limits that a slot can belong to, each with room for one. */
const limits: readonly {
  readonly name: string;
  readonly lane: LaneAsk;
  readonly keyed: boolean;
}[] = [
  { name: "key", lane: {}, keyed: true },
  { name: "type's cap", lane: { typeMaxActive: 1 }, keyed: false },
  { name: "queue's cap", lane: { queueMaxActive: 1 }, keyed: false },
];

/** Two jobs under a limit of one: the first is active and was ended from outside, the second waits. */
async function endedFromOutside(env: Environment, keyed: boolean, lane: LaneAsk, wish: Wish) {
  const key = keyed ? { key: env.key("k") } : {};
  const deadline = wish.command === "expire" ? { deadline: env.now + 1 } : {};
  const { id } = await env.create({ ...key, ...deadline, priority: 1 });
  const next = await env.create(key);
  const job = await env.claimOne(lane);
  assert.equal(job.id, id);
  env.clock.advance(1);
  await env.command(id, wish);
  return { job, next };
}

function forcedCancel(env: Environment, keyed = true, lane: LaneAsk = {}) {
  return endedFromOutside(env, keyed, lane, { command: "cancel", force: true });
}

/** A limit that was renewed now stays taken until that lease lapses, and then is the next one's. */
async function staysTaken(
  env: Environment,
  lane: LaneAsk,
  next: Job,
  meanwhile = async () => {},
): Promise<void> {
  env.clock.advance(leaseMs - 1);
  await env.nothingClaimable(lane);
  await meanwhile();
  env.clock.advance(1);
  assert.deepEqual(ids(await env.claim(lane)), [next.id]);
}

/** The note of a worker that came back with an outcome and found the job ended. */
async function confirm(env: Environment, job: Job, token = job.token): Promise<void> {
  const current = await env.load(job.id);
  const wish = { command: "reportStale", token, outcome: "completed" } as const;
  assert.deepEqual(await env.engine.note([env.event(current, wish)]), [true]);
}

export const endedSlotCases = concern("slots of ended jobs", [
  ...endings.flatMap(({ name, wish }) =>
    limits.map((limit) => ({
      name: `after ${name} the ${limit.name} stays taken until the lease lapses`,
      async run(env: Environment) {
        const { next } = await endedFromOutside(env, limit.keyed, limit.lane, wish);
        await env.nothingClaimable(limit.lane);
        env.clock.advance(leaseMs - 2);
        await env.nothingClaimable(limit.lane);
        env.clock.advance(1);
        assert.deepEqual(ids(await env.claim(limit.lane)), [next.id]);
      },
    })),
  ),
  ...limits.map((limit) => ({
    name: `the worker's word frees the ${limit.name} at once`,
    async run(env: Environment) {
      const { job, next } = await forcedCancel(env, limit.keyed, limit.lane);
      await env.nothingClaimable(limit.lane);
      await confirm(env, job);
      assert.deepEqual(ids(await env.claim(limit.lane)), [next.id]);
    },
  })),
  {
    name: "a place under a cap counts as held until the worker's word",
    async run(env) {
      const lane = { typeMaxActive: 1, queueMaxActive: 1 };
      const { service, type } = defaults;
      const held = () => env.engine.query("held", { service, type, queue: type });
      assert.deepEqual(await held(), { type: 0, queue: 0 });
      const { job } = await forcedCancel(env, false, lane);
      assert.deepEqual(await held(), { type: 1, queue: 1 });
      await confirm(env, job);
      assert.deepEqual(await held(), { type: 0, queue: 0 });
      await env.claimOne(lane);
      assert.deepEqual(await held(), { type: 1, queue: 1 });
    },
  },
  ...limits.map((limit) => ({
    name: `a worker that renews keeps the ${limit.name} taken`,
    async run(env: Environment) {
      const { job, next } = await forcedCancel(env, limit.keyed, limit.lane);
      env.clock.advance(leaseMs - 2);
      const [renewed] = await env.engine.renew([{ job, token: job.token, leaseMs }]);
      assert.deepEqual(renewed, { outcome: "ended", state: "cancelled" });
      await staysTaken(env, limit.lane, next);
    },
  })),
  ...limits.map((limit) => ({
    name: `a worker that renews a deleted job keeps the ${limit.name} and the id taken`,
    async run(env: Environment) {
      const wish = { command: "delete", reason: "test", force: true } as const;
      const { job, next } = await endedFromOutside(env, limit.keyed, limit.lane, wish);
      env.clock.advance(leaseMs - 2);
      const [renewed] = await env.engine.renew([{ job, token: job.token, leaseMs }]);
      assert.deepEqual(renewed, { outcome: "lost", state: null });
      await staysTaken(env, limit.lane, next, async () => {
        const again = env.creation({ id: job.id });
        assert.deepEqual(await env.append(again), { outcome: "exists" });
      });
    },
  })),
  {
    name: "the word of an older token frees nothing",
    async run(env) {
      const key = env.key("k");
      const { id } = await env.create({ key });
      const old = await env.claimOne();
      await env.fail(old, env.now);
      const job = await env.claimOne();
      const next = await env.create({ key });
      await env.command(id, { command: "cancel", force: true });
      await confirm(env, job, old.token);
      await env.nothingClaimable();
      await confirm(env, job);
      assert.deepEqual(ids(await env.claim()), [next.id]);
    },
  },
  {
    name: "a word about an attempt that still runs frees nothing",
    async run(env) {
      await env.createMany(2, { key: env.key("k") });
      const job = await env.claimOne();
      await confirm(env, job);
      await env.nothingClaimable();
      await env.complete(job);
    },
  },
  {
    name: "a slot that has lapsed does not come back with a late renewal",
    async run(env) {
      const { job, next } = await forcedCancel(env);
      env.clock.advance(leaseMs);
      const second = await env.claimOne();
      assert.equal(second.id, next.id);
      await env.engine.renew([{ job, token: job.token, leaseMs }]);
      await env.complete(second);
      const third = await env.create({ key: env.key("k") });
      assert.deepEqual(ids(await env.claim()), [third.id]);
    },
  },
  {
    name: "a late renewal does not take a lapsed slot even before it is given away",
    async run(env) {
      const { job, next } = await forcedCancel(env);
      env.clock.advance(leaseMs);
      await env.engine.renew([{ job, token: job.token, leaseMs }]);
      assert.deepEqual(ids(await env.claim()), [next.id]);
    },
  },
  {
    name: "a slot that lapses late is free for a create, too",
    async run(env) {
      const key = env.key("k", { maxQueued: 0 });
      const { id } = await env.create({ key });
      await env.claimOne();
      await env.command(id, { command: "cancel", force: true });
      const refused = await env.append(env.creation({ key }));
      assert.ok(refused.outcome === "not_admitted" && refused.admission.outcome === "rejected");
      const { active, queued, limit } = refused.admission;
      assert.deepEqual([active, queued, limit], [1, 0, 1]);
      env.clock.advance(leaseMs);
      const admitted = await env.append(env.creation({ key }));
      assert.deepEqual(admitted, { outcome: "appended", policy: { outcome: "accepted" } });
      assert.equal((await env.claim()).length, 1);
    },
  },
  {
    name: "a job that is retried by hand does not run beside its own earlier attempt",
    async run(env) {
      const key = env.key("k");
      const { id } = await env.create({ key });
      const job = await env.claimOne();
      await env.command(id, { command: "cancel", force: true });
      await env.command(id, { command: "retry", runAt: env.now });
      await env.nothingClaimable();
      await confirm(env, job);
      const again = await env.claimOne();
      assert.deepEqual([again.id, again.token], [id, 2]);
    },
  },
  {
    name: "a job that was deleted while it ran keeps its slot, and its id is taken until the slot is free",
    async run(env) {
      const key = env.key("k", { maxActive: 2 });
      const lane = { typeMaxActive: 2, queueMaxActive: 2 };
      await env.create({ id: "same", key });
      await env.claimOne(lane);
      await env.command("same", { command: "delete", reason: "test", force: true });
      // A worker still runs under the old job's token, which a new job of that id would use again.
      assert.deepEqual(await env.append(env.creation({ id: "same", key })), { outcome: "exists" });
      assert.deepEqual(await env.append(env.creation({ id: "same" })), { outcome: "exists" });
      await env.create({ id: "second", key });
      assert.deepEqual(ids(await env.claim(lane)), ["second"]);
      await env.nothingClaimable(lane);
      env.clock.advance(leaseMs);
      await env.create({ id: "same", key });
      assert.deepEqual(ids(await env.claim(lane)), ["same"]);
    },
  },
  {
    name: "an outcome of the worker itself frees its slots at once",
    async run(env) {
      const caps = { typeMaxActive: 1, queueMaxActive: 1 };
      await env.createMany(3, { key: env.key("k") });
      for (let turn = 0; turn < 3; turn++) await env.complete(await env.claimOne(caps));
    },
  },
  {
    name: "a key shows who still holds an ended slot, and for how long",
    needs: ["immediateViews"],
    async run(env) {
      const { job } = await forcedCancel(env);
      const row = await env.keyRow(env.key("k"));
      assert.deepEqual(
        row.active.map(({ jobId, state, token }) => ({ jobId, state, token })),
        [{ jobId: job.id, state: "ended", token: job.token }],
      );
      assert.equal(row.queuedCount, 1);
      env.clock.advance(leaseMs - 2);
      await env.engine.renew([{ job, token: job.token, leaseMs }]);
      const renewed = await env.keyRow(env.key("k"));
      assert.deepEqual(
        renewed.active.map(({ leaseUntil }) => leaseUntil),
        [env.now + leaseMs],
      );
      env.clock.advance(leaseMs);
      const later = await env.keyRow(env.key("k"));
      assert.ok(later.active.every(({ state }) => state !== "ended"));
    },
  },
]);
