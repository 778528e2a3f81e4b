/**
 * Caps: how many jobs of a type or a queue may be active at once, over all workers, exactly.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { defaults, type Environment, ids } from "../environment.js";

/** The ways in which a worker or the keeper gives an active job's place back. */
async function giveBack(env: Environment, how: "settle" | "fail" | "release" | "lapse") {
  const [job] = await env.claim({ typeMaxActive: 2 }, { limit: 1 });
  assert.ok(job);
  const later = env.now + 1_000_000;
  switch (how) {
    case "settle":
      return env.complete(job);
    case "fail":
      return env.fail(job, later);
    case "release": {
      const wish = {
        command: "release",
        token: job.token,
        cause: "shutdown",
        runAt: later,
      } as const;
      return void (await env.settle(job, wish));
    }
    case "lapse":
      env.clock.advance(defaults.leaseMs);
      return void (await env.lapse(job.id, later));
  }
}

export const capCases = concern("caps", [
  {
    name: "a type's cap holds over claims",
    async run(env) {
      await env.createMany(5);
      const lane = { typeMaxActive: 3 };
      const first = await env.claim(lane, { limit: 2 });
      const second = await env.claim(lane, { worker: "worker-2" });
      assert.deepEqual([first.length, second.length], [2, 1]);
      await env.nothingClaimable(lane);
      const [job] = first;
      assert.ok(job);
      await env.complete(job);
      assert.equal((await env.claim(lane)).length, 1);
      await env.nothingClaimable(lane);
    },
  },
  {
    name: "a type's cap spans its versions and queues",
    async run(env) {
      await env.create();
      await env.create({ typeVersion: 2 });
      await env.create({ queue: "other" });
      const lanes = [{}, { typeVersion: 2 }, { queue: "other" }];
      const capped = lanes.map((lane) => ({ ...lane, typeMaxActive: 2 }));
      assert.equal((await env.claim(capped)).length, 2);
      assert.deepEqual(await env.claim(capped), []);
    },
  },
  {
    name: "a queue's cap spans its types",
    async run(env) {
      await env.createMany(3, { type: "a", queue: "shared" });
      await env.createMany(3, { type: "b", queue: "shared" });
      const lanes = ["a", "b"].map((type) => ({ type, queue: "shared", queueMaxActive: 4 }));
      assert.equal((await env.claim(lanes[0])).length, 3);
      assert.equal((await env.claim(lanes)).length, 1);
      assert.deepEqual(await env.claim(lanes), []);
    },
  },
  {
    name: "the tighter of two caps holds",
    async run(env) {
      await env.createMany(6, { type: "a", queue: "shared" });
      await env.createMany(6, { type: "b", queue: "shared" });
      const lanes = ["a", "b"].map((type) => ({
        type,
        queue: "shared",
        typeMaxActive: 2,
        queueMaxActive: 3,
      }));
      const claimed = await env.claim(lanes);
      assert.equal(claimed.length, 3);
      for (const type of ["a", "b"]) {
        assert.ok(claimed.filter((job) => job.type === type).length <= 2);
      }
    },
  },
  {
    name: "claims at the same time do not exceed a cap",
    async run(env) {
      await env.createMany(20);
      const lane = { typeMaxActive: 4, queueMaxActive: 5 };
      for (let round = 0; round < 5; round++) {
        const claims = Array.from({ length: 6 }, (_, index) =>
          env.claim(lane, { limit: 3, worker: `worker-${index}` }),
        );
        const running = (await Promise.all(claims)).flat();
        assert.equal(running.length, 4);
        await Promise.all(running.map((job) => env.complete(job)));
      }
    },
  },
  {
    name: "two processes do not exceed a cap",
    needs: ["shared"],
    async run(env) {
      const other = env.at(await env.open());
      await env.createMany(10);
      const lane = { typeMaxActive: 3 };
      const claims = [env, other, env, other].map((side) => side.claim(lane, { limit: 2 }));
      assert.equal((await Promise.all(claims)).flat().length, 3);
      await other.nothingClaimable(lane);
    },
  },
  ...(["settle", "fail", "release", "lapse"] as const).map((how) => ({
    name: `a place is free again after ${how}`,
    async run(env: Environment) {
      await env.createMany(4);
      await giveBack(env, how);
      assert.equal((await env.claim({ typeMaxActive: 2 })).length, 2);
      await env.nothingClaimable({ typeMaxActive: 2 });
    },
  })),
  {
    name: "jobs that were claimed without a cap count, too",
    async run(env) {
      await env.createMany(4);
      await env.claim({}, { limit: 2 });
      assert.equal((await env.claim({ typeMaxActive: 3, queueMaxActive: 3 })).length, 1);
    },
  },
  {
    name: "a full cap does not hide the jobs of other lanes",
    async run(env) {
      await env.createMany(5, { type: "a", priority: 10 });
      const other = await env.create({ type: "b" });
      await env.claim({ type: "a", typeMaxActive: 1 });
      const lanes = [{ type: "a", typeMaxActive: 1 }, { type: "b" }];
      assert.deepEqual(ids(await env.claim(lanes, { limit: 2 })), [other.id]);
    },
  },
  {
    name: "a cap that fills up during a claim does not hide the jobs of other lanes",
    async run(env) {
      const queue = "shared";
      await env.createMany(2, { type: "a", queue, priority: 5 });
      await env.createMany(2, { type: "b", queue, priority: 5 });
      await env.createMany(2, { type: "c" });
      const lanes = [
        { type: "a", queue, queueMaxActive: 1 },
        { type: "b", queue, queueMaxActive: 1 },
        { type: "c" },
      ];
      const claimed = await env.claim(lanes, { limit: 2 });
      assert.deepEqual(claimed.map(({ type }) => type).sort(), ["a", "c"]);
    },
  },
  {
    name: "the caps of services do not disturb each other",
    async run(env) {
      await env.create();
      await env.create({ service: "bank" });
      const lane = { typeMaxActive: 1, queueMaxActive: 1 };
      assert.equal((await env.claim(lane)).length, 1);
      assert.equal((await env.claim({ ...lane, service: "bank" })).length, 1);
    },
  },
  {
    name: "a raised cap lets more in, a lowered one waits",
    async run(env) {
      await env.createMany(6);
      const running = await env.claim({ typeMaxActive: 3 });
      assert.equal(running.length, 3);
      await env.nothingClaimable({ typeMaxActive: 1 });
      assert.equal((await env.claim({ typeMaxActive: 4 })).length, 1);
      for (const job of running) await env.complete(job);
      await env.nothingClaimable({ typeMaxActive: 1 });
    },
  },
]);
