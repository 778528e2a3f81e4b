/**
 * The order of claims: priority descending, then run time, then id; over lanes and within their places.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { ids } from "../environment.js";

export const claimOrderCases = concern("claim order", [
  {
    name: "a higher priority goes first",
    needs: ["strictPriority"],
    async run(env) {
      const low = await env.create({ priority: -5 });
      const middle = await env.create({ priority: 0 });
      const high = await env.create({ priority: 10 });
      assert.deepEqual(ids(await env.claim()), [high.id, middle.id, low.id]);
    },
  },
  {
    name: "what is above the usual priority goes first, and what is below it last, one at a time",
    async run(env) {
      // A worker that has found nothing may look otherwise than one that has just found something.
      for (const isIdle of [false, true]) {
        if (isIdle) await env.nothingClaimable();
        const low = await env.create({ priority: -1 });
        const normal = await env.create({ priority: 0 });
        const high = await env.create({ priority: 1 });
        const order: string[] = [];
        for (let turn = 0; turn < 3; turn++) order.push((await env.claimOne()).id);
        assert.deepEqual(order, [high.id, normal.id, low.id]);
      }
    },
  },
  {
    name: "what is above the usual priority goes first, and what is below it last, in one claim",
    async run(env) {
      for (const isIdle of [false, true]) {
        if (isIdle) await env.nothingClaimable();
        const low = await env.create({ priority: -1 });
        const normal = await env.create({ priority: 0 });
        const high = await env.create({ priority: 1 });
        assert.deepEqual(ids(await env.claim()), [high.id, normal.id, low.id]);
      }
    },
  },
  {
    name: "at the same priority the earlier run time goes first, then the lower id",
    needs: ["strictPriority"],
    async run(env) {
      const { now } = env;
      await env.create({ id: "d", runAt: now });
      await env.create({ id: "b", runAt: now });
      await env.create({ id: "c", runAt: now - 10 });
      await env.create({ id: "a", runAt: now });
      assert.deepEqual(ids(await env.claim()), ["c", "a", "b", "d"]);
    },
  },
  {
    name: "ids are compared by code unit",
    needs: ["strictPriority"],
    async run(env) {
      for (const id of ["b", "a", "B", "A", "a-1", "a_1", "10", "9"]) await env.create({ id });
      assert.deepEqual(ids(await env.claim()), ["10", "9", "A", "B", "a", "a-1", "a_1", "b"]);
    },
  },
  {
    name: "the order holds over several claims",
    needs: ["strictPriority"],
    async run(env) {
      for (const priority of [3, 1, 5, 2, 4]) await env.create({ id: `p${priority}`, priority });
      const order: string[] = [];
      for (let turn = 0; turn < 5; turn++) order.push((await env.claimOne()).id);
      assert.deepEqual(order, ["p5", "p4", "p3", "p2", "p1"]);
    },
  },
  {
    name: "the order holds over all lanes of a claim",
    needs: ["strictPriority"],
    async run(env) {
      await env.create({ id: "b1", type: "b", priority: 1 });
      await env.create({ id: "a2", type: "a", priority: 2 });
      await env.create({ id: "b3", type: "b", priority: 3 });
      await env.create({ id: "a0", type: "a", priority: 0 });
      const lanes = [{ type: "a" }, { type: "b" }];
      assert.deepEqual(ids(await env.claim(lanes, { limit: 3 })), ["b3", "a2", "b1"]);
      assert.deepEqual(ids(await env.claim(lanes, { limit: 3 })), ["a0"]);
    },
  },
  {
    name: "a claim takes no more than the places of a lane and the limit over all",
    async run(env) {
      await env.createMany(5, { type: "a" });
      await env.createMany(5, { type: "b" });
      const first = await env.claim([
        { type: "a", free: 2 },
        { type: "b", free: 100 },
      ]);
      assert.equal(first.filter(({ type }) => type === "a").length, 2);
      assert.equal(first.filter(({ type }) => type === "b").length, 5);
      assert.equal((await env.claim({ type: "a" }, { limit: 2 })).length, 2);
      assert.deepEqual(await env.claim({ type: "a" }, { limit: 0 }), []);
      assert.deepEqual(await env.claim({ type: "a", free: 0 }), []);
      assert.deepEqual(await env.claim([]), []);
      assert.equal((await env.claim({ type: "a" })).length, 1);
    },
  },
  {
    name: "a lane without a free place does not stand in the way of another",
    async run(env) {
      await env.createMany(3, { type: "a", priority: 10 });
      const other = await env.create({ type: "b" });
      const claimed = await env.claim([{ type: "a", free: 0 }, { type: "b" }], { limit: 2 });
      assert.deepEqual(ids(claimed), [other.id]);
    },
  },
  {
    name: "only the lanes that are asked for are claimed from",
    async run(env) {
      await env.create({ type: "other" });
      await env.create({ typeVersion: 2 });
      await env.create({ queue: "elsewhere" });
      await env.create({ service: "bank" });
      await env.nothingClaimable();
      const job = await env.create();
      assert.deepEqual(ids(await env.claim()), [job.id]);
      assert.equal((await env.claim({ typeVersion: 2 })).length, 1);
      assert.equal((await env.claim({ queue: "elsewhere" })).length, 1);
      assert.equal((await env.claim({ service: "bank" })).length, 1);
    },
  },
  {
    name: "a job that is tried again lines up by its new run time",
    needs: ["strictPriority"],
    async run(env) {
      await env.create({ id: "again", runAt: env.now - 10 });
      await env.fail(await env.claimOne(), env.now);
      await env.create({ id: "earlier", runAt: env.now - 5 });
      await env.create({ id: "later", runAt: env.now });
      assert.deepEqual(ids(await env.claim()), ["earlier", "again", "later"]);
    },
  },
]);
