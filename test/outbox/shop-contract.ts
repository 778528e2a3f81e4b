// The contract of the shop, and engines that a test changes, for processes that run no tests, too.
import { defineJob, defineService } from "millrace";
import { z } from "zod";
import type { Engine } from "#millrace/engine/engine.js";

const order = z.object({ orderId: z.string() });

export const shop = defineService("shop", {
  charge: defineJob({ payload: order, result: z.object({ paid: z.string() }) }),
  pack: defineJob({ payload: order, continuations: ["charge"], blockers: { paid: "charge" } }),
  strict: defineJob({ payload: order, keyConcurrency: { key: ["/orderId"] } }),
  merged: defineJob({
    payload: order,
    keyConcurrency: { key: ["/orderId"] },
    queue: { maxQueuedPerKey: 1, whenFull: "coalesce" },
  }),
  lined: defineJob({
    payload: order,
    keyConcurrency: { key: ["/orderId"] },
    queue: { maxQueuedPerKey: 1_000 },
  }),
});

/** An engine with some of its methods replaced. */
export function changed(engine: Engine, changes: Partial<Engine>): Engine {
  return new Proxy(engine, {
    get: (target, name) => {
      if (Object.hasOwn(changes, name)) return changes[name as keyof Engine];
      const member = Reflect.get(target, name, target) as unknown;
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
}
