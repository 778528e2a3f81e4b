/**
 * Batches: an outcome for each change, in order, and a refused one harms no neighbour.
 */
import assert from "node:assert/strict";
import type { JobEvent } from "../../core/event.js";
import { batchMax } from "../../engine/engine.js";
import { concern } from "../case.js";
import { ids, tally } from "../environment.js";

export const batchCases = concern("batches", [
  {
    name: "a batch of creates, changes and refusals has an outcome for each, in order",
    async run(env) {
      const [a, b, c] = await env.createMany(3);
      assert.ok(a && b && c);
      const taken = await env.create({ type: "other" });
      await env.command(b.id, { command: "cancel" });
      const outcomes = await env.engine.append([
        env.creation({ id: "new" }),
        env.change(a, { command: "cancel" }),
        env.change(b, { command: "cancel" }),
        env.creation({ id: taken.id }),
        env.creation({ id: "other" }, [{ id: "test/r", expect: 7, body: 1 }]),
        env.change(c, { command: "complete", completedBy: null }),
      ]);
      assert.deepEqual(
        outcomes.map(({ outcome }) => outcome),
        ["appended", "appended", "conflict", "exists", "record_conflict", "appended"],
      );
      assert.deepEqual(ids(await env.claim()), ["new"]);
      assert.equal((await env.load(c.id)).state, "completed");
    },
  },
  {
    name: "a batch of outcomes settles its neighbours when one is refused",
    async run(env) {
      await env.createMany(4);
      const jobs = await env.claim();
      const [first] = jobs;
      assert.ok(first);
      await env.command(first.id, { command: "cancel", force: true });
      const changes = jobs.map((job) =>
        env.change(job, { command: "complete", token: 1, completedBy: null }, 1),
      );
      assert.deepEqual(
        (await env.engine.settle(changes)).map(({ outcome }) => outcome),
        ["conflict", "appended", "appended", "appended"],
      );
    },
  },
  {
    name: "an empty batch is answered with nothing",
    async run(env) {
      assert.deepEqual(await env.engine.append([]), []);
      assert.deepEqual(await env.engine.settle([]), []);
      assert.deepEqual(await env.engine.renew([]), []);
      assert.deepEqual(await env.engine.swap([]), []);
      assert.deepEqual(await env.engine.records([]), []);
    },
  },
  {
    name: "the largest batch is stored, claimed and settled",
    async run(env) {
      const creates = Array.from({ length: batchMax }, () => env.creation());
      assert.deepEqual(tally(await env.engine.append(creates)), { appended: batchMax });
      const jobs = await env.claim({ free: batchMax }, { limit: batchMax });
      assert.equal(new Set(ids(jobs)).size, batchMax);
      const changes = jobs.map((job) =>
        env.change(job, { command: "complete", token: 1, completedBy: null }, 1),
      );
      assert.deepEqual(tally(await env.engine.settle(changes)), { appended: batchMax });
    },
  },
  {
    name: "calls at the same time do not mix their answers",
    async run(env) {
      const jobs = await env.createMany(20);
      const loads = jobs.map(({ id }) => env.load(id));
      const creates = jobs.map(({ id }) => env.append(env.creation({ id })));
      const cancels = jobs.map((job) => env.append(env.change(job, { command: "cancel" })));
      const [loaded, created, cancelled] = await Promise.all([
        Promise.all(loads),
        Promise.all(creates),
        Promise.all(cancels),
      ]);
      assert.deepEqual(ids(loaded), ids(jobs));
      assert.deepEqual(tally(created), { exists: 20 });
      assert.deepEqual(tally(cancelled), { appended: 20 });
    },
  },
  {
    name: "a change that names another job's type or id is refused",
    async run(env) {
      const [a, b] = await env.createMany(2);
      assert.ok(a && b);
      const change = env.change(a, { command: "cancel" });
      const wrong = [
        { ...change, job: { ...change.job, id: b.id } },
        { ...change, event: { ...change.event, jobId: b.id } as JobEvent },
      ];
      for (const each of wrong) {
        assert.deepEqual(await env.append(each), { outcome: "conflict" });
      }
      assert.deepEqual([await env.load(a.id), await env.load(b.id)], [a, b]);
    },
  },
]);
