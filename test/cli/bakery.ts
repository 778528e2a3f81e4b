// The module that the tests of the command line run: a bakery whose jobs end in every way.
import { defineJob, defineService, type Handlers, terminate } from "millrace";
import { z } from "zod";

export const bakery = defineService("bakery", {
  /** Gives back what it was given, and tells how far it has come. */
  bake: defineJob({
    payload: z.object({ loaves: z.number().int() }),
    result: z.object({ baked: z.number().int() }),
  }),
  /** Ends badly at once. */
  burn: defineJob({ payload: z.object({}), retry: { maxTries: 1 } }),
  /** Ends badly for good. */
  drop: defineJob({ payload: z.object({}) }),
  /** One at a time for each oven. */
  heat: defineJob({
    payload: z.object({ oven: z.string() }),
    keyConcurrency: { key: ["oven", "/oven"], maxActive: 1 },
    queue: { maxQueuedPerKey: 5 },
  }),
  /** Runs until it is told to stop. */
  rise: defineJob({ payload: z.object({}) }),
  /** Waits for its bread. */
  sell: defineJob({
    payload: z.object({}),
    result: z.object({ sold: z.number(), bread: z.string() }),
    blockers: { bread: "bake" },
  }),
  /** Begins a chain. */
  order: defineJob({ payload: z.object({}), continuations: ["bake", "sell"] }),
});

const handlers: Handlers<(typeof bakery)["jobs"]> = {
  bake: async ({ payload, progress, log }) => {
    await progress({ step: "kneading", current: 1, total: 2 });
    await log("The dough is ready.");
    return { baked: payload.loaves };
  },
  burn: async () => {
    throw new Error("The oven is too hot.");
  },
  drop: async () => terminate("It fell on the floor."),
  sell: async ({ blockers: { bread } }) => ({
    sold: bread.state === "completed" ? bread.result.baked : 0,
    bread: bread.state,
  }),
  order: ({ complete }) => complete(({ continueWith }) => continueWith("bake", { loaves: 5 })),
  rise: ({ signal }) =>
    new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    }),
};

export default { contract: bakery, handlers };
