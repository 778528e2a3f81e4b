// Keyed jobs whose worker is lost: each stale policy, who takes over, and what the lost worker may still say.
import { expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import type { StalePolicy } from "#millrace/core/job.js";
import { gate, Workshop } from "./workshop.js";

function shop(stalePolicy: StalePolicy) {
  return new Workshop(
    defineService("shop", {
      sync: defineJob({
        payload: z.object({}),
        keyConcurrency: { key: ["tickets"], stalePolicy },
        queue: { maxQueuedPerKey: 2 },
      }),
    }),
  );
}

/** A worker that takes the first job and is lost, a job behind it, and a keeper that has seen to it. */
async function afterLoss(stalePolicy: StalePolicy) {
  const workshop = shop(stalePolicy);
  const first = await workshop.create("sync");
  const second = await workshop.create("sync");
  const work = gate<string>();
  await workshop.start(
    { sync: () => work.opened },
    { instance: "lost", concurrency: 1, graceMs: 600_000 },
  );
  workshop.trouble.renew = "refuse";
  const keeper = workshop.keeper();
  await keeper.start();
  await workshop.clock.advance(31_000);
  workshop.trouble.renew = "none";
  await keeper.stop();
  const { key } = await workshop.job(first);
  const row = () => workshop.engine.query("key", { hash: key?.hash ?? "" });
  return { workshop, first, second, work, row };
}

it("runs one job of a key at a time, in order", async () => {
  const workshop = shop("fail-stale");
  const started: string[] = [];
  const gates = [gate(), gate(), gate()];
  const ids = [
    await workshop.create("sync"),
    await workshop.create("sync"),
    await workshop.create("sync"),
  ];
  await workshop.start({
    sync: (job) => {
      started.push(job.id);
      return gates[ids.indexOf(job.id)]?.opened;
    },
  });
  for (const [index, { open }] of gates.entries()) {
    expect(started).toEqual(ids.slice(0, index + 1));
    open();
    await workshop.turn();
  }
  expect((await workshop.job(ids[2] ?? "")).state).toBe("completed");
});

it("fail-stale: ends the job as stale and lets the next in", async () => {
  const { workshop, first, second, work, row } = await afterLoss("fail-stale");
  expect(await workshop.job(first)).toMatchObject({ state: "stale", reason: "lapsed" });
  expect((await row())?.takeovers).toBe(1);
  await workshop.start({ sync: () => "done" }, { instance: "w2" });
  expect(await workshop.job(second)).toMatchObject({ state: "completed", completedBy: "w2" });
  work.open("too late");
  await workshop.turn();
  expect((await workshop.job(first)).state).toBe("stale");
  expect((await workshop.names(first)).at(-1)).toBe("staleCompletionIgnored");
});

it("requeue: tries the job again", async () => {
  const { workshop, first, second, work, row } = await afterLoss("requeue");
  expect(await workshop.job(first)).toMatchObject({
    state: "retry",
    error: { reason: "orphaned" },
  });
  expect((await row())?.takeovers).toBe(1);
  const started: string[] = [];
  await workshop.start(
    {
      sync: (job) => {
        started.push(job.id);
      },
    },
    { instance: "w2" },
  );
  expect([...started].sort()).toEqual([first, second].sort());
  work.open("too late");
  await workshop.turn();
  expect(await workshop.job(first)).toMatchObject({
    state: "completed",
    completedBy: "w2",
    tries: 2,
  });
  expect((await workshop.names(first)).at(-1)).toBe("staleCompletionIgnored");
});

it("block: keeps the key until the lost worker returns, whose outcome then counts", async () => {
  const { workshop, first, second, work, row } = await afterLoss("block");
  expect(await workshop.job(first)).toMatchObject({ state: "active", keyBlocked: true });
  expect(await row()).toMatchObject({ blocked: true, takeovers: 0 });
  await workshop.start({ sync: () => "done" }, { instance: "w2" });
  await workshop.clock.advance(60_000);
  expect((await workshop.job(second)).state).toBe("pending");
  work.open("late, but mine");
  await workshop.turn();
  expect(await workshop.job(first)).toMatchObject({ state: "completed", completedBy: "lost" });
  expect((await workshop.job(second)).state).toBe("completed");
});

it("keeps key and limits when a claim finds only work of a busy key", async () => {
  const workshop = shop("fail-stale");
  await workshop.create("sync");
  const waiting = await workshop.create("sync");
  const work = gate();
  await workshop.start({ sync: () => work.opened }, { instance: "w1" });
  await workshop.start({ sync: () => "done" }, { instance: "w2" });
  expect((await workshop.job(waiting)).state).toBe("pending");
  work.open();
  await workshop.turn();
  expect((await workshop.job(waiting)).state).toBe("completed");
});
