// The contract that the client's tests use, with a type for each thing to be shown.
import { defineJob, defineService } from "millrace";
import { z } from "zod";

export const shop = defineService("shop", {
  greet: defineJob({
    payload: z.object({ name: z.string(), loud: z.boolean().default(false) }),
    result: z.object({ text: z.string() }),
  }),
  slow: defineJob({
    payload: z.object({ name: z.string().refine(async (name) => name !== "nobody") }),
    deadlineMs: 60_000,
    queue: { maxAgeMs: 3_600_000 },
    priority: 7,
    retry: { maxTries: 2, backoff: [0] },
  }),
  strict: defineJob({
    payload: z.object({ tenant: z.string() }),
    keyConcurrency: { key: ["strict", "/tenant"] },
  }),
  merged: defineJob({
    payload: z.object({ tenant: z.string() }),
    keyConcurrency: { key: ["merged", "/tenant"] },
    queue: { maxQueuedPerKey: 1, whenFull: "coalesce" },
  }),
  newest: defineJob({
    payload: z.object({ tenant: z.string() }),
    keyConcurrency: { key: ["newest", "/tenant"] },
    queue: { maxQueuedPerKey: 1, whenFull: "replace-oldest" },
  }),
  loose: defineJob({ payload: z.unknown() }),
});
