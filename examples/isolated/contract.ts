// The contract of the isolated example: what its jobs take and give, and what their processes may use.
import { defineJob, defineService } from "millrace";
import { z } from "zod";

export const text = defineService("text", {
  count: defineJob({
    payload: z.object({ text: z.string() }),
    result: z.object({ words: z.number() }),
    isolate: { memoryMb: 128 },
    timeoutMs: 5_000,
    retry: { maxTries: 1 },
  }),
  sort: defineJob({
    payload: z.object({ lines: z.array(z.string()) }),
    result: z.string(),
    isolate: true,
  }),
});
