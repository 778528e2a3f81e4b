// A worker that has nothing to do claims with a statement for few jobs that were never tried. Whatever else stands in line
// is claimed by the same call.
import { connect, defineJob, defineService, openEngine } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { laneOf } from "#millrace/core/order.js";
import { freshSchema } from "../support/postgres.js";

const shop = defineService("shop", {
  print: defineJob({
    payload: z.object({ number: z.number() }),
    concurrency: 100,
    retry: { backoff: () => 0 },
  }),
});

it("more than few jobs are claimed by one call", async () => {
  const { storeUrl } = await freshSchema();
  const service = await connect(shop, { url: storeUrl, keeper: false });
  onTestFinished(() => service.stop());
  const engine = await openEngine(storeUrl);
  onTestFinished(() => engine.close());
  const parts = { service: "shop", queue: "print", type: "print", typeVersion: 1 };
  const lane = { ...parts, lane: laneOf(parts), leaseMs: 30_000, free: 100 };
  const claim = async () => (await engine.claim({ worker: "w", lanes: [lane], limit: 100 })).jobs;
  expect(await claim()).toEqual([]);
  const numbers = Array.from({ length: 40 }, (_, number) => number);
  await service.jobs.print.createMany(numbers.map((number) => ({ payload: { number } }))).orThrow();
  const claimed = await claim();
  const claimedNumbers = claimed.map(({ job }) => (job.payload as { number: number }).number);
  expect(claimedNumbers.sort((a, b) => a - b)).toEqual(numbers);
  expect(new Set(claimed.map(({ job }) => `${job.state} ${job.token} ${job.tries}`))).toEqual(
    new Set(["active 1 1"]),
  );
  expect(await claim()).toEqual([]);
  await service.jobs.print.create({ number: 41 }).orThrow();
  const [last, ...others] = await claim();
  expect(others).toEqual([]);
  const [loaded] = await engine.load([last?.job.id ?? ""]);
  expect(loaded?.job).toEqual(last?.job);
});

it("a job that was tried before is claimed with its log", async () => {
  const { storeUrl } = await freshSchema();
  const service = await connect(shop, { url: storeUrl, keeper: false });
  onTestFinished(() => service.stop());
  const seen: number[] = [];
  service.jobs.print.handle(({ tries }) => {
    seen.push(tries);
    if (tries < 3) throw new Error("no paper");
  });
  await service.start();
  const job = await service.jobs.print.create({ number: 1 }).orThrow();
  await job.wait().orThrow();
  expect(seen).toEqual([1, 2, 3]);
  const events = await job.events().orThrow();
  expect(events.map(({ name }) => name)).toEqual([
    "created",
    "started",
    "retry",
    "started",
    "retry",
    "started",
    "completed",
  ]);
});
