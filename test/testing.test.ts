// The testing kit: a service in memory whose jobs and time a test drives.
import { AssertionError } from "node:assert";
import { readFile } from "node:fs/promises";
import { defineJob, defineService, snooze, terminate } from "millrace";
import { JobsStuck, type TestOptions, type TestService, testService } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";

const hourMs = 60 * 60 * 1_000;
const dayMs = 24 * hourMs;

const order = z.object({
  orderId: z.string(),
  lines: z.array(z.object({ sku: z.string() })).default([]),
});

const shop = defineService("shop", {
  placeOrder: defineJob({ payload: order, retry: { maxTries: 3, backoff: [1_000, hourMs] } }),
  sendReceipt: defineJob({ payload: order, result: z.object({ messageId: z.string() }) }),
  syncStock: defineJob({
    payload: z.object({ shop: z.string() }),
    keyConcurrency: { key: ["stock", "/shop"] },
    queue: { maxQueuedPerKey: 5 },
  }),
});

type Shop = TestService<(typeof shop)["jobs"]>;

async function openShop(options?: TestOptions): Promise<Shop> {
  const test = await testService(shop, options);
  onTestFinished(() => test.stop());
  return test;
}

async function stuck(draining: Promise<void>): Promise<JobsStuck> {
  const fault = await draining.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!JobsStuck.is(fault)) throw new Error(`Expected JobsStuck, not ${String(fault)}.`);
  return fault;
}

describe("drain", () => {
  it("runs every job that can run now, those that jobs create included", async () => {
    const test = await openShop();
    const { jobs } = test.service;
    jobs.placeOrder.handle(async (job) => {
      await jobs.sendReceipt.create({ orderId: job.payload.orderId }).orThrow();
    });
    jobs.sendReceipt.handle((job) => ({ messageId: `m-${job.payload.orderId}` }));
    await jobs.placeOrder.create({ orderId: "o-1" }).orThrow();
    await test.drain();
    expect(await test.counts()).toEqual({ completed: 2 });
    expect(await test.waiting()).toEqual([]);
    const [receipt] = await test.created("sendReceipt");
    expect(receipt?.result).toEqual({ messageId: "m-o-1" });
  });

  it("leaves jobs whose time has not come, and those that nobody handles", async () => {
    const test = await openShop();
    const { jobs } = test.service;
    jobs.sendReceipt.handle(() => ({ messageId: "m" }));
    await jobs.sendReceipt.create({ orderId: "later" }, { delayMs: hourMs }).orThrow();
    await jobs.placeOrder.create({ orderId: "o-1" }).orThrow();
    await test.drain();
    expect((await test.waiting()).map(({ type, why }) => [type, why.reason])).toEqual([
      ["sendReceipt", "scheduled"],
      ["placeOrder", "no_worker"],
    ]);
    await test.clock.advance(hourMs);
    await test.drain();
    expect(await test.counts("sendReceipt")).toEqual({ completed: 1 });
  });

  it("moves the clock through delays and retries until every job has ended", async () => {
    const test = await openShop();
    const startedAt = test.clock.now();
    const triedAt: number[] = [];
    test.service.jobs.placeOrder.handle((job) => {
      triedAt.push(test.clock.now() - startedAt);
      if (job.tries < 3) throw new Error("The warehouse is closed.");
    });
    const ref = await test.service.jobs.placeOrder
      .create({ orderId: "o-1" }, { delayMs: 100 * dayMs })
      .orThrow();
    await test.drain({ untilIdle: true });
    expect(triedAt).toEqual([100 * dayMs, 100 * dayMs + 1_000, 100 * dayMs + 1_000 + hourMs]);
    expect((await test.events(ref.id)).map(({ name }) => name)).toEqual([
      ..."created started retry started retry started completed".split(" "),
    ]);
  });

  it("waits for handlers that do real I/O", async () => {
    const test = await openShop();
    let text = "";
    test.service.jobs.placeOrder.handle(async () => {
      text = await readFile(new URL("../package.json", import.meta.url), "utf8");
    });
    await test.service.jobs.placeOrder.create({ orderId: "o-1" }).orThrow();
    await test.drain();
    expect(JSON.parse(text)).toMatchObject({ name: "millrace" });
  });

  it("names a handler that does not return", async () => {
    const test = await openShop();
    test.service.jobs.placeOrder.handle(() => new Promise(() => {}));
    await test.service.jobs.placeOrder.create({ orderId: "o-1" }).orThrow();
    const fault = await stuck(test.drain({ patienceMs: 20 }));
    expect(fault.message).toBe(
      "Handlers have not returned within 20 ms of real time:\n" +
        "  placeOrder job-000001 (active): It is running on test, try 1 of 3.",
    );
  });

  it("names jobs that cannot end by waiting, and says why", async () => {
    const test = await openShop();
    const { jobs, queues } = test.service;
    jobs.placeOrder.handle(() => {});
    await queues.pause("placeOrder").orThrow();
    await jobs.placeOrder.create({ orderId: "o-1" }).orThrow();
    await jobs.sendReceipt.create({ orderId: "o-2" }).orThrow();
    const fault = await stuck(test.drain({ untilIdle: true }));
    expect(fault.jobs.map(({ id, why }) => [id, why.reason])).toEqual([
      ["job-000001", "queue_paused"],
      ["job-000002", "no_worker"],
    ]);
    expect(fault.message).toContain(
      "2 jobs cannot end by waiting:\n  placeOrder job-000001 (pending): Its queue",
    );
  });

  it("gives up on a job that puts itself off for ever", async () => {
    const test = await openShop();
    test.service.jobs.placeOrder.handle(() => snooze(1_000));
    await test.service.jobs.placeOrder.create({ orderId: "o-1" }).orThrow();
    const fault = await stuck(test.drain({ untilIdle: true }));
    expect(fault.message).toContain("The clock was moved 1000 times");
  });

  it("runs keyed jobs one after another", async () => {
    const test = await openShop();
    let running = 0;
    let most = 0;
    test.service.jobs.syncStock.handle(async () => {
      running += 1;
      most = Math.max(most, running);
      await new Promise(setImmediate);
      running -= 1;
    });
    for (let count = 0; count < 5; count++) {
      await test.service.jobs.syncStock.create({ shop: "north" }).orThrow();
    }
    await test.drain();
    expect(most).toBe(1);
    expect(await test.counts()).toEqual({ completed: 5 });
  });
});

describe("the clock", () => {
  it("stands still, and starts where it is told to", async () => {
    const startAt = new Date("2031-05-01T12:00:00Z");
    const test = await openShop({ startAt });
    const ref = await test.service.jobs.placeOrder.create({ orderId: "o-1" }).orThrow();
    await test.drain();
    expect((await ref.get().orThrow()).createdAt).toBe(startAt.getTime());
    await test.clock.advanceTo(startAt.getTime() + 5);
    expect(test.clock.now()).toBe(startAt.getTime() + 5);
    await expect(test.clock.advance(-1)).rejects.toThrow(RangeError);
  });

  it("expires a job at its deadline, to the millisecond", async () => {
    const test = await openShop();
    const deadline = test.clock.now() + 90_001;
    const ref = await test.service.jobs.placeOrder
      .create({ orderId: "o-1" }, { deadline })
      .orThrow();
    await test.drain();
    await test.clock.advance(dayMs);
    const job = await ref.get().orThrow();
    expect([job.state, job.endedAt]).toEqual(["expired", deadline]);
  });

  it("times a handler out while time passes", async () => {
    const test = await openShop();
    let reason: unknown;
    test.service.jobs.placeOrder.handle((job) => {
      return new Promise((_, reject) => {
        job.signal.addEventListener("abort", () => {
          reason = job.signal.reason.reason;
          reject(job.signal.reason);
        });
      });
    });
    await test.service.jobs.placeOrder.create({ orderId: "o-1" }).orThrow();
    await test.service.start();
    await test.clock.advance(hourMs);
    expect(reason).toBe("timeout");
  });

  it("applies retention", async () => {
    const test = await openShop();
    test.service.jobs.placeOrder.handle(() => {});
    await test.service.jobs.placeOrder.create({ orderId: "o-1" }).orThrow();
    await test.drain();
    expect(await test.counts()).toEqual({ completed: 1 });
    await test.clock.advance(8 * dayMs);
    expect(await test.counts()).toEqual({});
  });
});

describe("assertions", () => {
  it("find jobs by what is said of them", async () => {
    const test = await openShop();
    const { sendReceipt } = test.service.jobs;
    await sendReceipt.create({ orderId: "o-1", lines: [{ sku: "a" }, { sku: "b" }] }).orThrow();
    await sendReceipt.create({ orderId: "o-2" }, { priority: 5, tags: ["vip"] }).orThrow();
    const job = await test.assertCreated("sendReceipt", { payload: { orderId: "o-1" } });
    expect(job.payload.lines).toEqual([{ sku: "a" }, { sku: "b" }]);
    await test.assertCreated("sendReceipt", { priority: 5, tags: ["vip"], state: "pending" });
    await test.assertCreated("sendReceipt", { payload: { lines: [{ sku: "a" }, {}] } });
    await test.assertNotCreated("sendReceipt", { payload: { lines: [{ sku: "a" }] } });
    await test.assertNotCreated("sendReceipt", { payload: { orderId: "o-3" } });
    await test.assertNotCreated("placeOrder");
    expect(await test.created("sendReceipt", ({ priority }) => priority > 0)).toHaveLength(1);
    expect((await test.created("sendReceipt")).map(({ id }) => id)).toEqual([
      "job-000001",
      "job-000002",
    ]);
  });

  it("fail with what there was beside what there should have been", async () => {
    const test = await openShop();
    await test.service.jobs.sendReceipt.create({ orderId: "o-1" }).orThrow();
    const match = { payload: { orderId: "o-2" } };
    await expect(test.assertCreated("placeOrder")).rejects.toThrow(
      "No placeOrder job was created.",
    );
    await expect(test.assertCreated("sendReceipt", match)).rejects.toMatchObject({
      message: 'No sendReceipt job fits: {"payload":{"orderId":"o-2"}}.',
      actual: [{ payload: { orderId: "o-1" } }],
      expected: match,
    });
    const failing = test.assertNotCreated("sendReceipt");
    await expect(failing).rejects.toThrow(AssertionError);
    await expect(failing).rejects.toThrow("sendReceipt jobs were created: job-000001.");
  });

  it("know the contract's types", async () => {
    const test = await openShop();
    await test.service.jobs.sendReceipt.create({ orderId: "o-1" }).orThrow();
    // @ts-expect-error the contract has no such job
    await test.assertNotCreated("sendReceipts");
    // @ts-expect-error an order's id is a string
    await test.assertNotCreated("sendReceipt", { payload: { orderId: 1 } });
    const job = await test.assertCreated("sendReceipt");
    // @ts-expect-error a receipt's result has no such member
    expect(job.result?.message).toBeUndefined();
  });

  it("finds more jobs than a page or a batch holds", async () => {
    const test = await openShop();
    const many = Array.from({ length: 1_000 }, (_, index) => ({
      payload: { orderId: `o-${index}` },
    }));
    await test.service.jobs.placeOrder.createMany(many).orThrow();
    await test.service.jobs.placeOrder.create({ orderId: "last" }).orThrow();
    expect(await test.created("placeOrder")).toHaveLength(1_001);
  });
});

it("stops though a handler ignores its signal", async () => {
  const test = await testService(shop);
  test.service.jobs.placeOrder.handle(() => new Promise(() => {}));
  test.service.jobs.sendReceipt.handle(() => terminate("no such address"));
  await test.service.jobs.placeOrder.create({ orderId: "o-1" }).orThrow();
  await test.service.start();
  await test.clock.advance(0);
  await test.stop();
  expect((await test.service.reads.counts()).isErr()).toBe(true);
});

describe("hooks and routes", () => {
  it("are driven by drain, too", async () => {
    const ended: string[] = [];
    const contract = defineService("shop", {
      send: defineJob({
        payload: z.object({}),
        retention: { completed: 0 },
        hooks: { onEnd: ({ type, state }) => void ended.push(`${type} ${state}`) },
      }),
    });
    const test = await testService(contract);
    onTestFinished(() => test.stop());
    test.service.jobs.send.handle(() => null);
    test.service.route("fax:", () => "sent");
    await test.drain();
    const send = await test.service.jobs.send.create({}).orThrow();
    await test.service.jobs.send.create({}, { deadline: test.clock.now() }).orThrow();
    const fax = await test.service.untyped.create("fax:new", null).orThrow();
    await test.drain();
    expect(ended.sort()).toEqual(["send completed", "send expired"]);
    expect((await fax.get().orThrow()).state).toBe("completed");
    await test.clock.advance(1_000);
    expect((await send.get()).isErr()).toBe(true);
  });
});
