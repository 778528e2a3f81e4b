// A worker that has nothing to do claims with a statement for few jobs that were never tried. Whatever else stands in line
// is claimed by the same call.
import { connect, defineJob, defineService, openEngine } from "millrace";
import { FakeClock } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { laneOf } from "#millrace/core/order.js";
import type { ClaimAnswer } from "#millrace/engine/engine.js";
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

describe("an idle claim of several lanes", () => {
  const press = defineService("press", {
    fold: defineJob({ payload: z.object({ number: z.number() }) }),
    bind: defineJob({ payload: z.object({ number: z.number() }) }),
    cut: defineJob({ payload: z.object({ number: z.number() }), maxActive: 2 }),
  });

  /** An engine whose last claim found nothing, with a service beside it, both on one clock. */
  async function openIdle() {
    const { storeUrl } = await freshSchema();
    const clock = new FakeClock();
    const service = await connect(press, { url: storeUrl, keeper: false, clock });
    onTestFinished(() => service.stop());
    const engine = await openEngine(storeUrl, { clock });
    onTestFinished(() => engine.close());
    const lanes = (["fold", "bind", "cut"] as const).map((type) => {
      const parts = { service: "press", queue: type, type, typeVersion: 1 };
      const cap = type === "cut" ? { typeMaxActive: 2 } : null;
      return { ...parts, ...cap, lane: laneOf(parts), leaseMs: 30_000, free: 60 };
    });
    const claim = (limit = 150) => engine.claim({ worker: "w", lanes, limit });
    for (let idle = 0; idle < 2; idle++) expect((await claim()).jobs).toEqual([]);
    return { service, clock, claim };
  }

  const numbersOf = ({ jobs }: ClaimAnswer) =>
    jobs.map(({ job }) => (job.payload as { number: number }).number);

  it("gives what was asked for, however many of one lane there are", async () => {
    const { service, claim } = await openIdle();
    const payloads = Array.from({ length: 25 }, (_, number) => ({ payload: { number } }));
    await service.jobs.fold.createMany(payloads).orThrow();
    await service.jobs.bind.create({ number: 100 }).orThrow();
    const numbers = numbersOf(await claim());
    expect(new Set(numbers).size).toBe(26);
    expect(numbers).toHaveLength(26);
  });

  it("gives the most urgent jobs of all lanes where there are few places", async () => {
    const { service, claim } = await openIdle();
    for (const priority of [2, 4, 3])
      await service.jobs.fold.create({ number: priority }, { priority }).orThrow();
    await service.jobs.bind.create({ number: 1 }, { priority: 1 }).orThrow();
    expect(numbersOf(await claim(3))).toEqual([4, 3, 2]);
    expect(numbersOf(await claim(3))).toEqual([1]);
  });

  it("gives nothing of a queue that is paused", async () => {
    const { service, claim } = await openIdle();
    await service.queues.pause("fold").orThrow();
    await service.jobs.fold.create({ number: 1 }).orThrow();
    await service.jobs.bind.create({ number: 2 }).orThrow();
    expect(numbersOf(await claim())).toEqual([2]);
    await service.queues.resume("fold").orThrow();
    expect(numbersOf(await claim())).toEqual([1]);
  });

  it("gives no more than a cap lets in", async () => {
    const { service, claim } = await openIdle();
    const payloads = [1, 2, 3].map((number) => ({ payload: { number } }));
    await service.jobs.cut.createMany(payloads).orThrow();
    await service.jobs.bind.create({ number: 4 }).orThrow();
    expect(numbersOf(await claim())).toHaveLength(3);
    expect(numbersOf(await claim())).toEqual([]);
  });

  it("tells when the next job is due, and gives it from then on", async () => {
    const { service, clock, claim } = await openIdle();
    const dueAt = clock.now() + 500;
    await service.jobs.bind.create({ number: 1 }, { runAt: dueAt }).orThrow();
    await service.jobs.fold.create({ number: 2 }).orThrow();
    const early = await claim();
    expect([numbersOf(early), early.nextDueAt]).toEqual([[2], dueAt]);
    await clock.advance(500);
    expect(numbersOf(await claim())).toEqual([1]);
  });
});
