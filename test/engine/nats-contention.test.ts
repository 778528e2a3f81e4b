// Many who change one record at once: the creates of a large batch under one key, and those of two processes. Everybody
// gets an answer, no limit is exceeded, and nobody's trouble is that of all.
import { connect, defineJob, defineService, JobNotEnqueued } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { tally } from "#millrace/conformance/environment.js";
import { freshPrefix } from "../support/nats.js";
import { Deployment, writes } from "../support/nats-engine.js";

const keyed = (maxQueuedPerKey: number) =>
  defineService("shop", {
    keyed: defineJob({
      payload: z.object({ k: z.number() }),
      keyConcurrency: { key: ["/k"], maxActive: 1 },
      queue: { maxQueuedPerKey },
    }),
  });

async function opened(storeUrl: string, maxQueuedPerKey: number) {
  const service = await connect(keyed(maxQueuedPerKey), { url: `${storeUrl}&projection=memory:` });
  onTestFinished(() => service.stop());
  return service;
}

describe("many creates under one key", { timeout: 60_000 }, () => {
  it("are all let in when there is room for them", async () => {
    const { storeUrl } = await freshPrefix();
    const service = await opened(storeUrl, 1_000);
    const wishes = Array(1_000).fill({ payload: { k: 1 } });
    const created = await service.jobs.keyed.createMany(wishes).orThrow();
    expect(
      tally(created.map((each) => ({ outcome: each.isOk() ? "ok" : each.error._tag }))),
    ).toEqual({ ok: 1_000 });
    expect(await service.reads.counts().orThrow()).toMatchObject([{ count: 1_000 }]);
  });

  it("from two processes are let in up to the limit, and the others are told", async () => {
    const { storeUrl } = await freshPrefix();
    const services = [await opened(storeUrl, 99), await opened(storeUrl, 99)];
    const created = await Promise.all(
      Array.from({ length: 400 }, async (_, n) => services[n % 2]?.jobs.keyed.create({ k: 1 })),
    );
    const told = created.map((each) => ({
      outcome: each?.isErr() ? (JobNotEnqueued.is(each.error) ? "full" : each.error._tag) : "ok",
    }));
    expect(tally(told)).toEqual({ ok: 100, full: 300 });
    expect(await services[0]?.reads.counts().orThrow()).toMatchObject([{ count: 100 }]);
  });

  it("are told one by one that the store is busy where others never let them through", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k", { maxQueued: 1_000 });
    await env.create({ key });
    let isRival = true;
    const process = await deployment.process(async (step, go) => {
      // Somebody else is always faster.
      if (isRival && writes("key")(step)) await env.create({ key });
      return go();
    });
    const changes = [
      process.creation({ key }),
      process.creation({ id: "free" }),
      process.creation({ key }),
    ];
    const outcomes = await process.engine.append(changes);
    expect(outcomes).toMatchObject([
      { outcome: "faulted", error: { _tag: "StoreBusy" } },
      { outcome: "appended" },
      { outcome: "faulted", error: { _tag: "StoreBusy" } },
    ]);
    isRival = false;
    expect((await process.append(process.creation({ key }))).outcome).toBe("appended");
  });
});
