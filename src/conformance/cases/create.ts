/**
 * Creating and loading jobs.
 */
import assert from "node:assert/strict";
import { fold, jobHash } from "../../core/evolve.js";
import type { Json } from "../../core/json.js";
import { concern } from "../case.js";

/** Values that careless stores bend: text beyond ASCII, empty things, odd names, numbers at the edge. */
const awkward: Json = {
  text: 'ümläut 漢字 😀 \u0000 " \\ \n \u2028',
  empty: { object: {}, list: [], text: "" },
  numbers: [0, -1, 1.5, 1e21, 5e-324, Number.MAX_SAFE_INTEGER],
  "": null,
  "a.b/c~d": [true, false, null, [[[]]]],
  order: { z: 1, a: 2 },
};

export const createCases = concern("create", [
  {
    name: "a created job is what was asked for",
    async run(env) {
      const change = env.creation({
        payload: awkward,
        priority: 7,
        runAt: env.now + 5,
        deadline: env.now + 500,
        tags: ["red", "blue"],
        maxTries: 9,
        deadLetter: false,
        idempotencyKey: "once",
        parentId: "parent",
        chainId: "chain",
        agent: "agent-1",
        typeVersion: 3,
        queue: "slow",
      });
      assert.deepEqual(await env.append(change), { outcome: "appended" });
      const job = await env.load(change.job.id);
      const expected = fold([change.event]);
      assert.ok(expected);
      assert.deepEqual(job, expected);
      assert.equal(jobHash(job), jobHash(expected));
    },
  },
  {
    name: "a load follows the order of the ids, with null for what does not exist",
    async run(env) {
      const [a, b] = [await env.create(), await env.create()];
      const loaded = await env.engine.load([b.id, "nobody", a.id, b.id]);
      assert.deepEqual(
        loaded.map((entry) => entry?.job.id ?? null),
        [b.id, null, a.id, b.id],
      );
      assert.deepEqual(await env.engine.load([]), []);
    },
  },
  {
    name: "an id that is taken is answered with exists and changes nothing",
    async run(env) {
      const first = await env.create({ id: "same", payload: 1 });
      assert.deepEqual(await env.append(env.creation({ id: "same", payload: 2 })), {
        outcome: "exists",
      });
      const other = env.creation({ id: "same", type: "other", payload: 3 });
      assert.deepEqual(await env.append(other), { outcome: "exists" });
      assert.deepEqual(await env.load("same"), first);
      assert.equal((await env.history("same")).length, 1);
    },
  },
  {
    name: "of many creates with one id exactly one is stored",
    async run(env) {
      const creates = Array.from({ length: 10 }, (_, payload) =>
        env.append(env.creation({ id: "same", payload })),
      );
      const outcomes = (await Promise.all(creates)).map(({ outcome }) => outcome).sort();
      assert.deepEqual(outcomes, ["appended", ...Array(9).fill("exists")]);
    },
  },
  {
    name: "an id that one service has is taken for all others until its job is deleted",
    async run(env) {
      const first = await env.create({ id: "same", payload: 1 });
      const key = env.key("k", { maxQueued: 0 });
      const others = [
        env.creation({ id: "same", service: "bank", payload: 2 }),
        env.creation({ id: "same", service: "bank", payload: 3, runAt: env.now + 5 }),
        env.creation({ id: "same", service: "bank", payload: 4, key }),
      ];
      for (const change of others)
        assert.deepEqual(await env.append(change), { outcome: "exists" });
      assert.deepEqual(await env.load("same"), first);
      assert.equal((await env.history("same")).length, 1);
      // A create that was refused has left no place under its key.
      const next = await env.append(env.creation({ id: "next", service: "bank", key }));
      assert.equal(next.outcome, "appended");
      await env.command("same", { command: "cancel" });
      await env.command("same", { command: "delete", reason: "test" });
      const again = await env.create({ id: "same", service: "bank", payload: 5 });
      assert.deepEqual(await env.load("same"), again);
      await env.complete(await env.claimOne({ service: "bank" }));
    },
  },
  {
    name: "of creates with one id in many services exactly one is stored",
    async run(env) {
      const creates = Array.from({ length: 10 }, (_, index) =>
        env.append(env.creation({ id: "same", service: `service-${index}`, payload: index })),
      );
      const outcomes = (await Promise.all(creates)).map(({ outcome }) => outcome);
      assert.deepEqual([...outcomes].sort(), ["appended", ...Array(9).fill("exists")]);
      const { service, payload } = await env.load("same");
      assert.deepEqual([service, payload], [`service-${payload}`, outcomes.indexOf("appended")]);
    },
  },
  {
    name: "nobody outside shares what the store holds",
    async run(env) {
      const payload = { list: [1] };
      const { id } = await env.create({ payload });
      payload.list.push(2);
      const first = (await env.load(id)).payload as typeof payload;
      assert.deepEqual(first, { list: [1] });
      first.list.push(3);
      const claimed = (await env.claimOne()).payload as typeof payload;
      claimed.list.push(4);
      assert.deepEqual((await env.load(id)).payload, { list: [1] });
    },
  },
  {
    name: "a job with blockers is blocked and is not claimable until it is unblocked",
    async run(env) {
      const blocker = await env.create({ type: "other" });
      const blockers = [{ jobId: blocker.id, onBadEnd: "unreachable" }] as const;
      const { id, state } = await env.create({ blockers });
      assert.equal(state, "blocked");
      await env.nothingClaimable();
      await env.complete(await env.claimOne({ type: "other" }));
      await env.command(id, { command: "unblock" });
      assert.equal((await env.claimOne()).id, id);
    },
  },
  {
    name: "a blocked job whose blocker ended badly is unreachable",
    async run(env) {
      await env.create({ id: "bad", type: "other" });
      const blockers = [{ jobId: "bad", onBadEnd: "unreachable" }] as const;
      const { id } = await env.create({ blockers });
      const job = await env.command(id, { command: "blockerEndedBadly", blockerId: "bad" });
      assert.equal(job?.state, "unreachable");
      await env.nothingClaimable();
      const again = await env.command(id, { command: "retry", runAt: env.now });
      assert.equal(again?.state, "blocked");
      await env.nothingClaimable();
    },
  },
  {
    name: "a change to a job that does not exist is a conflict",
    async run(env) {
      const job = await env.create();
      await env.command(job.id, { command: "cancel" });
      await env.command(job.id, { command: "delete", reason: "test" });
      const change = env.change(job, { command: "cancel" });
      assert.deepEqual(await env.append(change), { outcome: "conflict" });
      assert.equal(await env.find(job.id), null);
    },
  },
]);
