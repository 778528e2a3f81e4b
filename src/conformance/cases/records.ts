/**
 * Records: compared and set, alone or together with an event.
 */
import assert from "node:assert/strict";
import { recordId } from "../../engine/record.js";
import { concern } from "../case.js";
import { tally } from "../environment.js";

export const recordCases = concern("records", [
  {
    name: "a record is written, changed and removed at the version that its writer saw",
    async run(env) {
      const id = "test/a";
      const { engine } = env;
      assert.deepEqual(await engine.records([id]), [null]);
      assert.deepEqual(await engine.swap([{ id, expect: 0, body: { n: 1 } }]), [
        { swapped: true, version: 1 },
      ]);
      assert.deepEqual(await engine.records([id]), [{ id, version: 1, body: { n: 1 } }]);
      assert.deepEqual(await engine.swap([{ id, expect: 1, body: [2, null, "x"] }]), [
        { swapped: true, version: 2 },
      ]);
      const current = { id, version: 2, body: [2, null, "x"] };
      for (const expect of [0, 1, 3]) {
        assert.deepEqual(await engine.swap([{ id, expect, body: "no" }]), [
          { swapped: false, current },
        ]);
      }
      const [removed] = await engine.swap([{ id, expect: 2, body: null }]);
      assert.equal(removed?.swapped, true);
      assert.deepEqual(await engine.records([id]), [null]);
      assert.deepEqual(await engine.swap([{ id, expect: 2, body: "no" }]), [
        { swapped: false, current: null },
      ]);
    },
  },
  {
    name: "reads follow the order of the ids",
    async run(env) {
      await env.engine.swap(["a", "b"].map((id) => ({ id, expect: 0, body: id })));
      const records = await env.engine.records(["b", "none", "a"]);
      assert.deepEqual(
        records.map((record) => record?.body ?? null),
        ["b", null, "a"],
      );
    },
  },
  {
    name: "a record whose time has run out is not there any more",
    async run(env) {
      const id = "test/lease";
      const { engine } = env;
      const write = { id, expect: 0, body: "first", expiresAt: env.now + 100 };
      await engine.swap([write]);
      env.clock.advance(99);
      assert.deepEqual(await engine.records([id]), [
        { id, version: 1, body: "first", expiresAt: write.expiresAt },
      ]);
      env.clock.advance(1);
      assert.deepEqual(await engine.records([id]), [null]);
      assert.deepEqual(await engine.query("records", { prefix: "test/" }), []);
      const [late] = await engine.swap([{ id, expect: 1, body: "late" }]);
      assert.deepEqual(late, { swapped: false, current: null });
      const [swap] = await engine.swap([{ id, expect: 0, body: "second" }]);
      assert.equal(swap?.swapped, true);
      assert.equal((await engine.records([id]))[0]?.body, "second");
    },
  },
  {
    name: "a write without an expiry takes the old one away",
    async run(env) {
      const id = "test/kept";
      await env.engine.swap([{ id, expect: 0, body: 1, expiresAt: env.now + 10 }]);
      await env.engine.swap([{ id, expect: 1, body: 2 }]);
      env.clock.advance(100);
      assert.deepEqual(await env.engine.records([id]), [{ id, version: 2, body: 2 }]);
    },
  },
  {
    name: "each swap of a batch stands alone",
    async run(env) {
      const outcomes = await env.engine.swap([
        { id: "a", expect: 0, body: 1 },
        { id: "b", expect: 5, body: 1 },
        { id: "c", expect: 0, body: 1 },
      ]);
      assert.deepEqual(
        outcomes.map(({ swapped }) => swapped),
        [true, false, true],
      );
    },
  },
  {
    name: "of swaps at the same time exactly one wins",
    async run(env) {
      const swaps = Array.from({ length: 10 }, (_, body) =>
        env.engine.swap([{ id: "leader", expect: 0, body }]),
      );
      const outcomes = (await Promise.all(swaps)).flat();
      assert.equal(outcomes.filter(({ swapped }) => swapped).length, 1);
    },
  },
  {
    name: "of swaps of two processes exactly one wins",
    needs: ["shared"],
    async run(env) {
      const other = await env.open();
      const swaps = Array.from({ length: 8 }, (_, body) =>
        (body % 2 ? env.engine : other).swap([{ id: "leader", expect: 0, body }]),
      );
      const outcomes = (await Promise.all(swaps)).flat();
      assert.equal(outcomes.filter(({ swapped }) => swapped).length, 1);
      assert.deepEqual(await other.records(["leader"]), await env.engine.records(["leader"]));
    },
  },
  {
    name: "a prefix finds its own records, in order, at most the limit, and means every character",
    async run(env) {
      const { engine } = env;
      const names = ["worker/a/2", "worker/a/1", "worker/ab/1", "worker_a", "workerXa", "w%", "wx"];
      await engine.swap(names.map((id) => ({ id, expect: 0, body: id })));
      const found = async (prefix: string, limit?: number) =>
        (await engine.query("records", { prefix, ...(limit && { limit }) })).map(({ id }) => id);
      assert.deepEqual(await found("worker/a/"), ["worker/a/1", "worker/a/2"]);
      assert.deepEqual(await found("worker/", 2), ["worker/a/1", "worker/a/2"]);
      await engine.swap([{ id: "worker/b", expect: 0, body: "b" }]);
      const all = ["worker/a/1", "worker/a/2", "worker/ab/1", "worker/b"];
      assert.deepEqual(await found("worker/"), all);
      assert.deepEqual(await found("worker_"), ["worker_a"]);
      assert.deepEqual(await found("w%"), ["w%"]);
      assert.deepEqual(await found("nothing"), []);
    },
  },
  {
    name: "records before an id come last first, at most the limit",
    async run(env) {
      const { engine } = env;
      const names = ["audit/a/2", "audit/a/1", "audit/a/3", "audit/b/1", "aud", "audits"];
      await engine.swap(names.map((id) => ({ id, expect: 0, body: id })));
      const found = async (prefix: string, before: string, limit = 10) =>
        (await engine.query("records", { prefix, before, limit })).map(({ id }) => id);
      assert.deepEqual(await found("audit/a/", "audit/a/3"), ["audit/a/2", "audit/a/1"]);
      assert.deepEqual(await found("audit/a/", "audit/a/~", 2), ["audit/a/3", "audit/a/2"]);
      assert.deepEqual(await found("audit/", "audit/~", 1), ["audit/b/1"]);
      assert.deepEqual(await found("audit/a/", "z", 1), ["audit/a/3"]);
      assert.deepEqual(await found("audit/a/", "audit/a/1"), []);
      assert.deepEqual(await found("audit/b/", "audit/a/9"), []);
    },
  },
  {
    name: "the owners of records are named once each, in order, while they have any",
    async run(env) {
      const { engine } = env;
      const owners = () => engine.query("recordOwners", { prefix: "audit/" });
      assert.deepEqual(await owners(), []);
      const names = ["audit/b/1", "audit/b-2/1", "audit/a/2", "audit/a/1", "audits/c/1", "aud/c/1"];
      await engine.swap(names.map((id) => ({ id, expect: 0, body: id })));
      await engine.swap([{ id: "audit/d/1", expect: 0, body: 1, expiresAt: env.now - 1 }]);
      assert.deepEqual(await owners(), ["a", "b", "b-2"]);
      await engine.swap([{ id: "audit/b/1", expect: 1, body: null }]);
      assert.deepEqual(await owners(), ["a", "b-2"]);
    },
  },
]);

const id = recordId.idempotency("shop", "mail", 1, "order 7");

export const idempotencyCases = concern("records with events", [
  {
    name: "a record is written together with its event",
    async run(env) {
      const body = { jobId: "job", payloadHash: "hash" };
      const write = { id, expect: 0, body, expiresAt: env.now + 1_000 };
      assert.deepEqual(await env.append(env.creation({ id: "job" }, [write])), {
        outcome: "appended",
      });
      const record = { id, version: 1, body, expiresAt: write.expiresAt };
      assert.deepEqual(await env.engine.records([id]), [record]);
    },
  },
  {
    name: "a record in the way refuses the event and is shown",
    async run(env) {
      const write = { id, expect: 0, body: { jobId: "first" } };
      await env.append(env.creation({ id: "first" }, [write]));
      const current = { id, version: 1, body: { jobId: "first" } };
      const again = env.creation({ id: "second" }, [{ ...write, body: { jobId: "second" } }]);
      assert.deepEqual(await env.append(again), { outcome: "record_conflict", current });
      assert.equal(await env.find("second"), null);
      await env.nothingClaimable({ type: "other" });
      assert.deepEqual(await env.engine.records([id]), [current]);
    },
  },
  {
    name: "all records of a change are written, or none of them",
    async run(env) {
      await env.engine.swap([{ id: "taken", expect: 0, body: 1 }]);
      const writes = [
        { id: "free", expect: 0, body: 2 },
        { id: "taken", expect: 0, body: 2 },
      ];
      const outcome = await env.append(env.creation({ id: "job" }, writes));
      assert.equal(outcome.outcome, "record_conflict");
      assert.equal(await env.find("job"), null);
      assert.deepEqual(await env.engine.records(["free"]), [null]);
    },
  },
  {
    name: "an event that is refused leaves its records alone",
    async run(env) {
      const job = await env.create();
      await env.command(job.id, { command: "cancel" });
      const late = env.change(job, { command: "complete", completedBy: null });
      const before = [{ id: "test/late", expect: 0, body: 1 }];
      const outcome = await env.append({ ...late, records: { before, after: [] } });
      assert.deepEqual(outcome, { outcome: "conflict" });
      assert.deepEqual(await env.engine.records(["test/late"]), [null]);
    },
  },
  {
    name: "records after the event are written with it, too",
    async run(env) {
      await env.engine.swap([{ id: "test/held", expect: 0, body: 1 }]);
      const job = await env.create();
      const records = {
        before: [{ id: "test/new", expect: 0, body: 1 }],
        after: [{ id: "test/held", expect: 1, body: null }],
      };
      const change = { ...env.change(job, { command: "cancel" }), records };
      assert.deepEqual(await env.append(change), { outcome: "appended" });
      const [held, written] = await env.engine.records(["test/held", "test/new"]);
      assert.deepEqual([held, written?.version], [null, 1]);
    },
  },
  {
    name: "a record after the event that has moved on refuses it",
    async run(env) {
      await env.engine.swap([{ id: "test/moved", expect: 0, body: 1 }]);
      await env.engine.swap([{ id: "test/moved", expect: 1, body: 2 }]);
      const current = { id: "test/moved", version: 2, body: 2 };
      const after = [{ id: "test/moved", expect: 1, body: 3 }];
      const change = { ...env.creation({ id: "job" }), records: { before: [], after } };
      assert.deepEqual(await env.append(change), { outcome: "record_conflict", current });
      assert.equal(await env.find("job"), null);
      assert.deepEqual(await env.engine.records(["test/moved"]), [current]);
    },
  },
  {
    name: "of creates of one job that move a record on exactly one is stored, and moves it once",
    needs: ["shared"],
    async run(env) {
      const other = env.at(await env.open());
      await env.engine.swap([{ id: "test/schedule", expect: 0, body: 0 }]);
      const after = [{ id: "test/schedule", expect: 1, body: 1 }];
      const creates = Array.from({ length: 6 }, (_, index) => {
        const change = env.creation({ id: "instant" });
        return (index % 2 ? env : other).append({ ...change, records: { before: [], after } });
      });
      assert.equal(tally(await Promise.all(creates)).appended, 1);
      assert.equal((await env.engine.records(["test/schedule"]))[0]?.version, 2);
    },
  },
  {
    name: "of creates under one idempotency key exactly one is stored",
    async run(env) {
      const creates = Array.from({ length: 10 }, (_, index) => {
        const write = { id, expect: 0, body: { jobId: `job-${index}` } };
        return env.append(env.creation({ id: `job-${index}` }, [write]));
      });
      assert.deepEqual(tally(await Promise.all(creates)), { appended: 1, record_conflict: 9 });
      assert.equal((await env.claim()).length, 1);
    },
  },
  {
    name: "in one batch, too, exactly one is stored under an idempotency key",
    async run(env) {
      const changes = ["a", "b", "c"].map((jobId) =>
        env.creation({ id: jobId }, [{ id, expect: 0, body: { jobId } }]),
      );
      assert.deepEqual(
        (await env.engine.append(changes)).map(({ outcome }) => outcome),
        ["appended", "record_conflict", "record_conflict"],
      );
    },
  },
  {
    name: "an idempotency window that has run out lets the next job in",
    async run(env) {
      const write = (jobId: string) => ({
        id,
        expect: 0,
        body: { jobId },
        expiresAt: env.now + 100,
      });
      await env.append(env.creation({ id: "first" }, [write("first")]));
      env.clock.advance(100);
      const outcome = await env.append(env.creation({ id: "second" }, [write("second")]));
      assert.deepEqual(outcome, { outcome: "appended" });
    },
  },
]);
