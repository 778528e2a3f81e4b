// Completions without a worker: the keys of the jobs that they create and end, and steps that nobody waits for.
import { describe, expect, it } from "vitest";
import { everyStore } from "../support/every-store.js";
import { openService } from "../support/stores.js";
import { chainShop, endless } from "./chain-shop.js";

const order = { orderId: "o-1" };

describe.for(everyStore)("a completed chain on $name", (store) => {
  it("takes no place of a full key for a job that is completed in the same call", async () => {
    const { chains, jobs } = await openService(store, chainShop);
    const { id } = await jobs.draw.create({ account: "a-1" }, { delayMs: 60_000 }).orThrow();
    const chain = await chains.start("agree", { account: "a-1" }).orThrow();
    const done = await chains
      .complete(chain, async ({ job, complete }) => {
        if (job.type !== "agree") return;
        const draw = await complete(job, ({ continueWith }) => continueWith("draw", job.payload));
        if (draw?.type === "draw") await complete(draw, () => ({ drawn: true }));
      })
      .orThrow();
    expect(done).toMatchObject({ state: "completed", output: { drawn: true } });
    const full = await jobs.draw.create({ account: "a-1" });
    expect(full).toMatchObject({ error: { _tag: "JobNotEnqueued", existingJobId: id } });
  });

  it("has the steps that the callback has not waited for, one after the other", async () => {
    const { chains } = await openService(store, chainShop);
    const chain = await chains.start("charge", order).orThrow();
    const done = await chains
      .complete(chain, ({ job, complete }) => {
        if (job.type !== "charge") return;
        const shipped = complete(job, ({ continueWith }) => continueWith("ship", order));
        void shipped.then((ship) => complete(ship, () => ({ parcel: "p-1" })));
      })
      .orThrow();
    expect(done).toMatchObject({ state: "completed", output: { parcel: "p-1" } });
  });

  it("is as it was where two steps were taken at once, although nobody waits for either", async () => {
    const { chains } = await openService(store, chainShop);
    const chain = await chains.start("approve", { requestId: "r-1" }).orThrow();
    const twice = await chains.complete(chain, ({ job, complete }) => {
      if (job.type !== "approve") return;
      for (const approved of [true, false]) void complete(job, () => ({ approved }));
    });
    expect(twice).toMatchObject({
      error: { _tag: "InvalidOption", message: expect.stringMatching(/another step is under way/) },
    });
    expect((await chains.get(chain).orThrow()).state).toBe("pending");
  });

  it("is not completed where a step was refused that nobody waited for", async () => {
    const { chains } = await openService(store, chainShop);
    const chain = await chains
      .start("approve", { requestId: "r-1" }, { delayMs: 60_000 })
      .orThrow();
    const ask = (take: (step: Promise<unknown>) => unknown, approved: unknown) =>
      chains.complete(chain, async ({ job, complete }) => {
        if (job.type !== "approve") return;
        const step = complete(job, () => ({ approved }) as { approved: boolean });
        take(step);
        await new Promise((resolve) => setImmediate(resolve));
        await new Promise((resolve) => setImmediate(resolve));
      });
    const caughtLater = await chains.complete(chain, ({ job, complete }) => {
      if (job.type !== "approve") return;
      complete(job, () => ({ approved: "yes" }) as never).catch(() => {});
    });
    expect(caughtLater).toMatchObject({ value: { state: "pending" } });
    for (const take of [() => {}, (step: Promise<unknown>) => void step.then(() => {})]) {
      const refused = await ask(take, "yes");
      expect(refused).toMatchObject({ error: { _tag: "InvalidResult" } });
    }
    const thrown = chains.complete(chain, async ({ job, complete }) => {
      if (job.type !== "approve") return;
      void complete(job, () => {
        throw new Error("The approver is ill.");
      });
      await new Promise((resolve) => setImmediate(resolve));
    });
    await expect(thrown.orThrow()).rejects.toThrow("The approver is ill.");
    expect((await chains.get(chain).orThrow()).state).toBe("pending");
    const caught = await ask((step) => step.catch(() => {}), "yes");
    expect(caught).toMatchObject({ value: { state: "pending" } });
    expect((await ask(() => {}, true)).isOk()).toBe(true);
    expect((await chains.get(chain).orThrow()).state).toBe("completed");
  });

  it("takes a hundred steps and no more", async () => {
    const { chains } = await openService(store, endless);
    const chain = await chains.start("step", {}, { delayMs: 60_000 }).orThrow();
    const goOn = (steps: number) =>
      chains.complete(chain, async ({ job, complete }) => {
        let current = job;
        for (let step = 0; step < steps; step++)
          current = await complete(current, ({ continueWith }) => continueWith("step", {}));
      });
    const refused = await goOn(101);
    expect(refused).toMatchObject({
      error: { _tag: "InvalidOption", message: expect.stringMatching(/at most 100 steps/) },
    });
    expect((await goOn(100)).isOk()).toBe(true);
    expect((await chains.get(chain).orThrow()).count).toBe(101);
  });

  it("takes no step any more once the completion is over", async () => {
    const { chains } = await openService(store, chainShop);
    const chain = await chains.start("approve", { requestId: "r-1" }).orThrow();
    const late: (() => Promise<unknown>)[] = [];
    await chains
      .complete(chain, ({ job, complete }) => {
        if (job.type === "approve") late.push(() => complete(job, () => ({ approved: true })));
      })
      .orThrow();
    await expect(late[0]?.()).rejects.toThrow(/the completion is over/);
    expect((await chains.get(chain).orThrow()).state).toBe("pending");
  });
});
