// Testing your own jobs: the real worker on a store in memory, with a clock that the test moves.
// The same code stands in a test of any runner.
import assert from "node:assert/strict";
import { defineJob, defineService } from "millrace";
import { testService } from "millrace/testing";
import { z } from "zod";

const order = z.object({ orderId: z.string() });

const shop = defineService("shop", {
  placeOrder: defineJob({ payload: order, retry: { maxTries: 3, backoff: [60_000] } }),
  sendReceipt: defineJob({ payload: order }),
});

const test = await testService(shop);
const { jobs } = test.service;
const startedAt = test.clock.now();

// Handlers are registered as in production. This one fails once and then creates another job.
jobs.placeOrder.handle(async (job) => {
  if (job.tries === 1) throw new Error("The warehouse does not answer.");
  await jobs.sendReceipt.create(job.payload, { delayMs: 3_600_000, tags: ["receipt"] }).orThrow();
});

const ref = await jobs.placeOrder.create({ orderId: "o-1" }).orThrow();

// Runs what can run now: the first try, which fails.
await test.drain();
assert.deepEqual(await test.counts(), { retry: 1 });
await test.assertNotCreated("sendReceipt");

// A minute later it is tried again.
await test.clock.advance(60_000);
await test.drain();
assert.deepEqual(
  (await test.events(ref.id)).map(({ name }) => name),
  ["created", "started", "retry", "started", "completed"],
);
const receipt = await test.assertCreated("sendReceipt", { payload: { orderId: "o-1" } });
assert.equal(receipt.runAt - startedAt, 60_000 + 3_600_000);

// Nobody handles receipts here, and `drain` says so when it is asked to run everything.
await assert.rejects(test.drain({ untilIdle: true }), /No live worker of shop handles sendReceipt/);
await test.stop();
console.log("the shop works"); // → the shop works
