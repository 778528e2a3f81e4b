// Idempotency keys of the scope `unfinished`: they stand for a chain until its last job has ended.
import { connect, defineJob, defineService } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { everyStore } from "../support/every-store.js";
import { openService } from "../support/stores.js";
import { chainShop } from "./chain-shop.js";

const order = { orderId: "o-1" };
const once = { idempotencyKey: { key: "k", scope: "unfinished" } } as const;

/** A chain of any length. */
const endless = defineService("endless", {
  step: defineJob({ payload: z.object({}), result: z.string(), continuations: ["step"] }),
});

describe.for(everyStore)("a key of an unfinished chain on $name", (store) => {
  it("gives the chain until its last job has ended", async () => {
    const { chains } = await openService(store, chainShop);
    const start = (orderId = "o-1") => chains.start("charge", { orderId }, once);
    const first = await start().orThrow();
    await chains
      .complete(first, async ({ job, complete }) => {
        if (job.type !== "charge") throw new Error("It has not moved.");
        const ship = await complete(job, ({ continueWith }) => continueWith("ship", order));
        await complete(ship, ({ continueWith }) => continueWith("refund", order));
      })
      .orThrow();
    const again = await start().orThrow();
    expect([again.id, again.existing]).toEqual([first.id, true]);
    expect(await start("o-2")).toMatchObject({ error: { _tag: "IdempotencyConflict" } });
    await chains
      .complete(first, async ({ job, complete }) => {
        if (job.type === "refund") await complete(job, () => ({ refunded: true }));
      })
      .orThrow();
    const next = await start("o-2").orThrow();
    expect([next.existing, next.id === first.id]).toEqual([false, false]);
  });

  it("gives the chain also where its first job was deleted", async () => {
    const service = await openService(store, chainShop);
    const { chains } = service;
    const first = await chains.start("charge", order, once).orThrow();
    const { current } = await chains
      .complete(first, async ({ job, complete }) => {
        if (job.type === "charge")
          await complete(job, ({ continueWith }) => continueWith("ship", order));
      })
      .orThrow();
    await service.ref(first.id).delete().orThrow();
    const again = await chains.start("charge", order, once).orThrow();
    expect([again.id, again.existing]).toEqual([first.id, true]);
    await service.ref(current.id).delete({ force: true }).orThrow();
    expect((await chains.start("charge", order, once).orThrow()).existing).toBe(false);
  });

  it("gives a chain of many jobs", async () => {
    const { chains } = await openService(store, endless);
    const first = await chains.start("step", {}, once).orThrow();
    const takeSteps = (steps: number, ends: boolean) =>
      chains
        .complete(first, async ({ job, complete }) => {
          let current = job;
          for (let step = 0; step < steps; step++)
            current = await complete(current, ({ continueWith }) => continueWith("step", {}));
          if (ends) await complete(current, () => "done");
        })
        .orThrow();
    await takeSteps(30, false);
    expect((await chains.start("step", {}, once).orThrow()).id).toBe(first.id);
    await takeSteps(1, true);
    expect((await chains.start("step", {}, once).orThrow()).existing).toBe(false);
  });

  it("is free where its job is gone that was no chain, without a look at lists", async () => {
    const service = await openService(store, chainShop);
    const { engine } = service;
    const listless = new Proxy(engine, {
      get: (target, name) => {
        if (name === "query") return () => Promise.reject(new Error("A list was asked for."));
        const value = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
    const creating = await connect(chainShop, { engine: listless, keeper: false });
    onTestFinished(() => creating.stop());
    const create = () => creating.jobs.refund.create(order, once).orThrow();
    const first = await create();
    expect(await create()).toMatchObject({ id: first.id, existing: true });
    await service.ref(first.id).delete({ force: true }).orThrow();
    expect((await create()).existing).toBe(false);
  });
});
