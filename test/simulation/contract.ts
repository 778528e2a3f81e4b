// The service that is simulated: every rule that a job type can have, with leases of a few seconds,
// and handlers that do what the job's own plan says.
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { boundJobs } from "#millrace/contract/definition.js";
import { skip, snooze, terminate } from "#millrace/worker/outcome.js";
import type { Handler, WorkerJob } from "#millrace/worker/worker.js";
import { groupsOf, type HandlerLedger } from "./ledger.js";
import type { SimulatedProcess } from "./process.js";

/** How long a hold lasts in the simulation. */
export const leaseMs = 3_000;

/** What a handler does in one try. */
export interface PlanStep {
  readonly workMs: number;
  readonly says: "returned" | "threw" | "terminated" | "snoozed" | "skipped" | "completed";
  /** Whether it records progress and log lines on the way. */
  readonly notes: boolean;
  /** Whether it ignores its signal. */
  readonly isDeaf: boolean;
}

/** The payload of every simulated job: its key, and a step for each start, of which the last repeats. */
export interface Work {
  readonly key: string;
  readonly plan: readonly PlanStep[];
  /** What a job of a type that can go on continues with when it completes itself. */
  readonly next?: { readonly type: JobType; readonly work: Work };
}

const payload = takesAll<Work>();

/** What a job that may go on ends with where it does not. */
const anything = takesAll<object>();

function takesAll<Value>(): StandardSchemaV1<Value, Value> {
  return {
    "~standard": {
      version: 1,
      vendor: "simulation",
      validate: (value) => ({ value: value as Value }),
    },
  };
}

const backoff = { kind: "exponential", baseMs: 300, factor: 2, maxMs: 2_000, jitter: 0.5 } as const;
const retry = { maxTries: 3, backoff };
const keyed = { payload, retry, concurrency: 4 };
const common = { ...keyed, leaseMs };
const held = { key: ["/key"], heartbeatTtlMs: leaseMs, heartbeatIntervalMs: leaseMs / 3 };

export const contract = defineService("simulated", {
  plain: defineJob(common),
  once: defineJob({ ...common, retry: { maxTries: 1, backoff }, deadLetter: false }),
  capped: defineJob({ ...common, maxActive: 2 }),
  firstOfQueue: defineJob({ ...common, queue: { name: "shared", maxActive: 2 }, priority: 5 }),
  secondOfQueue: defineJob({ ...common, queue: { name: "shared" }, maxActive: 1 }),
  timed: defineJob({ ...common, timeoutMs: 1_500 }),
  dated: defineJob({ ...common, deadlineMs: 5_000 }),
  fleeting: defineJob({ ...common, retention: { completed: 0, skipped: 0 } }),
  failsStale: defineJob({
    ...keyed,
    keyConcurrency: { ...held, stalePolicy: "fail-stale" },
    queue: { maxQueuedPerKey: 1, whenFull: "reject" },
  }),
  requeues: defineJob({
    ...keyed,
    keyConcurrency: { ...held, maxActive: 2, stalePolicy: "requeue" },
    queue: { maxQueuedPerKey: 2, whenFull: "replace-oldest" },
  }),
  blocks: defineJob({
    ...keyed,
    keyConcurrency: { ...held, stalePolicy: "block" },
    queue: { maxQueuedPerKey: 1, whenFull: "coalesce" },
    maxActive: 2,
  }),
  single: defineJob({
    ...keyed,
    keyConcurrency: { ...held, stalePolicy: "requeue" },
    deadlineMs: 20_000,
  }),
  linked: defineJob({
    ...common,
    result: anything,
    continuations: ["linked", "plain", "capped", "failsStale", "requeues", "blocks", "fleeting"],
  }),
});

/** Every type by name, which a job's own work names, too. */
export type JobType =
  | "plain"
  | "once"
  | "capped"
  | "firstOfQueue"
  | "secondOfQueue"
  | "timed"
  | "dated"
  | "fleeting"
  | "failsStale"
  | "requeues"
  | "blocks"
  | "single"
  | "linked";

/** Every job type of the simulated service. */
export const jobTypes: readonly JobType[] = Object.keys(
  contract.jobs,
) as (keyof typeof contract.jobs)[];

/** The types that a chain can continue with. */
export const continuations = contract.jobs.linked.settings.continuations;

/** The keys that keyed jobs share. */
export const keys = ["a", "b"] as const;

/** The queues that an operator pauses. */
export const queues = ["plain", "shared", "requeues"] as const;

/** What a handler works with: its process, the tokens that the process has claimed, and the ledger. */
export interface HandlerPlace {
  readonly process: SimulatedProcess;
  readonly tokens: ReadonlyMap<string, number>;
  readonly ledger: HandlerLedger;
  readonly types: readonly JobType[];
}

/** The handlers of one process. */
export function workerJobs({ process, tokens, ledger, types }: HandlerPlace): WorkerJob[] {
  const wanted = boundJobs(contract).filter(({ type }) => types.includes(type as JobType));
  return wanted.map((bound) => {
    const handler: Handler = async (job) => {
      const { key, plan } = job.payload as Work;
      const token = tokens.get(job.id) ?? 0;
      const groups = groupsOf(bound, key);
      ledger.entered({ jobId: job.id, token, process: process.name, groups });
      const step = plan[Math.min(token, plan.length) - 1] ?? quick;
      let said: PlanStep["says"] = "threw";
      try {
        if (step.notes) {
          void job.progress({ step: "work", current: 1, total: 2 });
          void job.emit("working", { token });
          await job.log(`Token ${token} works for ${step.workMs} ms.`);
        }
        await working(process, step, job.signal);
        if (step.notes) await job.heartbeat();
        if (step.says === "completed") {
          const { next } = job.payload as Work;
          // The outcome may be stored and the process be gone before the handler is told.
          const completing = () => ledger.completing(job.id, token);
          return await job.complete(({ continueWith }) => {
            completing();
            return next ? continueWith(next.type, next.work) : { workMs: step.workMs };
          });
        }
        said = step.says;
        return spoken(step);
      } finally {
        ledger.left(job.id, token, said);
      }
    };
    return { bound, handler };
  });
}

const quick: PlanStep = { workMs: 0, says: "returned", notes: false, isDeaf: false };

function spoken({ says, workMs }: PlanStep): unknown {
  switch (says) {
    case "returned":
    case "completed":
      return { workMs };
    case "threw":
      throw new Error("planned");
    case "terminated":
      return terminate("planned");
    case "snoozed":
      return snooze(500, "planned");
    case "skipped":
      return skip("planned");
  }
}

/** Works for a while, and stops at once when it listens to its signal and is told to. */
function working(process: SimulatedProcess, step: PlanStep, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    process.clock.after(step.workMs, resolve);
    if (step.isDeaf) return;
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason));
  });
}
