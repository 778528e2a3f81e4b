// Completions without a worker: the keys of the jobs that they create and end, and steps that nobody waits for.
import { describe, expect, it } from "vitest";
import { everyStore } from "../support/every-store.js";
import { openService } from "../support/stores.js";
import { chainShop } from "./chain-shop.js";

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
