/**
 * The feed: every event, once, in order, from any cursor on, and live.
 */
import assert from "node:assert/strict";
import type { FeedItem } from "../../engine/engine.js";
import { InvalidCursor } from "../../engine/errors.js";
import { concern } from "../case.js";
import { defaults, type Environment } from "../environment.js";

/** Reads a number of items after a cursor. */
async function take(env: Environment, count: number, cursor: string | null = null) {
  const items: FeedItem[] = [];
  const stop = new AbortController();
  for await (const item of env.engine.tail(cursor, stop.signal)) {
    items.push(item);
    if (items.length === count) stop.abort();
  }
  return items;
}

/** Reads what is stored after a cursor. */
async function stored(env: Environment, cursor: string | null): Promise<readonly FeedItem[]> {
  const items: FeedItem[] = [];
  for await (const item of env.engine.tail(cursor, new AbortController().signal, "stored"))
    items.push(item);
  return items;
}

function names(items: readonly FeedItem[]): readonly string[] {
  return items.map(({ event }) => `${event.jobId} ${event.name}`);
}

/** The names of the events of each job, in the order in which they came. */
function byJob(items: readonly FeedItem[]): Readonly<Record<string, readonly string[]>> {
  const jobs: Record<string, readonly string[]> = {};
  for (const { event } of items) jobs[event.jobId] = [...(jobs[event.jobId] ?? []), event.name];
  return jobs;
}

export const feedCases = concern("feed", [
  {
    name: "the feed has every event in the order in which it was stored",
    async run(env) {
      await env.create({ id: "a" });
      await env.create({ id: "b" });
      const job = await env.claimOne();
      await env.engine.note([env.event(job, { command: "heartbeat", token: 1 })]);
      await env.complete(job);
      await env.command("b", { command: "cancel" });
      const items = await take(env, 6);
      assert.deepEqual(names(items), [
        "a created",
        "b created",
        "a started",
        "a heartbeat",
        "a completed",
        "b cancelled",
      ]);
      const own = items.map(({ event }) => event).filter(({ jobId }) => jobId === "a");
      assert.deepEqual(own, await env.history("a"));
    },
  },
  {
    name: "a reader goes on after its cursor without a gap or a repetition",
    async run(env) {
      await env.createMany(9);
      const all = await take(env, 9);
      for (const [index, { cursor }] of all.entries()) {
        if (index === all.length - 1) break;
        const rest = await take(env, 9 - index - 1, cursor);
        assert.deepEqual(names(rest), names(all.slice(index + 1)));
      }
      assert.equal(new Set(all.map(({ cursor }) => cursor)).size, 9);
    },
  },
  {
    name: "a reader at the head sees what comes next",
    async run(env) {
      await env.createMany(3);
      const head = await env.engine.head();
      const reading = take(env, 2, head);
      await env.create({ id: "new" });
      await env.command("new", { command: "cancel" });
      assert.deepEqual(names(await reading), ["new created", "new cancelled"]);
    },
  },
  {
    name: "a reader of what is stored ends with it, from any cursor",
    async run(env) {
      assert.deepEqual(await stored(env, null), []);
      await env.createMany(5);
      const all = await stored(env, null);
      assert.equal(all.length, 5);
      const job = await env.claimOne();
      // A ticket may be the newest of all, and is no event of the feed.
      await env.complete(job);
      const since = await stored(env, all[4]?.cursor ?? null);
      assert.deepEqual(names(since), [`${job.id} started`, `${job.id} completed`]);
      for (const [index, { cursor }] of all.entries())
        assert.deepEqual(
          names(await stored(env, cursor)),
          names([...all.slice(index + 1), ...since]),
        );
      assert.deepEqual(await stored(env, await env.engine.head()), []);
    },
  },
  {
    name: "a text that is no cursor is refused",
    async run(env) {
      await env.create();
      for (const cursor of ["x", "-1", "1.5", "5:3:", "1:9:7,2", "//1", "99999999999999999999"])
        await assert.rejects(stored(env, cursor), InvalidCursor);
    },
  },
  {
    name: "a reader that waits on an empty store sees the first event",
    async run(env) {
      const reading = take(env, 1);
      await env.create({ id: "first" });
      assert.deepEqual(names(await reading), ["first created"]);
    },
  },
  {
    name: "a reader sees what another process stores",
    needs: ["shared"],
    async run(env) {
      const other = env.at(await env.open());
      const reading = take(env, 3);
      await other.create({ id: "theirs" });
      await env.create({ id: "ours" });
      await other.command("theirs", { command: "cancel" });
      const seen = await env.whileTimePasses(reading);
      assert.deepEqual([...names(seen)].sort(), [
        "ours created",
        "theirs cancelled",
        "theirs created",
      ]);
    },
  },
  {
    name: "readers at the same time see the same",
    async run(env) {
      const readings = [take(env, 20), take(env, 20), take(env, 20)];
      await Promise.all(Array.from({ length: 10 }, () => env.append(env.creation())));
      await env.claim();
      const [first, ...others] = await Promise.all(readings);
      assert.equal(first?.length, 20);
      // Of events that were stored at the same moment, readers agree on the order within a job.
      for (const other of others) assert.deepEqual(byJob(other), byJob(first));
    },
  },
  {
    name: "an aborted reader ends, at once or while it waits",
    async run(env) {
      await env.create();
      const aborted = AbortSignal.abort();
      for await (const item of env.engine.tail(null, aborted)) assert.fail(item.cursor);
      const stop = new AbortController();
      const seen: FeedItem[] = [];
      const reading = (async () => {
        for await (const item of env.engine.tail(null, stop.signal)) {
          seen.push(item);
          queueMicrotask(() => stop.abort());
        }
      })();
      await reading;
      assert.equal(seen.length, 1);
    },
  },
  {
    name: "each job's events are in order, however many write at once",
    async run(env) {
      const jobs = await env.createMany(10);
      const running = await env.claim();
      await Promise.all(running.map((job) => env.complete(job)));
      const items = await take(env, 30);
      for (const { id } of jobs) {
        const versions = items
          .filter(({ event }) => event.jobId === id)
          .map(({ event }) => event.version);
        assert.deepEqual(versions, [1, 2, 3]);
      }
    },
  },
  {
    name: "a create that was refused leaves nothing in the feed",
    async run(env) {
      const key = env.key("k", { maxQueued: 0 });
      await env.create({ id: "a", key });
      await env.append(env.creation({ id: "b", key }));
      await env.append(env.creation({ id: "a" }));
      await env.create({ id: "c" });
      assert.deepEqual(names(await take(env, 2)), ["a created", "c created"]);
    },
  },
  {
    name: "a replaced job is skipped before the new one is created",
    async run(env) {
      const key = env.key("k", { maxQueued: 0, whenFull: "replace-oldest" });
      await env.create({ id: "old", key });
      await env.create({ id: "new", key });
      const feed = names(await take(env, 3));
      assert.deepEqual(feed, ["old created", "old skipped", "new created"]);
    },
  },
]);

export const deleteCases = concern("delete", [
  {
    name: "a deleted job is gone with its log, and the feed says so until it is pruned",
    async run(env) {
      const { id } = await env.create({ id: "gone" });
      await env.command(id, { command: "cancel" });
      const before = await env.engine.head();
      await env.command(id, { command: "delete", reason: "retention" });
      assert.deepEqual(await env.engine.load([id]), [null]);
      const [deleted] = await take(env, 1);
      assert.deepEqual(names(deleted ? [deleted] : []), ["gone deleted"]);
      assert.deepEqual(names(await take(env, 1, before)), ["gone deleted"]);
      assert.ok(deleted?.event.name === "deleted");
      assert.deepEqual(
        [deleted.event.reason, deleted.event.service, deleted.event.type],
        ["retention", defaults.service, defaults.type],
      );
      assert.equal(await env.engine.prune(env.now), 0);
      await env.create({ id: "other" });
      env.clock.advance(1);
      assert.equal(await env.engine.prune(env.now), 1);
      assert.equal(await env.engine.prune(env.now), 0);
      assert.deepEqual(names(await take(env, 1)), ["other created"]);
    },
  },
  {
    name: "a prune forgets nothing but old deletions",
    async run(env) {
      const { id } = await env.create();
      await env.command(id, { command: "cancel" });
      await env.command(id, { command: "delete", reason: "test" });
      const kept = await env.create();
      env.clock.advance(1_000);
      assert.equal(await env.engine.prune(env.now), 1);
      assert.deepEqual(await env.load(kept.id), kept);
      assert.deepEqual(names(await take(env, 1)), [`${kept.id} created`]);
    },
  },
  {
    name: "the head does not fall when the newest event is pruned",
    async run(env) {
      const { id } = await env.create();
      await env.command(id, { command: "delete", reason: "test", force: true });
      const [before, [last]] = [await env.engine.head(), (await stored(env, null)).slice(-1)];
      env.clock.advance(1_000);
      await env.engine.prune(env.now);
      const after = await env.engine.head();
      // Snapshots are no numbers, and do not compare.
      assert.ok(!(Number(after) < Number(before)), `${after} comes before ${before}`);
      assert.deepEqual(await stored(env, last?.cursor ?? null), []);
    },
  },
  {
    name: "a deleted job is in no list and no count",
    needs: ["immediateViews"],
    async run(env) {
      const { id } = await env.create({ tags: ["red"] });
      await env.command(id, { command: "cancel" });
      await env.command(id, { command: "delete", reason: "test" });
      assert.equal((await env.engine.query("jobs", {})).count, 0);
      assert.equal((await env.engine.query("jobs", { filter: { tag: "red" } })).count, 0);
      assert.deepEqual(await env.engine.query("counts", {}), []);
      assert.equal(await env.engine.query("job", { id }), null);
    },
  },
  {
    name: "a delete is refused when the job has moved on",
    async run(env) {
      const { id } = await env.create();
      const cancelled = await env.command(id, { command: "cancel" });
      assert.ok(cancelled);
      const change = env.change(cancelled, { command: "delete", reason: "test" });
      await env.command(id, { command: "retry", runAt: env.now });
      assert.deepEqual(await env.append(change), { outcome: "conflict" });
      assert.equal((await env.load(id)).state, "pending");
    },
  },
  {
    name: "a deleted job that waited is not claimable, and its key's slot passes on",
    async run(env) {
      const key = env.key("k");
      const [a, b] = await env.createMany(2, { key });
      assert.ok(a && b);
      await env.command(a.id, { command: "delete", reason: "test", force: true });
      const [claimed, ...others] = await env.claim();
      assert.equal(claimed?.id, b.id);
      assert.deepEqual(others, []);
    },
  },
  {
    name: "the id of a deleted job can be used again",
    async run(env) {
      await env.create({ id: "again", payload: 1 });
      await env.command("again", { command: "delete", reason: "test", force: true });
      const job = await env.create({ id: "again", payload: 2 });
      assert.deepEqual([job.version, job.payload], [1, 2]);
      assert.deepEqual(await env.historyNames("again"), ["created"]);
      assert.equal((await env.claimOne()).id, "again");
    },
  },
]);
