// The service of the tests with real processes: charges, whose holds are short because their workers are killed,
// and jobs with a key of which there may be one.
import type { Database } from "better-sqlite3";
import { defineJob, defineService, type HandlerOf } from "millrace";
import { z } from "zod";

export const till = defineService("till", {
  charge: defineJob({
    payload: z.object({ orderId: z.string(), mode: z.enum(["atomic", "staged"]) }),
    leaseMs: 400,
    retry: { maxTries: 3, backoff: [0] },
  }),
  open: defineJob({
    payload: z.object({ counter: z.string() }),
    keyConcurrency: { key: ["/counter"] },
  }),
});

/** Where a process can be killed, in the order of an attempt. */
export const steps = [
  "prepared",
  "working",
  "written",
  "settled, not committed",
  "committed",
] as const;

export type Step = (typeof steps)[number];

/** Writes a charge into the shop's own table, in the transaction that completes the job. */
export function charging(
  reached: (step: Step) => void,
): HandlerOf<typeof till.jobs.charge, typeof till.jobs, Database> {
  return async ({ payload, prepare, complete, tries }) => {
    const { mode, orderId } = payload;
    await prepare({ mode }, ({ tx }) => tx.prepare("SELECT count(*) FROM charges").get());
    reached("prepared");
    await Promise.resolve();
    reached("working");
    return complete(({ tx }) => {
      tx.prepare("INSERT INTO charges VALUES (?, ?)").run(orderId, tries);
      reached("written");
    });
  };
}
