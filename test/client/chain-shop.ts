// The contract that the tests of chains use: an order that is charged, shipped or refunded, and an approval.
import { defineJob, defineService } from "millrace";
import { z } from "zod";
import { openService, type Store } from "../support/stores.js";

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

/** A chain of any length. */
export const endless = defineService("endless", {
  step: defineJob({ payload: z.object({}), continuations: ["step"] }),
});

/** A shop whose workers are started: an order is charged and shipped, and what was returned is refunded. */
export async function startedShop(store: Store) {
  const service = await openService(store, chainShop);
  service.handle({
    charge: ({ payload, complete }) =>
      complete(({ continueWith }) => continueWith("ship", payload)),
    ship: async (job) => {
      if (job.payload.carrier === "lost") throw new Error("The parcel was lost.");
      if (job.payload.carrier !== "returned") return { parcel: `p-${job.payload.orderId}` };
      return job.complete(({ continueWith }) => continueWith("refund", job.payload));
    },
    refund: () => ({ refunded: true }),
  });
  await service.start();
  return service;
}
