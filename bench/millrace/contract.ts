// The jobs that the benchmark runs on Millrace, defined as a user would define them.
import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";
import { clusterCap, workerConcurrencyOn } from "../sizes.js";

const payload = z.object({ number: z.number(), key: z.string() });

/** How many jobs may wait behind the active one of a key: more than any measure creates. */
const keyQueueMax = 10_000;

/** A plain job, one whose jobs exclude each other by key, one with a cap, and one that no worker handles. */
function benchService(concurrency: number) {
  return defineService("bench", {
    plain: defineJob({ payload, concurrency }),
    keyed: defineJob({
      payload,
      concurrency,
      keyConcurrency: { key: ["/key"], maxActive: 1 },
      queue: { maxQueuedPerKey: keyQueueMax },
    }),
    capped: defineJob({ payload, concurrency, maxActive: clusterCap }),
    unhandled: defineJob({ payload }),
  });
}

/** The job types of the service. */
export type JobType = keyof ReturnType<typeof benchService>["jobs"];

/** Connects to an engine; the service has not been started. */
export function openService(url: string) {
  return connect(benchService(workerConcurrencyOn(url)), { url });
}

/** A service that is connected to an engine. */
export type BenchService = Awaited<ReturnType<typeof openService>>;
