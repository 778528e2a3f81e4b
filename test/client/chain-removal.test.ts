// Chains of which jobs are removed: all of them by a delete of the chain, or its end alone.
import { connect } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { everyStore } from "../support/every-store.js";
import { openService, stores } from "../support/stores.js";
import { gate } from "../worker/workshop.js";
import { chainShop, endless, startedShop } from "./chain-shop.js";

const order = { orderId: "o-1" };

describe.for(everyStore)("a chain on $name", (store) => {
  it("is not there any more where its last job was deleted, and what is left can be deleted", async () => {
    const service = await startedShop(store);
    const { chains } = service;
    const chain = await chains.start("charge", order).orThrow();
    await chains.wait(chain).orThrow();
    const { current } = await chains.get(chain).orThrow();
    await service.ref(current.id).delete().orThrow();
    for (const answer of [
      await chains.get(chain),
      await chains.wait(chain),
      await chains.complete(chain, () => {}),
    ])
      expect(answer.isErr() && answer.error).toMatchObject({
        _tag: "JobNotFound",
        id: chain.id,
        message: expect.stringContaining(`The last job of chain ${chain.id} was removed`),
      });
    const waiting = await service.jobs.lone.create(order, { blockers: [chain] });
    expect(waiting.isErr() && waiting.error).toMatchObject({
      _tag: "InvalidBlocker",
      reason: "missing",
    });
    expect(await chains.list().orThrow()).toMatchObject({ entries: [], count: 0 });
    expect(await chains.delete(chain).orThrow()).toBe(1);
  });

  it("goes on where a job of it is run again after its last one was deleted", async () => {
    const service = await startedShop(store);
    const { chains } = service;
    const chain = await chains.start("charge", order).orThrow();
    await chains.wait(chain).orThrow();
    const { current } = await chains.get(chain).orThrow();
    await service.ref(current.id).delete().orThrow();
    await service.ref(chain.id).retry({ force: true }).orThrow();
    expect(await chains.wait(chain).orThrow()).toEqual({ parcel: "p-o-1" });
    expect((await chains.list().orThrow()).entries).toMatchObject([{ state: "completed" }]);
  });
});

describe.for(everyStore)("a delete of a chain on $name", (store) => {
  it("removes all its jobs", async () => {
    const { chains, reads } = await startedShop(store);
    const chain = await chains.start("charge", order).orThrow();
    await chains.wait(chain).orThrow();
    expect(await chains.delete(chain).orThrow()).toBe(2);
    expect((await reads.jobs().orThrow()).count).toBe(0);
    expect((await chains.get(chain)).isErr()).toBe(true);
  });

  it("removes one of more jobs than a list has, the first of them first", async () => {
    const { chains, reads } = await openService(store, endless);
    const chain = await chains.start("step", {}, { delayMs: 60_000 }).orThrow();
    for (let length = 1; length < 130; length += 43)
      await chains
        .complete(chain, async ({ job, complete }) => {
          let last: typeof job | null = job;
          for (let step = 0; step < 43 && last !== null; step++)
            last = await complete(last, ({ continueWith }) => continueWith("step", {}));
        })
        .orThrow();
    expect((await chains.get(chain).orThrow()).count).toBe(130);
    expect(await chains.delete(chain).orThrow()).toBe(130);
    expect((await reads.jobs().orThrow()).count).toBe(0);
  });

  it("removes nothing where its current job runs", async () => {
    const service = await openService(store, chainShop);
    const { chains, jobs } = service;
    jobs.charge.handle(({ payload, complete }) =>
      complete(({ continueWith }) => continueWith("ship", payload)),
    );
    const leave = gate();
    const entered = gate();
    jobs.ship.handle(async () => {
      entered.open();
      await leave.opened;
      return { parcel: "p" };
    });
    await service.start();
    const chain = await chains.start("charge", order).orThrow();
    await entered.opened;
    const refused = await chains.delete(chain);
    expect(refused.isErr() && refused.error).toMatchObject({
      _tag: "CommandRefused",
      state: "active",
    });
    expect((await chains.get(chain).orThrow()).count).toBe(2);
    leave.open();
    expect(await chains.wait(chain).orThrow()).toEqual({ parcel: "p" });
  });

  it("removes one that waits, and by force one that runs", async () => {
    const service = await openService(store, chainShop);
    const { chains } = service;
    const waiting = await chains.start("lone", order).orThrow();
    expect(await chains.delete(waiting).orThrow()).toBe(1);
    const entered = new Promise<void>((resolve) => {
      service.jobs.approve.handle(async (job) => {
        resolve();
        await new Promise((stop) => job.signal.addEventListener("abort", stop));
        throw job.signal.reason;
      });
    });
    await service.start();
    const running = await chains.start("approve", { requestId: "r" }).orThrow();
    await entered;
    const refused = await chains.delete(running);
    expect(refused.isErr() && refused.error).toMatchObject({
      _tag: "CommandRefused",
      state: "active",
    });
    expect(await chains.delete(running, { force: true }).orThrow()).toBe(1);
  });

  it("never reaches into another service", async () => {
    const shop = await openService(store, chainShop);
    const other = await connect(endless, { engine: shop.engine });
    onTestFinished(() => other.stop());
    const chain = await shop.chains.start("charge", order).orThrow();
    for (const answer of [
      await other.chains.get(chain.id),
      await other.chains.wait(chain.id),
      await other.chains.complete(chain.id, () => {}),
      await other.chains.delete(chain.id, { force: true }),
    ])
      expect(answer.isErr() && answer.error).toMatchObject({ _tag: "JobNotFound" });
    expect(await shop.chains.get(chain).orThrow()).toMatchObject({ state: "pending" });
  });
});

// How far a delete goes at once is the client's matter, and to make a chain so long takes time on a server.
it.for(stores)(
  "a delete goes on until nothing is left of a long chain on $name",
  {
    timeout: 30_000,
  },
  async (store) => {
    const { chains, reads } = await openService(store, endless);
    const chain = await chains.start("step", {}).orThrow();
    for (let jobs = 1; jobs < 2_050; )
      await chains
        .complete(chain, async ({ job, complete }) => {
          for (let next = job, steps = 0; steps < 50; steps++, jobs++)
            next = await complete(next, ({ continueWith }) => continueWith("step", {}));
        })
        .orThrow();
    const { count } = await chains.get(chain).orThrow();
    expect(count).toBeGreaterThan(2_000);
    expect(await chains.delete(chain).orThrow()).toBe(count);
    expect((await reads.jobs().orThrow()).count).toBe(0);
  },
);
