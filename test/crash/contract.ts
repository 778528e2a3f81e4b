// The service of the crash test: quick, flaky, capped and keyed jobs with short leases.
import { defineJob, defineService } from "millrace";
import { z } from "zod";

/** How long a hold lasts; a process that is paused for longer has lost what it holds. */
export const leaseMs = 1_500;

const payload = z.object({
  key: z.string(),
  workMs: z.number(),
  /** How many tries fail. */
  fails: z.number(),
  /** Whether the handler ignores its signal. */
  isDeaf: z.boolean(),
});

export type Work = z.infer<typeof payload>;

const retry = { maxTries: 4, backoff: [50, 200] };
const common = { payload, retry, concurrency: 8 };
const free = { ...common, leaseMs };
const held = { key: ["/key"], heartbeatTtlMs: leaseMs, heartbeatIntervalMs: leaseMs / 3 };

export const contract = defineService("crash", {
  quick: defineJob(free),
  flaky: defineJob(free),
  capped: defineJob({ ...free, maxActive: 3 }),
  firstOfPool: defineJob({ ...free, queue: { name: "pool", maxActive: 4 } }),
  secondOfPool: defineJob({ ...free, queue: { name: "pool" } }),
  failsStale: defineJob({
    ...common,
    keyConcurrency: { ...held, stalePolicy: "fail-stale" },
    queue: { maxQueuedPerKey: 3, whenFull: "reject" },
  }),
  requeues: defineJob({
    ...common,
    keyConcurrency: { ...held, maxActive: 2, stalePolicy: "requeue" },
    queue: { maxQueuedPerKey: 5, whenFull: "coalesce" },
  }),
  blocks: defineJob({
    ...common,
    keyConcurrency: { ...held, stalePolicy: "block" },
    queue: { maxQueuedPerKey: 2, whenFull: "replace-oldest" },
  }),
});

export type JobType = keyof typeof contract.jobs;

/** The keys that keyed jobs share. */
export const keys = ["red", "green", "blue", "black"] as const;

/** Work that is done at once. */
export const noWork: Work = { key: "red", workMs: 0, fails: 0, isDeaf: false };
