// The contract that the tests of chains use: an order that is charged, shipped or refunded, and an approval.
import { defineJob, defineService } from "millrace";
import { z } from "zod";

const account = z.object({ account: z.string() });
const order = z.object({ orderId: z.string() });

export const chainShop = defineService("shop", {
  charge: defineJob({ payload: order, continuations: ["ship", "refund"] }),
  ship: defineJob({
    payload: order.extend({ carrier: z.string().default("post") }),
    result: z.object({ parcel: z.string() }),
    continuations: ["refund"],
    retry: { maxTries: 1 },
  }),
  refund: defineJob({ payload: order, result: z.object({ refunded: z.boolean() }) }),
  approve: defineJob({
    payload: z.object({ requestId: z.string() }),
    result: z.object({ approved: z.boolean() }),
    continuations: ["ship"],
  }),
  agree: defineJob({ payload: account, continuations: ["draw"] }),
  draw: defineJob({
    payload: account,
    result: z.object({ drawn: z.boolean() }),
    keyConcurrency: { key: ["/account"], maxActive: 1 },
    queue: { maxQueuedPerKey: 0, whenFull: "reject" },
  }),
  lone: defineJob({ payload: order, result: z.number() }),
});
