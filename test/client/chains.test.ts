// Chains: started, waited for, listed and completed without a worker.
import { ChainRef, connect, type Engine } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { everyStore } from "../support/every-store.js";
import { openService } from "../support/stores.js";
import { chainShop, startedShop } from "./chain-shop.js";

const order = { orderId: "o-1" };

/** A store in which something happens after the first list of jobs has been read, before anything else is. */
function changingAfterList(engine: Engine, change: () => Promise<unknown>): Engine {
  let hasChanged = false;
  const query = async (...asked: Parameters<Engine["query"]>) => {
    const answer = await engine.query(...asked);
    if (asked[0] === "jobs" && !hasChanged) {
      hasChanged = true;
      await change();
    }
    return answer;
  };
  return new Proxy(engine, {
    get: (target, name) => {
      if (name === "query") return query;
      const value = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

describe.for(everyStore)("a chain on $name", (store) => {
  it("goes from job to job, and its output is the result of the last one", async () => {
    const { chains } = await startedShop(store);
    const chain = await chains.start("charge", order).orThrow();
    expect(await chains.wait(chain).orThrow()).toEqual({ parcel: "p-o-1" });
    const found = await chains.get(chain).orThrow();
    expect(found).toMatchObject({ id: chain.id, state: "completed", output: { parcel: "p-o-1" } });
    expect(found.jobs.map(({ type, state }) => [type, state])).toEqual([
      ["charge", "completed"],
      ["ship", "completed"],
    ]);
    expect(found.current.type).toBe("ship");
    expect(found.count).toBe(2);
  });

  it("tells how it ended where a job of it ended badly", async () => {
    const { chains } = await startedShop(store);
    const chain = await chains.start("ship", { ...order, carrier: "lost" }).orThrow();
    const waited = await chains.wait(chain.id);
    expect(waited.isErr() && waited.error).toMatchObject({ _tag: "JobEnded", state: "dead" });
  });

  it("is one job long where its type continues with nothing", async () => {
    const { chains } = await openService(store, chainShop);
    const chain = await chains.start("lone", order, { id: "lone-1", tags: ["x"] }).orThrow();
    expect(chain).toEqual(new ChainRef("lone-1", "lone"));
    const found = await chains.get(chain).orThrow();
    expect(found).toMatchObject({ state: "pending", count: 1, current: { chainId: "lone-1" } });
  });

  it("is there for a plain create of a type that can continue", async () => {
    const service = await startedShop(store);
    const job = await service.jobs.charge.create(order).orThrow();
    expect(await service.chains.wait(job.id).orThrow()).toEqual({ parcel: "p-o-1" });
    expect(await job.wait().orThrow()).toBeUndefined();
  });

  it("takes an idempotency key, and tells that it was there", async () => {
    const { chains } = await openService(store, chainShop);
    const first = await chains.start("charge", order, { idempotencyKey: "k" }).orThrow();
    const again = await chains.start("charge", order, { idempotencyKey: "k" }).orThrow();
    expect([again.id, first.existing, again.existing]).toEqual([first.id, false, true]);
  });

  it("is not started where its idempotency key belongs to a job that is no chain", async () => {
    const { chains, jobs } = await openService(store, chainShop);
    const job = await jobs.lone.create(order, { idempotencyKey: "k" }).orThrow();
    const refused = await chains.start("lone", order, { idempotencyKey: "k" });
    expect(refused.isErr() && refused.error).toMatchObject({
      _tag: "IdempotencyConflict",
      existingJobId: job.id,
      message: `The idempotency key "k" belongs to job ${job.id}, which is no chain; use a new key for a chain, or wait for that job.`,
    });
    await chains.start("lone", order, { idempotencyKey: "l" }).orThrow();
    const again = await jobs.lone.create(order, { idempotencyKey: "l" }).orThrow();
    expect(again.existing).toBe(true);
  });

  it("is as far as it has come, also where a job of it ends while it is read", async () => {
    const { chains, engine } = await openService(store, chainShop);
    const goOn = (chain: string) =>
      chains
        .complete(chain, async ({ job, complete }) => {
          if (job.type === "charge")
            await complete(job, ({ continueWith }) => continueWith("ship", order));
        })
        .orThrow();
    const reading = async (chain: string) => {
      const service = await connect(chainShop, {
        engine: changingAfterList(engine, () => goOn(chain)),
      });
      onTestFinished(() => service.stop());
      return service.chains;
    };
    for (const id of ["read", "completed"]) await chains.start("charge", order, { id }).orThrow();
    const found = await (await reading("read")).get("read").orThrow();
    expect(found).toMatchObject({ state: "pending", current: { type: "ship" }, count: 2 });
    expect(found.jobs.map(({ id }) => id)).toContain(found.current.id);
    const types: string[] = [];
    await (await reading("completed"))
      .complete("completed", async ({ job, complete }) => {
        types.push(job.type);
        if (job.type === "ship") await complete(job, () => ({ parcel: "p" }));
      })
      .orThrow();
    expect(types).toEqual(["ship"]);
    expect(await chains.wait("completed").orThrow()).toEqual({ parcel: "p" });
  });

  it("is refused where the contract does not name its type", async () => {
    const { chains } = await openService(store, chainShop);
    const unknown = await chains.start("nope" as "lone", order);
    expect(unknown.isErr() && unknown.error).toMatchObject({
      _tag: "InvalidOption",
      field: "type",
      message: expect.stringContaining("The contract has no job nope; start a job of any type"),
    });
  });

  it("that does not exist is not found by any call", async () => {
    const { chains } = await openService(store, chainShop);
    const answers = [
      await chains.get("none"),
      await chains.wait("none"),
      await chains.complete("none", () => {}),
      await chains.delete("none"),
    ];
    for (const answer of answers)
      expect(answer.isErr() && answer.error).toMatchObject({ _tag: "JobNotFound", id: "none" });
  });

  it("is refused by every call where its name has no id, and nothing is touched", async () => {
    const { chains, jobs, reads, ref } = await openService(store, chainShop).then((service) => ({
      chains: service.chains,
      jobs: service.jobs,
      reads: service.reads,
      ref: (id: string) => service.ref(id),
    }));
    await chains.start("charge", order).orThrow();
    await jobs.lone.create(order).orThrow();
    for (const wrong of [{}, undefined, null, 5, { id: undefined }] as never[]) {
      const answers = [
        await chains.get(wrong),
        await chains.wait(wrong),
        await chains.complete(wrong, () => {}),
        await chains.delete(wrong, { force: true }),
        await reads.job(wrong),
        await reads.events(wrong),
      ];
      for (const answer of answers)
        expect(answer.isErr() && answer.error).toMatchObject({ _tag: "InvalidOption" });
      expect(() => ref(wrong)).toThrow("id: It must be a string");
      expect(() => chains.ref("charge", wrong)).toThrow("id: It must be a string");
    }
    expect((await reads.jobs({ chainId: undefined as never }).orThrow()).count).toBe(2);
  });

  it("is never looked for by a filter that names an id without a value", async () => {
    const { engine } = await openService(store, chainShop);
    for (const name of ["chainId", "parentId", "service"]) {
      const filter = { [name]: undefined } as object;
      await expect(engine.query("jobs", { filter })).rejects.toThrow(`names ${name} without`);
      await expect(engine.query("counts", { filter })).rejects.toThrow(`names ${name} without`);
    }
  });

  it("waits no longer than it is told", async () => {
    const { chains } = await openService(store, chainShop);
    const chain = await chains.start("charge", order).orThrow();
    const waited = await chains.wait(chain, { timeoutMs: 0 });
    expect(waited.isErr() && waited.error._tag).toBe("WaitTimeout");
  });
});

describe.for(everyStore)("a list of chains on $name", (store) => {
  it("shows each by its first job with the state of its current one", async () => {
    const service = await startedShop(store);
    const { chains } = service;
    const done = await chains.start("charge", order, { id: "done", tags: ["red"] }).orThrow();
    await chains.wait(done).orThrow();
    await chains.start("approve", { requestId: "r" }, { id: "open" }).orThrow();
    await service.jobs.lone.create(order).orThrow();
    const all = await chains.list().orThrow();
    expect(all.entries).toMatchObject([
      { id: "open", type: "approve", state: "pending", currentType: "approve" },
      { id: "done", type: "charge", state: "completed", currentType: "ship", tags: ["red"] },
    ]);
    expect(all.count).toBe(2);
    const ids = async (ask: Parameters<typeof chains.list>[0]) =>
      (await chains.list(ask).orThrow()).entries.map(({ id }) => id);
    expect(await ids({ state: ["completed"] })).toEqual(["done"]);
    expect(await ids({ type: "ship" })).toEqual([]);
    expect(await ids({ tag: "red" })).toEqual(["done"]);
    expect(await ids({ text: "ope" })).toEqual(["open"]);
    expect(await ids({ service: "other" })).toEqual([]);
    const first = await chains.list({ limit: 1 }).orThrow();
    expect(first.entries[0]?.id).toBe("open");
    expect(await ids({ limit: 1, cursor: first.nextCursor ?? "" })).toEqual(["done"]);
    const counted = await chains.list({ state: ["active"] }).orThrow();
    expect(counted.count).toBe(0);
  });

  it("refuses what it does not know", async () => {
    const { chains } = await openService(store, chainShop);
    // @ts-expect-error: a chain lines up in no queue of its own.
    const refused = await chains.list({ queue: "ship" });
    expect(refused.isErr() && refused.error).toMatchObject({ field: "queue" });
  });
});

describe.for(everyStore)("a completion without a worker on $name", (store) => {
  it("ends the chain with a value, also when the job is scheduled", async () => {
    const { chains } = await openService(store, chainShop);
    const request = { requestId: "r-1" };
    const chain = await chains.start("approve", request, { delayMs: 60_000 }).orThrow();
    const done = await chains
      .complete(chain, async ({ job, complete }) => {
        expect(job).toMatchObject({ type: "approve", state: "pending" });
        if (job.type !== "approve") throw new Error("It has not moved.");
        expect(await complete(job, () => ({ approved: false }))).toBeNull();
      })
      .orThrow();
    expect(done).toMatchObject({
      state: "completed",
      output: { approved: false },
      current: { completedBy: null },
    });
    expect(await chains.wait(chain).orThrow()).toEqual({ approved: false });
  });

  it("takes several steps in one go, and may leave the last one open", async () => {
    const { chains, reads } = await openService(store, chainShop);
    const chain = await chains.start("charge", order).orThrow();
    const head = await reads.head().orThrow();
    const partly = await chains
      .complete(chain, async ({ job, complete }) => {
        if (job.type !== "charge") throw new Error("It has not moved.");
        const ship = await complete(job, ({ continueWith }) => continueWith("ship", order));
        expect(ship.payload).toEqual({ ...order, carrier: "post" });
        await complete(ship, ({ continueWith }) => continueWith("refund", order));
      })
      .orThrow();
    expect(partly).toMatchObject({ state: "pending", current: { type: "refund" } });
    expect((await chains.get(chain).orThrow()).count).toBe(3);
    expect(head).not.toBe(await reads.head().orThrow());
    const done = await chains
      .complete(chain, async ({ job, complete }) => {
        if (job.type === "refund") await complete(job, () => ({ refunded: false }));
      })
      .orThrow();
    expect(done).toMatchObject({ state: "completed", output: { refunded: false } });
  });

  it("counts a step that the caller does not wait for", async () => {
    const { chains } = await openService(store, chainShop);
    const chain = await chains.start("charge", order).orThrow();
    const done = await chains
      .complete(chain, ({ job, complete }) => {
        if (job.type !== "charge") throw new Error("It has not moved.");
        void complete(job, async ({ continueWith }) => {
          await new Promise((resolve) => setImmediate(resolve));
          return continueWith("ship", order);
        });
      })
      .orThrow();
    expect(done).toMatchObject({ state: "pending", current: { type: "ship" }, count: 2 });
  });

  it("fails with a step that the caller does not wait for", async () => {
    const { chains } = await openService(store, chainShop);
    const chain = await chains.start("approve", { requestId: "r-1" }).orThrow();
    const failed = await chains.complete(chain, ({ job, complete }) => {
      if (job.type === "approve") void complete(job, () => ({ approved: "yes" }) as never);
    });
    expect(failed).toMatchObject({ error: { _tag: "InvalidResult" } });
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
  });

  it("does nothing where the caller takes no step", async () => {
    const { chains } = await openService(store, chainShop);
    const chain = await chains.start("charge", order).orThrow();
    expect(await chains.complete(chain, () => {}).orThrow()).toMatchObject({ state: "pending" });
  });

  it("stores nothing where a step is refused, and names what is wrong", async () => {
    const { chains } = await openService(store, chainShop);
    const chain = await chains.start("approve", { requestId: "r" }).orThrow();
    const refused = await chains.complete(chain, async ({ job, complete }) => {
      if (job.type !== "approve") return;
      const ship = await complete(job, ({ continueWith }) => continueWith("ship", order));
      // @ts-expect-error: a parcel is a string.
      await complete(ship, () => ({ parcel: 5 }));
    });
    expect(refused.isErr() && refused.error).toMatchObject({ _tag: "InvalidResult", type: "ship" });
    const without = await chains.complete(chain, async ({ job, complete }) => {
      // @ts-expect-error: an approval has a result.
      if (job.type === "approve") await complete(job, () => {});
    });
    expect(without.isErr() && without.error.message).toMatch(
      /^The result of approve is not valid: it is missing; complete the job with one/,
    );
    const stranger = await chains.complete(chain, ({ complete }) =>
      complete({ id: "x", type: "refund" }, () => ({ refunded: true })),
    );
    expect(stranger.isErr() && stranger.error).toMatchObject({
      _tag: "InvalidOption",
      field: "job",
    });
    const undeclared = await chains.complete(chain, async ({ job, complete }) => {
      if (job.type !== "approve") return;
      // @ts-expect-error: an approval does not continue with a refund.
      await complete(job, ({ continueWith }) => continueWith("refund", order));
    });
    expect(undeclared.isErr() && undeclared.error).toMatchObject({ field: "type" });
    const own = await chains.complete(chain, async ({ job, complete }) => {
      if (job.type !== "approve") return;
      const tx = {} as never;
      // @ts-expect-error: a continuation is stored with the completion, in the transaction of that.
      await complete(job, ({ continueWith }) => continueWith("ship", order, { tx }));
    });
    expect(own.isErr() && own.error).toMatchObject({
      _tag: "InvalidOption",
      field: "tx",
      message: expect.stringContaining("give tx to that: to chains.complete"),
    });
    for (const wrong of [
      await chains.complete(chain, undefined as never),
      await chains.complete(chain, ({ job, complete }) => complete(job as never, null as never)),
    ])
      expect(wrong.isErr() && wrong.error).toMatchObject({ field: "callback" });
    await expect(
      chains.complete(chain, () => {
        throw new Error("mine");
      }),
    ).rejects.toThrow("mine");
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
  });

  it("answers with JobAlreadyCompleted where the chain has ended", async () => {
    const { chains } = await startedShop(store);
    const chain = await chains.start("ship", order).orThrow();
    await chains.wait(chain).orThrow();
    const late = await chains.complete(chain, () => {});
    expect(late.isErr() && late.error).toMatchObject({
      _tag: "JobAlreadyCompleted",
      state: "completed",
    });
  });

  it("tells the worker that runs the job", async () => {
    const service = await openService(store, chainShop);
    const heard: unknown[] = [];
    const left = new Promise<void>((resolve) => {
      service.jobs.approve.handle(async (job) => {
        await new Promise((stop) => job.signal.addEventListener("abort", stop));
        heard.push(job.signal.reason);
        try {
          return await job.complete(() => ({ approved: false }));
        } catch (error) {
          heard.push(error);
          throw error;
        } finally {
          resolve();
        }
      });
    });
    const started = new Promise<void>((resolve) => {
      const stop = service.engine.wake("ready", () => {
        stop();
        resolve();
      });
    });
    await service.start();
    const chain = await service.chains.start("approve", { requestId: "r" }).orThrow();
    await started;
    for (let state = ""; state !== "active"; )
      state = (await service.chains.get(chain).orThrow()).state;
    await service.chains
      .complete(chain, async ({ job, complete }) => {
        if (job.type === "approve") await complete(job, () => ({ approved: true }));
      })
      .orThrow();
    await left;
    expect(heard).toMatchObject([
      { _tag: "JobAborted", reason: "already_completed" },
      { _tag: "JobAlreadyCompleted", id: chain.id },
    ]);
    expect(await service.chains.wait(chain).orThrow()).toEqual({ approved: true });
  });

  it("takes its steps again where the job has changed meanwhile", async () => {
    const { chains, ref } = await openService(store, chainShop).then((service) => ({
      chains: service.chains,
      ref: (id: string) => service.ref(id),
    }));
    const chain = await chains.start("approve", { requestId: "r" }).orThrow();
    const runs: number[] = [];
    const done = await chains.complete(chain, async ({ job, complete }) => {
      runs.push(job.run);
      if (job.run === 1) {
        await ref(chain.id).cancel().orThrow();
        await ref(chain.id).retry().orThrow();
      }
      if (job.type === "approve") await complete(job, () => ({ approved: true }));
    });
    expect(done.isOk() && done.value.state).toBe("completed");
    expect(runs).toEqual([1, 2]);
  });
});
