// Looking at a store: lists and pages, counts, one job, keys, workers, queues and the feed.
import { connect, defineService, InvalidOption } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { openService, type Store, stores } from "../support/stores.js";
import { shop } from "./shop.js";

async function filledShop(store: Store) {
  const clock = new FakeClock();
  const service = await openService(store, shop, { clock });
  const ids: string[] = [];
  for (let n = 0; n < 25; n++) {
    const tags = n % 5 === 0 ? ["fifth"] : [];
    const ref = await service.jobs.greet
      .create({ name: `n${n}` }, { id: `job-${n}`, tags })
      .orThrow();
    ids.unshift(ref.id);
    await clock.advance(1_000);
  }
  await service.ref("job-3").cancel().orThrow();
  return { clock, service, reads: service.reads, ids };
}

describe.for(stores)("reads on $name", (store) => {
  it("list the newest first, in pages by offset", async () => {
    const { reads, ids } = await filledShop(store);
    const first = await reads.jobs().orThrow();
    expect(first).toMatchObject({ count: 25, offset: 0, limit: 10, nextOffset: 10 });
    expect(first.entries.map(({ id }) => id)).toEqual(ids.slice(0, 10));
    const last = await reads.jobs({ offset: 20, limit: 10 }).orThrow();
    expect(last.entries.map(({ id }) => id)).toEqual(ids.slice(20));
    expect(last.nextOffset).toBeUndefined();
  });

  it("list by cursor, untouched by what comes meanwhile", async () => {
    const { reads, ids, service } = await filledShop(store);
    const seen: string[] = [];
    let cursor: string | undefined;
    for (let page = 0; page < 10; page++) {
      const { entries, nextCursor } = await reads
        .jobs({ limit: 7, ...(cursor && { cursor }) })
        .orThrow();
      seen.push(...entries.map(({ id }) => id));
      await service.jobs.greet.create({ name: "new" }).orThrow();
      if (nextCursor === undefined) break;
      cursor = nextCursor;
    }
    expect(seen).toEqual(ids);
  });

  it("narrow by everything that a filter names", async () => {
    const { reads, clock } = await filledShop(store);
    const found = async (filter: Parameters<typeof reads.jobs>[0]) =>
      (await reads.jobs({ ...filter, limit: 100 }).orThrow()).entries.map(({ id }) => id);
    expect(await found({ state: ["cancelled"] })).toEqual(["job-3"]);
    expect(await found({ tag: "fifth" })).toEqual(["job-20", "job-15", "job-10", "job-5", "job-0"]);
    expect(await found({ since: new Date(clock.now() - 2_000) })).toEqual(["job-24", "job-23"]);
    expect(await found({ until: clock.now() - 24_000 })).toEqual(["job-0"]);
    expect(await found({ text: "b-24" })).toEqual(["job-24"]);
    expect(await found({ type: "slow" })).toEqual([]);
    expect(await found({ queue: "greet", state: ["cancelled", "dead"] })).toEqual(["job-3"]);
    expect(await found({ service: "other" })).toEqual([]);
    expect(await found({ service: "*", tag: "fifth", text: "job-20" })).toEqual(["job-20"]);
  });

  it.for([
    [{ limit: 101 }, "limit"],
    [{ limit: 0 }, "limit"],
    [{ offset: -1 }, "offset"],
    [{ state: ["running"] }, "state"],
    [{ since: Number.NaN }, "since"],
    [{ offset: 2 ** 53 }, "offset"],
    [{ state: "dead" }, "state"],
    [{ state: null }, "state"],
    [{ since: "today" }, "since"],
    [{ until: 8.65e15 }, "until"],
    [{ text: 5 }, "text"],
    [{ tag: null }, "tag"],
    [{ key: {} }, "key"],
    [{ type: 5 }, "type"],
    [{ queue: ["greet"] }, "queue"],
    [{ states: ["dead"] }, "states"],
    [{ cursor: "next" }, "cursor"],
    [{ cursor: "1.5" }, "cursor"],
    [{ cursor: 5 }, "cursor"],
    [{ cursor: "5", offset: 5 }, "cursor"],
    [null, "options"],
  ] as const)("refuse %j", async ([ask, field]) => {
    const { reads } = await openService(store, shop);
    const refused = await reads.jobs(ask as never);
    expect(refused.isErr() && refused.error).toMatchObject({ _tag: "InvalidOption", field });
    const counted = await reads.counts(ask as never);
    expect(counted.isErr() && counted.error._tag).toBe("InvalidOption");
  });

  it.for([
    [undefined, "options"],
    [{}, "hash"],
    [{ type: "merged" }, "key"],
    [{ key: "merged/acme" }, "type"],
    [{ hash: 5 }, "hash"],
    [{ type: "merged", key: 5 }, "key"],
  ] as const)("and releases refuse the key %j", async ([ask, field]) => {
    const { reads, keys } = await openService(store, shop);
    const refused = [await reads.key(ask as never), await keys.release(ask as never)];
    for (const one of refused)
      expect(one.isErr() && one.error).toMatchObject({ _tag: "InvalidOption", field });
  });

  it("refuse a feed without a signal or with a wrong cursor at once", async () => {
    const { reads } = await openService(store, shop);
    const { signal } = new AbortController();
    const tail = reads.tail.bind(reads) as (...values: readonly unknown[]) => unknown;
    expect(() => tail()).toThrow(/signal: It must be an AbortSignal/);
    expect(() => tail(signal, "start")).toThrow(/cursor: It must be a cursor/);
    expect(() => tail(signal, 5)).toThrow(InvalidOption);
  });

  it("count by state", async () => {
    const { reads } = await filledShop(store);
    const counts = await reads.counts().orThrow();
    expect(counts.map(({ state, count }) => [state, count]).sort()).toEqual([
      ["cancelled", 1],
      ["pending", 24],
    ]);
    expect(await reads.counts({ tag: "fifth", state: ["pending"] }).orThrow()).toMatchObject([
      { count: 5 },
    ]);
  });

  it("show one job with its payload, and its history", async () => {
    const { reads } = await filledShop(store);
    expect(await reads.job("job-3").orThrow()).toMatchObject({
      state: "cancelled",
      payload: { name: "n3" },
    });
    expect((await reads.events("job-3").orThrow()).map(({ name }) => name)).toEqual([
      "created",
      "cancelled",
    ]);
    const missing = await reads.job("nothing");
    expect(missing.isErr() && missing.error._tag).toBe("JobNotFound");
  });

  it("keep services apart unless all are asked for", async () => {
    const url = await store.freshUrl();
    const one = await connect(shop, { url });
    onTestFinished(() => one.stop());
    const other = await connect(defineService("mill", { ...shop.jobs }), { engine: one.engine });
    await one.jobs.greet.create({ name: "Ada" }).orThrow();
    await other.jobs.greet.create({ name: "Bob" }).orThrow();
    expect((await one.reads.jobs().orThrow()).count).toBe(1);
    expect((await other.reads.jobs({ service: "*" }).orThrow()).count).toBe(2);
    expect((await other.reads.queues("*").orThrow()).map(({ service }) => service).sort()).toEqual([
      "mill",
      "shop",
    ]);
  });

  it("show keys and who holds them", async () => {
    const { jobs, reads } = await openService(store, shop);
    const holder = await jobs.merged.create({ tenant: "acme" }).orThrow();
    const waiter = await jobs.merged.create({ tenant: "acme" }).orThrow();
    await jobs.merged.submit({ tenant: "acme" }).orThrow();
    const key = await reads.key({ type: "merged", key: "merged/acme" }).orThrow();
    expect(key).toMatchObject({
      key: "merged/acme",
      maxActive: 1,
      maxQueued: 1,
      whenFull: "coalesce",
      queued: [waiter.id],
      queuedCount: 1,
      blocked: false,
      lastOutcome: { outcome: "coalesced" },
    });
    expect(key?.active.map(({ jobId }) => jobId)).toEqual([holder.id]);
    expect((await reads.keys({ type: "merged" }).orThrow()).entries).toEqual([key]);
    expect(await reads.key({ hash: key?.hash ?? "" }).orThrow()).toEqual(key);
    expect(await reads.key({ type: "merged", key: "merged/nobody" }).orThrow()).toBeNull();
  });

  it("show workers and how fresh they are", async () => {
    const service = await openService(store, shop, { instance: "web-1" });
    service.jobs.greet.handle(() => ({ text: "" }));
    await service.start();
    const [worker, ...others] = await service.reads.workers().orThrow();
    expect(others).toEqual([]);
    expect(worker).toMatchObject({
      service: "shop",
      instance: "web-1",
      fresh: true,
      pid: process.pid,
      types: [{ type: "greet", version: 1, concurrency: 10, active: 0 }],
    });
    expect(await service.reads.workers("other").orThrow()).toEqual([]);
    expect(await service.reads.workers("*").orThrow()).toHaveLength(1);
  });

  it("follow the feed from a cursor", async () => {
    const service = await openService(store, shop);
    await service.jobs.greet.create({ name: "Ada" }, { id: "one" }).orThrow();
    const head = await service.reads.head().orThrow();
    await service.ref("one").cancel().orThrow();
    const controller = new AbortController();
    const names: string[] = [];
    for await (const { event } of service.reads.tail(controller.signal)) {
      names.push(event.name);
      if (event.name === "cancelled") break;
    }
    for await (const { event } of service.reads.tail(controller.signal, head)) {
      names.push(event.name);
      controller.abort();
    }
    expect(names).toEqual(["created", "cancelled", "cancelled"]);
  });
});
