// A contract with a hook for the end of its jobs, and a keeper that is soon replaced.
import { defineJob, defineService, type HookJob } from "millrace";
import { z } from "zod";

export const keeper = { ttlMs: 500, renewMs: 100, tickMs: 50 };

export function hookedShop(onEnd: (job: HookJob<unknown, unknown>) => void) {
  return defineService("shop", { mail: defineJob({ payload: z.object({}), hooks: { onEnd } }) });
}
