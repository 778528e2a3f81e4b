// The hooks of ended jobs: called for every end, once a leader has gone also by the next, and before the job is removed.
import { expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import type { HookJob } from "#millrace/contract/hooks.js";
import { createKeeper } from "#millrace/keeper/keeper.js";
import { gate, Workshop } from "../worker/workshop.js";

const payload = z.object({});

function shop() {
  const called: string[] = [];
  let hold: Promise<void> | undefined;
  const note = (hook: string) => (job: HookJob<unknown, unknown>) => {
    called.push(`${hook} ${job.state}`);
    return hold;
  };
  const hooks = { onSuccess: note("onSuccess"), onFail: note("onFail"), onEnd: note("onEnd") };
  const workshop = new Workshop(
    defineService("shop", {
      mail: defineJob({ payload, hooks, retry: { maxTries: 1 } }),
      unkept: defineJob({ payload, hooks, retention: { completed: 0 } }),
    }),
  );
  return {
    workshop,
    called,
    holdUp: (until: Promise<void> | undefined) => {
      hold = until;
    },
  };
}

it("calls onSuccess and onFail where no worker wrote the end, and onEnd after them", async () => {
  const { workshop, called } = shop();
  const keeper = workshop.keeper();
  await keeper.start();
  await workshop.complete(await workshop.create("mail"));
  await workshop.turn();
  expect(called).toEqual(["onSuccess completed", "onEnd completed"]);
  await workshop.create("mail");
  const lane = { lane: "shop/mail/mail@1", service: "shop", queue: "mail", type: "mail" };
  const lanes = [{ ...lane, free: 1, leaseMs: 30_000 }];
  await workshop.engine.claim({ worker: "lost", lanes, limit: 1 });
  await workshop.clock.advance(32_000);
  expect(called.slice(2)).toEqual(["onFail dead", "onEnd dead"]);
  await keeper.stop();
});

it("leaves onSuccess to the worker that gave the outcome", async () => {
  const { workshop, called } = shop();
  const keeper = workshop.keeper();
  await keeper.start();
  const worker = await workshop.start({ mail: () => null });
  await workshop.create("mail");
  await workshop.turn();
  expect([...called].sort()).toEqual(["onEnd completed", "onSuccess completed"]);
  await worker.stop();
  await keeper.stop();
});

it("goes on where a leader was lost between an end and its hook", async () => {
  const { workshop, called, holdUp } = shop();
  const lost = workshop.keeper("k1");
  await lost.start();
  await workshop.complete(await workshop.create("mail"));
  await workshop.clock.advance(2_000);
  expect(called).toHaveLength(2);
  // The second end's hook never returns, and the process is gone with it.
  holdUp(new Promise(() => {}));
  await workshop.complete(await workshop.create("mail"));
  await workshop.clock.advance(1_500);
  workshop.trouble.swap = "refuse";
  await workshop.clock.advance(10_000);
  workshop.trouble.swap = "none";
  holdUp(undefined);
  called.length = 0;
  const next = workshop.keeper("k2");
  await next.start();
  await workshop.clock.advance(6_000);
  expect(called).toEqual(["onSuccess completed", "onEnd completed"]);
  await next.stop();
});

it("waits out a store that cannot be read", async () => {
  const { workshop, called } = shop();
  const keeper = workshop.keeper();
  await keeper.start();
  const worker = await workshop.start({ mail: () => null });
  workshop.trouble.load = "refuse";
  await workshop.create("mail");
  await workshop.clock.advance(3_000);
  expect(called).toEqual(["onSuccess completed"]);
  expect(workshop.logged("could not be read; its hooks wait").length).toBeGreaterThan(1);
  workshop.trouble.load = "none";
  await workshop.clock.advance(1_000);
  expect(called).toEqual(["onSuccess completed", "onEnd completed"]);
  await worker.stop();
  await keeper.stop();
});

it("calls hooks beside a keeper that leads and does not know them, and keeps jobs from it", async () => {
  const { workshop, called, holdUp } = shop();
  const plain = defineService("shop", {
    mail: defineJob({ payload }),
    unkept: defineJob({ payload, retention: { completed: 0 } }),
  });
  const other = createKeeper({ runtime: workshop.runtime("server"), contract: plain });
  await other.start();
  const keeper = workshop.keeper();
  await keeper.start();
  expect([other.isLeader, keeper.isLeader]).toEqual([true, false]);
  const { opened, open } = gate();
  holdUp(opened);
  const id = await workshop.create("unkept");
  await workshop.complete(id);
  await workshop.clock.advance(50_000);
  expect(called).toEqual(["onSuccess completed"]);
  expect(await workshop.exists(id)).toBe(true);
  open();
  await workshop.clock.advance(200_000);
  expect(called).toEqual(["onSuccess completed", "onEnd completed"]);
  expect(await workshop.exists(id)).toBe(false);
  await keeper.stop();
  await other.stop();
});

it("calls nothing for what had ended before any process knew the hooks", async () => {
  const { workshop, called } = shop();
  await workshop.complete(await workshop.create("mail"));
  const keeper = workshop.keeper();
  await keeper.start();
  await workshop.clock.advance(2_000);
  expect(called).toEqual([]);
  await keeper.stop();
});

it("gives a hook the job as it had ended, even if it was retried since", async () => {
  const { workshop, called, holdUp } = shop();
  const keeper = workshop.keeper();
  await keeper.start();
  const { opened, open } = gate();
  holdUp(opened);
  const id = await workshop.create("mail");
  await workshop.cancel(id);
  await workshop.turn();
  const { command } = await import("#millrace/client/commands.js");
  const origin = { eventId: workshop.ids.eventId(), actor: "admin:anna" } as const;
  const retry = { command: "retry", runAt: workshop.clock.now(), ...origin } as const;
  await command(workshop.runtime("client"), id, () => retry);
  await workshop.complete(id);
  open();
  await workshop.turn();
  expect(called).toEqual(["onEnd cancelled", "onSuccess completed", "onEnd completed"]);
  await keeper.stop();
});

it("keeps a job that is not to be kept until its hooks were called", async () => {
  const { workshop, called, holdUp } = shop();
  const keeper = workshop.keeper();
  await keeper.start();
  const { opened, open } = gate();
  holdUp(opened);
  const worker = await workshop.start({ unkept: () => null });
  const id = await workshop.create("unkept");
  await workshop.clock.advance(59_000);
  expect(await workshop.exists(id)).toBe(true);
  open();
  await workshop.clock.advance(62_000);
  expect(await workshop.exists(id)).toBe(false);
  expect(called).toContain("onEnd completed");
  await worker.stop();
  await keeper.stop();
});

it("records a hook that takes too long, and goes on", async () => {
  const { workshop, holdUp } = shop();
  const keeper = workshop.keeper();
  await keeper.start();
  holdUp(new Promise(() => {}));
  const id = await workshop.create("mail");
  await workshop.cancel(id);
  await workshop.clock.advance(60_000);
  expect((await workshop.events(id)).at(-1)).toMatchObject({
    name: "hookFailed",
    hook: "onEnd",
    actor: "keeper:k1",
    error: { message: "The hook took longer than 60000 ms.", reason: "hook" },
  });
  await keeper.stop();
});
