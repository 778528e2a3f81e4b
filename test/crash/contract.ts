// The service of the crash test: quick, flaky, capped and keyed jobs with short leases, chains, jobs that wait
// for others, and jobs that are carried out in a transaction of their handler's own where the store can take part in it.
import { defineJob, defineService } from "millrace";
import { z } from "zod";

/** How long a hold lasts; a process that is paused for longer has lost what it holds. */
export const leaseMs = 1_500;

/** The types that a chain goes on with. What a keyed one may not do at once is skipped, so that the chain has an end. */
const steps = ["linked", "quick", "capped", "failsStale", "requeues", "blocks"] as const;

const payload = z.object({
  key: z.string(),
  workMs: z.number(),
  /** How many tries fail. */
  fails: z.number(),
  /** Whether the handler ignores its signal. */
  isDeaf: z.boolean(),
  /** What a chain goes on with, step by step. */
  next: z.array(z.enum(steps)),
});

export type Work = z.infer<typeof payload>;

/** How often a job is tried; one that fails as often ends badly. */
export const triesMax = 4;

const retry = { maxTries: triesMax, backoff: [50, 200] };
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
  linked: defineJob({ ...free, continuations: steps }),
  charge: defineJob({
    ...free,
    concurrency: 2,
    result: z.object({ tries: z.number() }),
    continuations: steps,
  }),
  waits: defineJob({ ...free, blockers: { job: "flaky", chain: "linked" } }),
});

/** The types whose jobs need nothing but their work. */
export const plainTypes = [
  "quick",
  "flaky",
  "capped",
  "firstOfPool",
  "secondOfPool",
  "failsStale",
  "requeues",
  "blocks",
] as const satisfies readonly JobType[];

export type JobType = keyof typeof contract.jobs;

/** The keys that keyed jobs share. */
export const keys = ["red", "green", "blue", "black"] as const;

/** Work that is done at once. */
export const noWork: Work = { key: "red", workMs: 0, fails: 0, isDeaf: false, next: [] };
