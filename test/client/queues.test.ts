// Pausing and resuming queues, and releasing a key that a lost job blocks.
import { connect, defineJob, defineService } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { laneOf } from "#millrace/core/order.js";
import { recordId } from "#millrace/engine/record.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { openService, stores } from "../support/stores.js";
import { shop } from "./shop.js";

describe.for(stores)("a queue on $name", (store) => {
  it("is paused and resumed for all, whoever else writes its settings", async () => {
    const { queues, reads, jobs } = await openService(store, shop);
    await jobs.greet.create({ name: "Ada" }).orThrow();
    expect(await queues.pause("greet").orThrow()).toMatchObject({ paused: true });
    expect(await reads.queues().orThrow()).toMatchObject([
      { queue: "greet", paused: true, waiting: 1, active: 0 },
    ]);
    await Promise.all(Array.from({ length: 10 }, () => queues.pause("greet").orThrow()));
    await queues.resume("greet").orThrow();
    expect(await reads.queues().orThrow()).toMatchObject([{ paused: false }]);
  });

  it("keeps settings that it does not know", async () => {
    const service = await openService(store, shop);
    const id = recordId.queue("shop", "greet");
    await service.engine.swap([{ id, expect: 0, body: { paused: false, colour: "red" } }]);
    await service.queues.pause("greet").orThrow();
    expect((await service.engine.records([id]))[0]?.body).toMatchObject({
      paused: true,
      colour: "red",
    });
  });

  it("hands out nothing while it is paused", async () => {
    const url = await store.freshUrl();
    const service = await connect(shop, { url });
    onTestFinished(() => service.stop());
    service.jobs.greet.handle(({ payload }) => ({ text: payload.name }));
    await service.queues.pause("greet").orThrow();
    await service.start();
    const ref = await service.jobs.greet.create({ name: "Ada" }).orThrow();
    expect(await ref.why().orThrow()).toMatchObject({ reason: "queue_paused" });
    await service.queues.resume("greet").orThrow();
    expect(await ref.wait().orThrow()).toEqual({ text: "Ada" });
  });

  it("runs no more jobs at once than an operator allows", async () => {
    const service = await connect(shop, { url: await store.freshUrl() });
    onTestFinished(() => service.stop());
    let [active, most] = [0, 0];
    let enter = () => {};
    let leave = () => {};
    const isIn = new Promise<void>((resolve) => (enter = resolve));
    const mayLeave = new Promise<void>((resolve) => (leave = resolve));
    service.jobs.greet.handle(async ({ payload }) => {
      most = Math.max(most, ++active);
      enter();
      await mayLeave;
      active--;
      return { text: payload.name };
    });
    expect(await service.queues.configure("greet", { maxActive: 1 }).orThrow()).toMatchObject({
      paused: false,
      maxActive: 1,
      changedBy: `client:${service.instance}`,
    });
    const names = ["Ada", "Grace", "Joan"];
    const refs = await Promise.all(
      names.map((name) => service.jobs.greet.create({ name }).orThrow()),
    );
    await service.start();
    await isIn;
    const reasons = await Promise.all(refs.map(async (ref) => (await ref.why().orThrow()).reason));
    expect(reasons.sort()).toEqual(["queue_limit", "queue_limit", "running"]);
    leave();
    await Promise.all(refs.map((ref) => ref.wait().orThrow()));
    expect(most).toBe(1);
  });

  it("forgets its settings, and takes only limits that make sense", async () => {
    const { queues, reads } = await openService(store, shop);
    await queues.configure("greet", { maxActive: 2, paused: true }).orThrow();
    expect(await queues.configure("greet", { maxActive: null }).orThrow()).not.toHaveProperty(
      "maxActive",
    );
    await queues.forget("greet").orThrow();
    expect(await reads.queues().orThrow()).toEqual([]);
    const refused = await queues.configure("greet", { maxActive: 0 });
    expect(refused.isErr() && refused.error).toMatchObject({ field: "maxActive" });
  });

  it("has a valid name", async () => {
    const { queues } = await openService(store, shop);
    const refused = await queues.pause("a b");
    expect(refused.isErr() && refused.error).toMatchObject({
      _tag: "InvalidOption",
      field: "queue",
    });
  });
});

describe.for(stores)("a blocked key on $name", (store) => {
  const careful = defineService("careful", {
    move: defineJob({
      payload: z.object({ tenant: z.string() }),
      keyConcurrency: {
        key: ["move", "/tenant"],
        stalePolicy: "block",
        heartbeatTtlMs: 3_000,
        heartbeatIntervalMs: 1_000,
      },
      queue: { maxQueuedPerKey: 1 },
    }),
  });

  it("is released by hand, and the next job gets it", async () => {
    const clock = new FakeClock();
    const service = await openService(store, careful, { clock });
    const { engine, jobs, keys, reads } = service;
    const lost = await jobs.move.create({ tenant: "acme" }).orThrow();
    const next = await jobs.move.create({ tenant: "acme" }).orThrow();
    expect(await keys.release({ type: "move", key: "move/acme" }).orThrow()).toEqual([]);

    const lane = laneOf({ service: "careful", queue: "move", type: "move", typeVersion: 1 });
    const ask = { lane, service: "careful", queue: "move", type: "move", free: 1, leaseMs: 3_000 };
    const { jobs: claimed } = await engine.claim({ worker: "gone", lanes: [ask], limit: 1 });
    expect(claimed.map(({ job }) => job.id)).toEqual([lost.id]);
    await clock.advance(3_000);
    const { createKeeper } = await import("#millrace/keeper/keeper.js");
    const { systemIds } = await import("#millrace/client/ids.js");
    const { silentLogger } = await import("#millrace/engine/logger.js");
    const runtime = {
      engine,
      clock,
      ids: systemIds,
      logger: silentLogger,
      instance: "k",
      service: "careful",
    };
    await createKeeper({ runtime, contract: careful }).tick();

    expect(await lost.why().orThrow()).toMatchObject({ reason: "key_blocked" });
    const behind = await next.why().orThrow();
    expect(behind).toMatchObject({ reason: "key_blocked", key: "move/acme" });
    expect(behind.sentence).toContain("service.keys.release");
    expect((await reads.key({ type: "move", key: "move/acme" }).orThrow())?.blocked).toBe(true);
    expect(await keys.release({ type: "move", key: "move/acme" }).orThrow()).toEqual([lost.id]);
    expect((await lost.get().orThrow()).state).toBe("stale");
    expect((await next.why().orThrow()).reason).toBe("no_worker");
  });
});
