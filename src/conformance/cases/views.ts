/**
 * Views of queues and keys, and the place of a job in its line.
 */
import assert from "node:assert/strict";
import { recordId } from "../../engine/record.js";
import { concern } from "../case.js";
import { defaults, ids } from "../environment.js";

export const viewCases = concern("views", [
  {
    name: "queues show what waits and what runs, and whether they are paused",
    needs: ["immediateViews"],
    async run(env) {
      await env.createMany(3);
      await env.create({ runAt: env.now + 100 });
      await env.create({ type: "a", queue: "shared" });
      await env.create({ type: "b", queue: "shared" });
      await env.create({ service: "bank" });
      await env.claim({}, { limit: 1 });
      await env.pause("shared", true);
      await env.pause("idle", false);
      const { service } = defaults;
      assert.deepEqual(await env.engine.query("queues", { service }), [
        { service, queue: "idle", paused: false, waiting: 0, active: 0 },
        { service, queue: "mail", paused: false, waiting: 3, active: 1 },
        { service, queue: "shared", paused: true, waiting: 2, active: 0 },
      ]);
      const all = await env.engine.query("queues", {});
      assert.deepEqual(
        all.map((row) => row.service),
        ["bank", service, service, service],
      );
    },
  },
  {
    name: "a key shows who holds its slots and who waits, in order",
    needs: ["immediateViews"],
    async run(env) {
      const key = env.key("k", { maxActive: 2 });
      await env.create({ id: "runs", key });
      const job = await env.claimOne();
      await env.create({ id: "ready", key });
      await env.create({ id: "low", key, priority: -1 });
      await env.create({ id: "high", key, priority: 5 });
      await env.create({ id: "later", key, priority: 9, runAt: env.now + 100 });
      const row = await env.keyRow(key);
      const { service, type } = defaults;
      assert.deepEqual(
        [row.service, row.type, row.key, row.hash, row.maxActive, row.maxQueued, row.whenFull],
        [service, type, "k", key.hash, 2, 100, "reject"],
      );
      const holders = row.active.map(({ jobId, state }) => `${jobId} ${state}`).sort();
      assert.deepEqual(holders, ["ready reserved", "runs active"]);
      const active = row.active.find(({ jobId }) => jobId === "runs");
      assert.deepEqual(
        [active?.token, active?.worker, active?.heartbeatAt, active?.leaseUntil],
        [job.token, defaults.worker, env.now, env.now + defaults.leaseMs],
      );
      assert.deepEqual(row.queued, ["high", "low", "later"]);
      assert.deepEqual([row.queuedCount, row.blocked, row.takeovers], [3, false, 0]);
    },
  },
  {
    name: "a blocked key says so",
    needs: ["immediateViews"],
    async run(env) {
      const key = env.key("k", { stalePolicy: "block" });
      const { id } = await env.create({ key });
      await env.claimOne();
      env.clock.advance(defaults.leaseMs);
      await env.lapse(id);
      assert.equal((await env.keyRow(key)).blocked, true);
      await env.command(id, { command: "releaseKey", actor: "admin:anna" });
      assert.equal((await env.keyRow(key)).blocked, false);
    },
  },
  {
    name: "keys are listed by service and type, the one used last first, in pages",
    needs: ["immediateViews"],
    async run(env) {
      for (const name of ["b", "a", "c"]) {
        await env.create({ key: env.key(name) });
        env.clock.advance(1);
      }
      await env.create({ type: "other", key: env.key("d", { type: "other" }) });
      const { service, type } = defaults;
      const page = await env.engine.query("keys", { service, type, limit: 2 });
      assert.deepEqual(
        page.entries.map(({ key }) => key),
        ["c", "a"],
      );
      assert.deepEqual([page.count, page.nextOffset], [3, 2]);
      const rest = await env.engine.query("keys", { service, type, limit: 2, offset: 2 });
      assert.deepEqual(
        rest.entries.map(({ key }) => key),
        ["b"],
      );
      assert.equal((await env.engine.query("keys", { service: "bank" })).count, 0);
      assert.equal(await env.engine.query("key", { hash: "nobody" }), null);
    },
  },
  {
    name: "a key that no job was ever decided under is not shown",
    needs: ["immediateViews"],
    async run(env) {
      const key = env.key("k");
      const blockers = [{ jobId: "nobody", onBadEnd: "unreachable" as const }];
      const { outcome } = await env.append(env.creation({ key, blockers }));
      assert.equal(outcome, "bad_blocker");
      assert.equal(await env.engine.query("key", { hash: key.hash }), null);
      assert.equal((await env.engine.query("keys", {})).count, 0);
      await env.create({ key });
      assert.equal((await env.keyRow(key)).key, key.key);
    },
  },
  {
    name: "a job knows how many come before it",
    needs: ["immediateViews", "strictPriority"],
    async run(env) {
      const jobs = await env.createMany(3);
      const urgent = await env.create({ priority: 1 });
      await env.create({ type: "other", priority: 9 });
      await env.create({ priority: 9, runAt: env.now + 100 });
      const ahead = async (id: string) => env.engine.query("ahead", { id });
      const places = await Promise.all([urgent, ...jobs].map(({ id }) => ahead(id)));
      assert.deepEqual(places, [0, 1, 2, 3]);
      const claimed = await env.claim({}, { limit: 2 });
      assert.deepEqual(ids(claimed), [urgent.id, jobs[0]?.id]);
      assert.equal(await ahead(jobs[2]?.id ?? ""), 1);
    },
  },
  {
    name: "the records of workers are found by service",
    async run(env) {
      const write = (service: string, instance: string) => ({
        id: recordId.worker(service, instance),
        expect: 0,
        body: { service, instance },
        expiresAt: env.now + 90_000,
      });
      await env.engine.swap([write("shop", "one"), write("bank", "two"), write("shop", "three")]);
      const found = async (service?: string) =>
        (await env.engine.query("records", { prefix: recordId.workers(service) })).length;
      assert.deepEqual([await found("shop"), await found("bank"), await found()], [2, 1, 3]);
      env.clock.advance(90_000);
      assert.equal(await found(), 0);
    },
  },
]);
