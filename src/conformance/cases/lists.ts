/**
 * Lists and counts of jobs: filters, pages, rows that equal the fold.
 */
import assert from "node:assert/strict";
import type { JobState } from "../../core/job.js";
import type { JobFilter, JobsAsk } from "../../engine/query.js";
import { concern } from "../case.js";
import { defaults, type Environment, ids } from "../environment.js";
import { rowOfFold } from "../row-of-fold.js";

async function listed(env: Environment, ask: JobsAsk = {}): Promise<readonly string[]> {
  return ids((await env.engine.query("jobs", ask)).entries);
}

async function counted(env: Environment, filter?: JobFilter): Promise<Record<string, number>> {
  const counts = await env.engine.query("counts", filter ? { filter } : {});
  const sums: Record<string, number> = {};
  for (const { type, state, count } of counts) sums[`${type} ${state}`] = count;
  return sums;
}

export const listCases = concern("lists", [
  {
    name: "jobs are listed newest first, by creation and not by id",
    needs: ["immediateViews"],
    async run(env) {
      for (const id of ["b", "c", "a"]) await env.create({ id });
      assert.deepEqual(await listed(env), ["a", "c", "b"]);
      await env.claim({}, { limit: 1 });
      assert.deepEqual(await listed(env), ["a", "c", "b"]);
    },
  },
  {
    name: "ended jobs and others share the pages of one list",
    needs: ["immediateViews"],
    async run(env) {
      for (const id of ["a", "b", "c", "d", "e"]) await env.create({ id });
      for (const id of ["b", "d"]) await env.command(id, { command: "cancel" });
      const filter = { state: ["pending", "cancelled", "active"] } as const;
      const page = async (ask: JobsAsk) => env.engine.query("jobs", { filter, limit: 2, ...ask });
      const pages: (readonly string[])[] = [];
      for (const offset of [0, 2, 4]) {
        const { entries, count, nextOffset } = await page({ offset });
        assert.deepEqual([count, nextOffset], [5, offset < 4 ? offset + 2 : undefined]);
        pages.push(ids(entries));
      }
      assert.deepEqual(pages, [["e", "d"], ["c", "b"], ["a"]]);
      const { nextCursor } = await page({});
      assert.ok(nextCursor !== undefined);
      assert.deepEqual(ids((await page({ cursor: nextCursor })).entries), ["c", "b"]);
    },
  },
  {
    name: "every part of a filter narrows the list",
    needs: ["immediateViews"],
    async run(env) {
      const start = env.now;
      await env.create({ id: "plain" });
      env.clock.advance(10);
      await env.create({ id: "tagged", tags: ["red", "blue"], type: "other", queue: "slow" });
      await env.create({ id: "keyed", key: env.key("customer/7"), parentId: "mother" });
      env.clock.advance(10);
      await env.create({ id: "chained", chainId: "chain-1", service: "bank" });
      await env.command("plain", { command: "cancel" });
      const filters: readonly [JobFilter, readonly string[]][] = [
        [{}, ["chained", "keyed", "tagged", "plain"]],
        [{ service: "bank" }, ["chained"]],
        [{ type: "other" }, ["tagged"]],
        [{ queue: "slow" }, ["tagged"]],
        [{ state: ["cancelled"] }, ["plain"]],
        [{ state: ["cancelled", "pending"], service: "shop" }, ["keyed", "tagged", "plain"]],
        [{ state: [] }, []],
        [{ tag: "red" }, ["tagged"]],
        [{ tag: "re" }, []],
        [{ key: "customer/7" }, ["keyed"]],
        [{ since: start + 10 }, ["chained", "keyed", "tagged"]],
        [{ until: start + 10 }, ["plain"]],
        [{ since: start + 10, until: start + 20 }, ["keyed", "tagged"]],
        [{ text: "aine" }, ["chained"]],
        [{ text: "e" }, ["chained", "keyed", "tagged"]],
        [{ text: "%" }, []],
        [{ text: "k_yed" }, []],
        [{ parentId: "mother" }, ["keyed"]],
        [{ chainId: "chain-1" }, ["chained"]],
        [{ tag: "red", type: "mail" }, []],
        [{ service: "nobody" }, []],
      ];
      for (const [filter, expected] of filters) {
        const page = await env.engine.query("jobs", { filter });
        const name = JSON.stringify(filter);
        assert.deepEqual(ids(page.entries), expected, name);
        assert.equal(page.count, expected.length, name);
      }
    },
  },
  {
    name: "pages by offset cover everything once",
    needs: ["immediateViews"],
    async run(env) {
      const created = [...ids(await env.createMany(25))].reverse();
      const first = await env.engine.query("jobs", {});
      assert.deepEqual([first.limit, first.offset, first.count, first.nextOffset], [10, 0, 25, 10]);
      assert.deepEqual(await listed(env, { limit: 10, offset: 10 }), created.slice(10, 20));
      const last = await env.engine.query("jobs", { limit: 10, offset: 20 });
      assert.deepEqual(ids(last.entries), created.slice(20));
      assert.deepEqual([last.nextOffset, last.nextCursor], [undefined, undefined]);
      const beyond = await env.engine.query("jobs", { limit: 10, offset: 99 });
      assert.deepEqual([beyond.entries, beyond.count, beyond.nextOffset], [[], 25, undefined]);
      const exact = await env.engine.query("jobs", { limit: 25 });
      assert.deepEqual([exact.entries.length, exact.nextOffset], [25, undefined]);
    },
  },
  {
    name: "pages by cursor do not shift while jobs come",
    needs: ["immediateViews"],
    async run(env) {
      const created = [...ids(await env.createMany(7))].reverse();
      const seen: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await env.engine.query("jobs", { limit: 3, ...(cursor && { cursor }) });
        seen.push(...ids(page.entries));
        cursor = page.nextCursor;
        await env.createMany(2);
      } while (cursor !== undefined && seen.length < 20);
      assert.deepEqual(seen, created);
    },
  },
  {
    name: "a cursor goes with a filter",
    needs: ["immediateViews"],
    async run(env) {
      for (let index = 0; index < 6; index++) {
        await env.create({ id: `job-${index}`, tags: index % 2 ? ["odd"] : ["even"] });
      }
      const filter = { tag: "odd" };
      const first = await env.engine.query("jobs", { filter, limit: 2 });
      assert.deepEqual(ids(first.entries), ["job-5", "job-3"]);
      assert.ok(first.nextCursor);
      const second = await env.engine.query("jobs", { filter, limit: 2, cursor: first.nextCursor });
      assert.deepEqual(ids(second.entries), ["job-1"]);
      assert.equal(second.nextCursor, undefined);
    },
  },
  {
    name: "a row tells what the fold tells, at every step of a job's life",
    needs: ["immediateViews"],
    async run(env) {
      const { id } = await env.create({
        key: env.key("k"),
        tags: ["a", "b"],
        deadline: env.now + 1_000_000,
        priority: 4,
        parentId: "p",
        chainId: "c",
        agent: "g",
      });
      const check = async () => {
        const { heartbeatAt, leaseUntil, ...row } = await env.row(id);
        assert.deepEqual(row, rowOfFold(await env.load(id)));
        env.clock.advance(1);
      };
      await check();
      await env.fail(await env.claimOne(), env.now + 5);
      await check();
      env.clock.advance(5);
      const job = await env.claimOne();
      await check();
      await env.engine.note([
        env.event(job, { command: "progress", token: job.token, progress: { current: 1 } }),
      ]);
      await check();
      await env.command(id, { command: "cancel", reason: "enough" });
      await check();
      await env.command(id, { command: "cancel", force: true });
      await check();
      await env.command(id, { command: "retry", runAt: env.now + 5 });
      await check();
      await env.command(id, { command: "cancel" });
      await check();
      assert.equal(await env.engine.query("job", { id: "nobody" }), null);
    },
  },
  {
    name: "a row shows worker, heartbeat and lease while the job is active",
    needs: ["immediateViews"],
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      const start = env.now;
      const { leaseMs } = defaults;
      const lease = async () => {
        const { worker, heartbeatAt, leaseUntil } = await env.row(job.id);
        return [worker, heartbeatAt, leaseUntil];
      };
      assert.deepEqual(await lease(), [defaults.worker, start, start + leaseMs]);
      env.clock.advance(100);
      await env.engine.renew([{ job, token: job.token, leaseMs }]);
      assert.deepEqual(await lease(), [defaults.worker, start + 100, start + 100 + leaseMs]);
      await env.complete(job);
      assert.deepEqual(await lease(), [undefined, undefined, undefined]);
    },
  },
  {
    name: "a row says why a job failed, was skipped, was cancelled or waits",
    needs: ["immediateViews"],
    async run(env) {
      const detail = async (id: string) => (await env.row(id)).detail;
      await env.create({ id: "retries" });
      await env.fail(await env.claimOne(), env.now + 100);
      assert.equal(await detail("retries"), "no luck");
      await env.create({ id: "dies", maxTries: 1 });
      await env.fail(await env.claimOne(), env.now);
      assert.equal(await detail("dies"), "no luck");
      await env.create({ id: "skipped" });
      await env.command("skipped", { command: "skip", reason: "not needed" });
      assert.equal(await detail("skipped"), "not needed");
      await env.create({ id: "cancelled" });
      await env.command("cancelled", { command: "cancel", reason: "changed my mind" });
      assert.equal(await detail("cancelled"), "changed my mind");
      await env.create({ id: "released" });
      const job = await env.claimOne();
      const release = {
        command: "release",
        token: 1,
        cause: "snooze",
        runAt: env.now + 9,
      } as const;
      await env.settle(job, { ...release, reason: "too early" });
      assert.equal(await detail("released"), "too early");
      await env.create({ id: "fine" });
      assert.equal(await detail("fine"), undefined);
    },
  },
  {
    name: "counts follow every change of state",
    needs: ["immediateViews"],
    async run(env) {
      await env.createMany(3);
      await env.create({ type: "other" });
      assert.deepEqual(await counted(env), { "mail pending": 3, "other pending": 1 });
      const job = await env.claimOne();
      assert.deepEqual(await counted(env, { type: "mail" }), {
        "mail pending": 2,
        "mail active": 1,
      });
      await env.fail(job, env.now + 10);
      const [second] = await env.claim({}, { limit: 1 });
      assert.ok(second);
      await env.complete(second);
      assert.deepEqual(await counted(env, { type: "mail" }), {
        "mail pending": 1,
        "mail retry": 1,
        "mail completed": 1,
      });
      const state: readonly JobState[] = ["completed", "dead"];
      assert.deepEqual(await counted(env, { state }), { "mail completed": 1 });
      await env.command(second.id, { command: "delete", reason: "test" });
      assert.deepEqual(await counted(env, { state }), {});
    },
  },
  {
    name: "counts take every part of a filter",
    needs: ["immediateViews"],
    async run(env) {
      await env.create({ id: "plain" });
      env.clock.advance(10);
      await env.create({ id: "tagged", tags: ["red"] });
      await env.create({ id: "keyed", key: env.key("k") });
      const filters: readonly JobFilter[] = [
        { tag: "red" },
        { key: "k" },
        { text: "plain" },
        { until: env.now },
      ];
      for (const filter of filters) {
        assert.deepEqual(await counted(env, filter), { "mail pending": 1 }, JSON.stringify(filter));
      }
      assert.deepEqual(await counted(env, { service: "bank" }), {});
    },
  },
]);
