// A leader that dies between making a job and moving its schedule on, where a store cannot do both at once: whoever comes
// next fires nothing twice, even if the job is long done with and removed.
import { expect, it } from "vitest";
import { z } from "zod";
import { createClient } from "#millrace/client/client.js";
import { createIds } from "#millrace/client/ids.js";
import { Schedules } from "#millrace/client/schedules.js";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { scheduledJobId } from "#millrace/core/schedule.js";
import type { Engine } from "#millrace/engine/engine.js";
import { silentLogger } from "#millrace/engine/logger.js";
import { createKeeper } from "#millrace/keeper/keeper.js";
import { Deployment, dead, signal } from "../support/nats-engine.js";

const contract = defineService("shop", { mail: defineJob({ payload: z.object({}) }) });
const minuteMs = 60_000;

it("an instant whose job was removed before its schedule knew of it is not fired again", async () => {
  const deployment = await Deployment.make();
  const { env } = deployment;
  const runtime = (engine: Engine, instance: string) => {
    const ids = createIds(() => env.clock.now());
    return { engine, instance, ids, clock: env.clock, logger: silentLogger, service: "shop" };
  };
  const schedules = new Schedules(createClient(runtime(env.engine, "api"), contract), contract);
  const spec = { type: "mail", payload: {}, everyMs: minuteMs };
  const { createdAt } = await schedules.create("beat", spec).orThrow();
  const id = scheduledJobId("shop", "beat", createdAt + minuteMs);

  const reached = signal();
  const dying = await deployment.process((step, go) => {
    if (!step.subjects.some((subject) => subject.endsWith(".schedule.beat"))) return go();
    reached.give();
    return dead;
  });
  env.clock.advance(minuteMs);
  void createKeeper({ runtime: runtime(dying.engine, "k1"), contract }).tick();
  await reached.given;
  expect((await schedules.get("beat").orThrow()).lastFired).toBeUndefined();
  env.clock.advance(1_000);
  await env.complete(await env.claimOne());
  await env.command(id, { command: "delete", reason: "retention" });

  env.clock.advance(1_000);
  await createKeeper({ runtime: runtime(env.engine, "k2"), contract }).tick();
  expect(await env.find(id)).toBeNull();
  expect((await schedules.get("beat").orThrow()).lastFired).toEqual({
    at: createdAt + minuteMs,
    jobId: id,
  });
});
