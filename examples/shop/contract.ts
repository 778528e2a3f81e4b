// The jobs of the example shop: one type for each thing that Millrace does for you.
import { defineJob, defineService } from "millrace";
import { z } from "zod";

/** Short, so that jobs of a killed process are taken over within seconds while you watch. */
const leaseMs = 5_000;

export const shop = defineService("shop", {
  /** Quick, and many of them. Those of important customers go first. */
  sendReceipt: defineJob({
    payload: z.object({ orderId: z.string(), to: z.string() }),
    result: z.object({ messageId: z.string() }),
    concurrency: 200,
    leaseMs,
  }),
  /** Slow, and tells how far it has come. */
  renderInvoice: defineJob({
    payload: z.object({ orderId: z.string(), pages: z.number().int().positive() }),
    result: z.object({ file: z.string() }),
    concurrency: 4,
    leaseMs,
  }),
  /** Fails now and then and is tried again after a short, growing time. */
  chargeCard: defineJob({
    payload: z.object({
      orderId: z.string(),
      cents: z.number().int(),
      /** How often the bank fails before it answers, for the sake of the example. */
      bankFailures: z.number().int(),
    }),
    result: z.object({ transactionId: z.string() }),
    retry: { maxTries: 4, backoff: { kind: "exponential", baseMs: 250, factor: 2 } },
    leaseMs,
  }),
  /** Keyed: one at a time for each branch; while one waits, another would do the same work again. */
  syncStock: defineJob({
    payload: z.object({ branch: z.string() }),
    keyConcurrency: {
      key: ["stock", "/branch"],
      maxActive: 1,
      heartbeatIntervalMs: 1_500,
      heartbeatTtlMs: leaseMs,
      stalePolicy: "requeue",
    },
    queue: { maxQueuedPerKey: 1, whenFull: "coalesce" },
  }),
  /** Delayed: created now, run later. */
  remindCustomer: defineJob({ payload: z.object({ to: z.string() }), leaseMs }),
  /** Dies: the courier never answers, and after the last try the job waits for a person. */
  callCourier: defineJob({
    payload: z.object({ orderId: z.string() }),
    retry: { maxTries: 3, backoff: [300, 700] },
    leaseMs,
  }),
  /** Long, and cancelled half way. */
  exportCatalogue: defineJob({ payload: z.object({ products: z.number().int() }), leaseMs }),
  /** Expires: nobody needs the quote after its deadline. */
  quoteShipping: defineJob({
    payload: z.object({ orderId: z.string() }),
    deadlineMs: 1_500,
    leaseMs,
  }),
});

/** The job types of the shop. */
export type ShopJobs = (typeof shop)["jobs"];
