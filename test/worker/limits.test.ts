// What limits do to the jobs that they hold up: given back until their turn, at no cost, and without a hot loop.
import { expect, it } from "vitest";
import { z } from "zod";
import { createClient } from "#millrace/client/client.js";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { boundJobs } from "#millrace/contract/definition.js";
import { canonicalHash } from "#millrace/core/json.js";
import { recordId } from "#millrace/engine/record.js";
import { type Middleware, MiddlewareStack } from "#millrace/worker/middleware.js";
import { logging, type TryTiming, timing } from "#millrace/worker/observe.js";
import { snooze } from "#millrace/worker/outcome.js";
import { type RateLimitOptions, rateLimit } from "#millrace/worker/rate-limit.js";
import { limitByTag } from "#millrace/worker/tag-limit.js";
import { createWorker, type Handler } from "#millrace/worker/worker.js";
import { gate, untilAborted, Workshop } from "./workshop.js";

async function shop(handler: Handler, ...middleware: readonly Middleware[]) {
  const workshop = new Workshop(
    defineService("shop", {
      call: defineJob({ payload: z.object({}).loose(), concurrency: 50, retry: { maxTries: 1 } }),
    }),
  );
  const stack = new MiddlewareStack();
  stack.use(middleware);
  const client = createClient(workshop.runtime("w1"), workshop.contract);
  const jobs = boundJobs(workshop.contract).map((bound) => ({ bound, handler }));
  const start = async () => {
    const worker = createWorker({ client, jobs, middleware: stack });
    await worker.start();
    return worker;
  };
  return { workshop, worker: await start(), start };
}

async function started(options: RateLimitOptions, jobs: readonly object[]) {
  const begun: number[] = [];
  const { workshop, worker } = await shop(() => {
    begun.push(workshop.clock.now());
  }, rateLimit(options));
  const startAt = workshop.clock.now();
  const ids: string[] = [];
  for (const payload of jobs) ids.push(await workshop.create("call", payload));
  await workshop.clock.advance(20_000);
  await worker.stop();
  const starts = await Promise.all(
    ids.map(async (id) => (await workshop.names(id)).filter((name) => name === "started").length),
  );
  return { at: begun.map((time) => time - startAt), starts, workshop, ids };
}

it("gives each job its turn, which it takes without asking again", async () => {
  const { at, starts, workshop, ids } = await started(
    { limit: 2, windowMs: 1_000 },
    Array.from({ length: 7 }, () => ({})),
  );
  expect(at).toEqual([0, 0, 1_000, 1_000, 2_000, 2_000, 3_000]);
  expect(starts).toEqual([1, 1, 2, 2, 2, 2, 2]);
  expect(await workshop.job(ids[6] ?? "")).toMatchObject({ state: "completed", tries: 1 });
  const released = (await workshop.events(ids[6] ?? "")).find(({ name }) => name === "released");
  expect(released).toMatchObject({ cause: "snooze", reason: "limited to 2 in 1000 ms" });
});

it("holds the rate also when jobs come late to their turns", async () => {
  const begun: number[] = [];
  const limit = rateLimit({ limit: 1, windowMs: 1_000 });
  const handler = () => void begun.push(workshop.clock.now());
  const { workshop, worker, start } = await shop(handler, limit);
  const startAt = workshop.clock.now();
  for (let jobs = 0; jobs < 3; jobs++) await workshop.create("call");
  await workshop.turn();
  await worker.stop();
  // The turns of two jobs pass while nobody works.
  await workshop.clock.advance(2_500);
  const next = await start();
  await workshop.clock.advance(10_000);
  expect(begun.map((time) => time - startAt)).toEqual([0, 2_500, 3_500]);
  await next.stop();
});

it("counts by what it is told to count, and leaves alone what is not counted", async () => {
  const { at } = await started(
    {
      limit: 1,
      windowMs: 5_000,
      by: ({ payload }) => (payload as { host?: string }).host ?? null,
    },
    [{ host: "a" }, { host: "a" }, { host: "b" }, {}, {}],
  );
  expect(at).toEqual([0, 0, 0, 0, 5_000]);
});

it("has room for new jobs when those with a turn never come", async () => {
  const begun: string[] = [];
  const { workshop, worker } = await shop(
    (job) => {
      begun.push(job.id);
    },
    rateLimit({ limit: 1, windowMs: 1_000 }),
  );
  const first = await workshop.create("call");
  const second = await workshop.create("call");
  await workshop.turn();
  await workshop.cancel(second);
  await workshop.clock.advance(61_500);
  const third = await workshop.create("call");
  await workshop.turn();
  expect(begun).toEqual([first, third]);
  await worker.stop();
});

it("passes places on within the process, and gives jobs back that wait for too long", async () => {
  const gates = [gate(), gate()];
  let entered = 0;
  const { workshop, worker } = await shop(
    async () => {
      await gates[entered++]?.opened;
    },
    limitByTag({ slow: 1 }),
  );
  const ids = [
    await workshop.create("call", {}, { tags: ["slow"] }),
    await workshop.create("call", {}, { tags: ["slow"] }),
    await workshop.create("call", {}, { tags: ["slow"] }),
  ];
  await workshop.turn();
  expect(entered).toBe(1);
  const swaps = workshop.count("swap");
  gates[0]?.open();
  await workshop.turn();
  expect(entered).toBe(2);
  // The place went from one to the next without a write.
  expect(workshop.count("swap")).toBe(swaps);
  await workshop.clock.advance(2_000);
  const third = await workshop.job(ids[2] ?? "");
  expect(third).toMatchObject({ state: "pending", tries: 0, reason: "limited by tag: slow" });
  gates[1]?.open();
  await workshop.clock.advance(5_000);
  expect(await workshop.job(ids[2] ?? "")).toMatchObject({ state: "completed", tries: 1 });
  await worker.stop();
});

it("keeps its places for as long as a handler runs", async () => {
  const { workshop, worker } = await shop(
    ({ signal }) => untilAborted(signal),
    limitByTag({ slow: 1 }),
  );
  await workshop.create("call", {}, { tags: ["slow"] });
  const other = await workshop.create("call", {}, { tags: ["slow"] });
  await workshop.clock.advance(100_000);
  const names = await workshop.names(other);
  expect(names.filter((name) => name === "released").length).toBeGreaterThan(10);
  expect((await workshop.job(other)).tries).toBeLessThanOrEqual(1);
  expect(worker.active).toBeLessThanOrEqual(2);
  await worker.stop();
});

it("takes over the place of a process that is gone, when it has lapsed", async () => {
  const begun: number[] = [];
  const { workshop, worker } = await shop(
    () => void begun.push(workshop.clock.now()),
    limitByTag({ slow: 1 }),
  );
  const startAt = workshop.clock.now();
  const id = recordId.places("shop", canonicalHash({ tag: "slow" }));
  const body = { holders: [["lost", startAt + 30_000]] };
  await workshop.engine.swap([{ id, expect: 0, body, expiresAt: startAt + 60_000 }]);
  await workshop.create("call", {}, { tags: ["slow"] });
  await workshop.clock.advance(29_999);
  expect(begun).toEqual([]);
  await workshop.clock.advance(4_000);
  expect(begun).toHaveLength(1);
  await worker.stop();
});

it("logs tries without payloads, and times them", async () => {
  const timings: TryTiming[] = [];
  let tries = 0;
  const { workshop, worker } = await shop(
    async (job) => {
      await new Promise<void>((resolve) => workshop.clock.after(250, resolve));
      tries += 1;
      if (tries === 1) return snooze(10);
      throw new Error(`no ${job.type}`);
    },
    logging(),
    timing((each) => timings.push(each)),
  );
  const id = await workshop.create("call", { password: "open sesame" });
  await workshop.clock.advance(5_000);
  expect(timings).toEqual([
    { jobId: id, type: "call", tries: 1, outcome: "snoozed", durationMs: 250 },
    { jobId: id, type: "call", tries: 1, outcome: "threw", durationMs: 250 },
  ]);
  const { requestId, traceId } = (await workshop.job(id)).context;
  expect(workshop.logged("A try begins")[0]?.fields).toEqual({
    jobId: id,
    type: "call",
    tries: 1,
    run: 1,
    requestId,
    traceId,
  });
  expect(workshop.logged("A try has failed")[0]?.fields).toMatchObject({ outcome: "threw" });
  expect(JSON.stringify(workshop.lines)).not.toContain("sesame");
  await worker.stop();
});

it("refuses limits that cannot work", () => {
  expect(() => rateLimit({ limit: 0, windowMs: 1 })).toThrow("limit is 0");
  expect(() => rateLimit({ limit: 1, windowMs: 0.5 })).toThrow("windowMs is 0.5");
  expect(() => limitByTag({ slow: 0 })).toThrow("the limit of slow is 0");
});
