// What metrics cost and what they survive: bounded labels and tables, one reading for many scrapes, a store that is away.
import { defineJob, defineService } from "millrace";
import { Registry } from "prom-client";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import type { EventOf, JobEvent } from "#millrace/core/event.js";
import { createCatalog } from "#millrace/server/metrics/catalog.js";
import { FeedCounts } from "#millrace/server/metrics/feed-counts.js";
import { JobTimes } from "#millrace/server/metrics/job-times.js";
import { LabelLimit, pairsMax } from "#millrace/server/metrics/label-limit.js";
import { Metrics } from "#millrace/server/metrics/metrics.js";
import { freshMs } from "#millrace/server/metrics/store-gauges.js";
import { Workshop } from "../../worker/workshop.js";
import { expectSums, parse, sum } from "./exposition.js";

/** The lease of types that say nothing of it. */
const leaseMs = 30_000;
const contract = defineService("shop", {
  order: defineJob({ payload: z.object({}) }),
  last: defineJob({ payload: z.object({}), retry: { maxTries: 1 } }),
  stuck: defineJob({
    payload: z.object({}),
    keyConcurrency: { key: ["all"], stalePolicy: "block" },
  }),
  stale: defineJob({ payload: z.object({}), keyConcurrency: { key: ["all"] } }),
});

async function watched(workshop: Workshop): Promise<Metrics> {
  const { engine, clock } = workshop;
  const { logger } = workshop.runtime("m1");
  const metrics = new Metrics({ engine, clock, logger });
  await metrics.start();
  onTestFinished(() => metrics.stop());
  return metrics;
}

/** A process that claims a job of each type and is never heard of again. */
async function claimAndDie({ engine }: Workshop): Promise<void> {
  const lanes = Object.keys(contract.jobs).map((type) => {
    return { lane: `shop/${type}/${type}@1`, service: "shop", queue: type, type, free: 1, leaseMs };
  });
  const { jobs } = await engine.claim({ worker: "w-lost", lanes, limit: lanes.length });
  expect(jobs).toHaveLength(lanes.length);
}

test("lapsed leases are counted by what became of the job", async () => {
  const workshop = new Workshop(contract);
  const metrics = await watched(workshop);
  for (const type of Object.keys(contract.jobs)) await workshop.create(type);
  await claimAndDie(workshop);
  const cancelled = await workshop.create("order");
  const { jobs } = await workshop.engine.claim({
    worker: "w-lost",
    lanes: [
      {
        lane: "shop/order/order@1",
        service: "shop",
        queue: "order",
        type: "order",
        free: 1,
        leaseMs,
      },
    ],
    limit: 1,
  });
  expect(jobs.map(({ job }) => job.id)).toEqual([cancelled]);
  await workshop.cancel(cancelled);
  const keeper = workshop.keeper();
  await keeper.start();
  onTestFinished(() => keeper.stop());
  await workshop.clock.advance(leaseMs + 5_000);

  expectSums(parse(await metrics.text()), {
    'millrace_leases_lapsed_total{type="order",outcome="retry"}': 1,
    'millrace_leases_lapsed_total{type="order",outcome="cancelled"}': 1,
    'millrace_leases_lapsed_total{type="last",outcome="dead"}': 1,
    'millrace_leases_lapsed_total{type="stuck",outcome="keyBlocked"}': 1,
    'millrace_leases_lapsed_total{type="stale",outcome="stale"}': 1,
    'millrace_retries_total{type="order",reason="orphaned"}': 1,
    'millrace_keys_blocked{type="stuck"}': 1,
    'millrace_jobs_ended_total{state="dead"}': 1,
  });
});

test("many scrapes at once, and soon after one another, read the store once", async () => {
  const workshop = new Workshop(contract);
  const metrics = await watched(workshop);
  const texts = await Promise.all(Array.from({ length: 50 }, () => metrics.text()));
  expect(new Set(texts.map((text) => sum(parse(text), "millrace_store_up")))).toEqual(new Set([1]));
  const readings = workshop.count("query");
  await metrics.text();
  expect(workshop.count("query")).toBe(readings);
  await workshop.clock.advance(freshMs);
  await metrics.text();
  expect(workshop.count("query")).toBe(readings * 2);
});

test("while the store is away the rest is told, and nothing old is taken for new", async () => {
  const workshop = new Workshop(contract);
  const metrics = await watched(workshop);
  await workshop.create("order");
  await workshop.turn();
  expect(sum(parse(await metrics.text()), "millrace_jobs")).toBe(1);
  workshop.trouble.query = "refuse";
  await workshop.clock.advance(freshMs);
  expectSums(parse(await metrics.text()), {
    millrace_store_up: 0,
    millrace_jobs: undefined,
    millrace_jobs_created_total: 1,
  });
  expect(workshop.logged("could not be read for metrics")).toHaveLength(1);
  workshop.trouble.query = "none";
  await workshop.clock.advance(freshMs);
  expectSums(parse(await metrics.text()), { millrace_store_up: 1, millrace_jobs: 1 });
});

test("a store that does not answer holds up no scrape for longer than its patience", async () => {
  const workshop = new Workshop(contract);
  const silent = new Proxy(workshop.engine, {
    get: (target, name) =>
      name === "query" ? () => new Promise(() => {}) : Reflect.get(target, name, target),
  });
  const metrics = new Metrics({ engine: silent, clock: workshop.clock });
  const text = metrics.text();
  await workshop.clock.advance(10_000);
  expect(sum(parse(await text), "millrace_store_up")).toBe(0);
});

test("a feed that breaks off is read on where it was", async () => {
  const workshop = new Workshop(contract);
  let breaks = 1;
  const breaking = new Proxy(workshop.engine, {
    get: (target, name) => {
      if (name !== "tail") return Reflect.get(target, name, target);
      return async function* (...given: Parameters<typeof target.tail>) {
        for await (const item of target.tail(...given)) {
          yield item;
          if (breaks-- > 0) throw new Error("The line is cut.");
        }
      };
    },
  });
  const { logger } = workshop.runtime("m1");
  const metrics = new Metrics({ engine: breaking, clock: workshop.clock, logger });
  await metrics.start();
  onTestFinished(() => metrics.stop());
  for (let n = 0; n < 3; n++) await workshop.create("order");
  await workshop.clock.advance(2_000);
  expect(sum(parse(await metrics.text()), "millrace_jobs_created_total")).toBe(3);
  expect(workshop.logged("broke off")).toHaveLength(1);
});

test("an event that cannot be counted is passed over", async () => {
  const workshop = new Workshop(contract);
  const { engine, clock } = workshop;
  const events = [{ ...created("a"), name: "retry" } as unknown as JobEvent, created("b")];
  const metrics = new Metrics({
    engine,
    clock,
    follow: async function* (cursor) {
      for (let n = Number(cursor); n < events.length; n++) {
        yield { cursor: String(n + 1), event: events[n] as JobEvent };
      }
    },
  });
  await metrics.start();
  onTestFinished(() => metrics.stop());
  await clock.advance(2_000);
  expect(sum(parse(await metrics.text()), "millrace_jobs_created_total")).toBe(1);
});

function counting(times?: JobTimes) {
  const registry = new Registry();
  const types = new LabelLimit("service", "type");
  const counts = new FeedCounts(createCatalog(registry), types, times);
  return { counts, read: async () => parse(await registry.metrics()) };
}

const envelope = {
  id: "e",
  service: "shop",
  type: "order",
  version: 1,
  run: 1,
  tries: 0,
  state: "pending",
  previousState: null,
  at: 1_000,
  actor: "client:c",
  context: { requestId: "r", traceId: "t", traceparent: "p" },
} as const;

function created(jobId: string, type = "order"): EventOf<"created"> {
  return {
    ...envelope,
    ...{ name: "created", jobId, type, typeVersion: 1, queue: type, payload: {}, maxTries: 5 },
    ...{ priority: 0, runAt: 1_000, deadLetter: true, tags: [], blockers: [] },
  };
}

function started(jobId: string, at: number): JobEvent {
  return { ...envelope, name: "started", jobId, at, state: "active", token: 1, worker: "w" };
}

function deleted(jobId: string, actor: JobEvent["actor"]): JobEvent {
  const states = { state: "completed", previousState: "completed" } as const;
  return { ...envelope, ...states, name: "deleted", jobId, actor, reason: "retention" };
}

test("types beyond the limit are counted together", async () => {
  const { counts, read } = counting();
  for (let n = 0; n < pairsMax + 3; n++) counts.count(created(`j-${n}`, `made-up-${n}`));
  const family = (await read()).get("millrace_jobs_created_total");
  expect(family?.samples).toHaveLength(pairsMax + 1);
  expect(family?.samples.find(({ labels }) => labels.type === "other")?.value).toBe(3);
});

test("no more jobs are timed at once than there is room for, and all are counted", async () => {
  const { counts, read } = counting(new JobTimes(2));
  for (const id of ["a", "b", "c"]) counts.count(created(id));
  for (const id of ["a", "b", "c"]) counts.count(started(id, 3_500));
  expectSums(await read(), {
    millrace_jobs_untracked_total: 1,
    millrace_tries_started_total: 3,
    millrace_job_wait_seconds_count: 2,
    millrace_job_wait_seconds_sum: 5,
  });
});

test("a job that was removed with its log as soon as it ended is counted once", async () => {
  const { counts, read } = counting();
  // Its whole life was seen; only its beginning was; nothing was; and one that retention removes, counted long ago.
  counts.count(created("whole"));
  const result = { completedBy: "w" } as const;
  counts.count({ ...envelope, ...result, state: "completed", name: "completed", jobId: "whole" });
  counts.count(deleted("whole", "worker:w"));
  counts.count(created("begun"));
  counts.count(deleted("begun", "worker:w"));
  counts.count(deleted("unseen", "worker:w"));
  counts.count(deleted("old", "keeper:k"));
  expectSums(await read(), {
    millrace_jobs_created_total: 3,
    'millrace_jobs_ended_total{state="completed"}': 3,
  });
});
