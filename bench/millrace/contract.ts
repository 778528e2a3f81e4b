// The jobs that the benchmark runs on Millrace, defined as a user would define them.
import { defineJob, defineService } from "millrace";
import { z } from "zod";
import { workerConcurrency } from "../sizes.js";

const payload = z.object({ number: z.number(), key: z.string() });

/** How many jobs may wait behind the active one of a key: more than any measure creates. */
const keyQueueMax = 10_000;

/** A service with a plain job, one whose jobs exclude each other by key, and one that no worker handles. */
export const benchService = defineService("bench", {
  plain: defineJob({ payload, concurrency: workerConcurrency }),
  keyed: defineJob({
    payload,
    concurrency: workerConcurrency,
    keyConcurrency: { key: ["/key"], maxActive: 1 },
    queue: { maxQueuedPerKey: keyQueueMax },
  }),
  unhandled: defineJob({ payload }),
});

/** The job types of the service. */
export type JobType = keyof typeof benchService.jobs;
