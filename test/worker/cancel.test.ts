// Cancelling: at once while a job waits, cooperatively while it runs, and never after its end.
import { expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { JobAborted } from "#millrace/worker/active-job.js";
import { snooze, terminate } from "#millrace/worker/outcome.js";
import { gate, untilAborted, Workshop } from "./workshop.js";

function shop() {
  return new Workshop(
    defineService("shop", {
      mail: defineJob({ payload: z.object({}) }),
      keyed: defineJob({
        payload: z.object({}),
        keyConcurrency: { key: ["one"] },
        queue: { maxQueuedPerKey: 5 },
      }),
    }),
  );
}

it("ends a waiting job at once, and its handler never runs", async () => {
  const workshop = shop();
  const id = await workshop.create("mail", {}, { delayMs: 1_000 });
  let calls = 0;
  await workshop.start({
    mail: () => {
      calls++;
    },
  });
  await workshop.cancel(id);
  await workshop.clock.advance(2_000);
  expect((await workshop.job(id)).state).toBe("cancelled");
  expect(calls).toBe(0);
});

it("ends a job that waits for its next try", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.start({ mail: () => Promise.reject(new Error("down")) });
  await workshop.cancel(id, { reason: "not needed" });
  await workshop.clock.advance(60_000);
  expect(await workshop.job(id)).toMatchObject({
    state: "cancelled",
    tries: 1,
    reason: "not needed",
  });
});

it("reaches a running handler at once, whose throw confirms it", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const reasons: unknown[] = [];
  await workshop.start({
    mail: (job) => {
      job.signal.addEventListener("abort", () => reasons.push(job.signal.reason));
      return untilAborted(job.signal);
    },
  });
  await workshop.cancel(id, { reason: "changed my mind" });
  await workshop.turn();
  expect(reasons).toHaveLength(1);
  expect(reasons[0]).toBeInstanceOf(JobAborted);
  expect(reasons[0]).toMatchObject({ reason: "cancelled", jobId: id });
  expect(await workshop.job(id)).toMatchObject({ state: "cancelled", reason: "changed my mind" });
  expect(await workshop.names(id)).toEqual(["created", "started", "cancelRequested", "cancelled"]);
});

it("lets a handler that returns a value complete its job", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.start({
    mail: (job) => untilAborted(job.signal).catch(() => "finished anyway"),
  });
  await workshop.cancel(id);
  await workshop.turn();
  expect(await workshop.job(id)).toMatchObject({ state: "completed", result: "finished anyway" });
});

it("is a cancel when the failure was under way before the worker heard of it", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const work = gate();
  await workshop.start({ mail: () => work.opened });
  const cancelled = workshop.cancel(id);
  work.fail(new Error("down"));
  await cancelled;
  await workshop.turn();
  expect((await workshop.job(id)).state).toBe("cancelled");
});

it("takes a snooze as the end and a terminate as the handler's last word", async () => {
  const workshop = shop();
  const snoozed = await workshop.create("mail");
  const terminated = await workshop.create("mail");
  await workshop.start({
    mail: (job) =>
      untilAborted(job.signal).catch(() => (job.id === snoozed ? snooze(1_000) : terminate("no"))),
  });
  await workshop.cancel(snoozed);
  await workshop.cancel(terminated);
  await workshop.turn();
  expect((await workshop.job(snoozed)).state).toBe("cancelled");
  expect((await workshop.job(terminated)).state).toBe("failed");
});

it("reaches the handler with the next renewal when the hint is lost", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const worker = workshop.worker({ mail: (job) => untilAborted(job.signal) });
  workshop.engine.wake = () => () => {};
  await worker.start();
  await workshop.turn();
  await workshop.cancel(id);
  await workshop.turn();
  expect((await workshop.job(id)).state).toBe("active");
  await workshop.clock.advance(10_000);
  expect((await workshop.job(id)).state).toBe("cancelled");
});

it("abandons a handler that ignores it, and keeps the key until the handler returns", async () => {
  const workshop = shop();
  const id = await workshop.create("keyed");
  const next = await workshop.create("keyed");
  const work = gate<string>();
  const worker = await workshop.start({
    keyed: (job) => (job.id === id ? work.opened : "next"),
  });
  await workshop.cancel(id);
  await workshop.clock.advance(10_000);
  expect(worker.active).toBe(0);
  expect(workshop.logged("ignored its signal")).toHaveLength(1);
  expect((await workshop.job(id)).state).toBe("active");
  expect((await workshop.job(next)).state).toBe("pending");
  work.open("too late");
  await workshop.turn();
  expect((await workshop.job(id)).state).toBe("cancelled");
  expect((await workshop.job(next)).state).toBe("completed");
});

it("is refused once the job has ended", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.start({ mail: () => "done" });
  expect(await workshop.cancel(id)).toMatchObject({ ok: false, rejection: { reason: "ended" } });
  expect((await workshop.job(id)).state).toBe("completed");
});

it("tells a running handler that its job was ended by force, and holds the key until it returns", async () => {
  const workshop = shop();
  const id = await workshop.create("keyed");
  const next = await workshop.create("keyed");
  const work = gate();
  const reasons: unknown[] = [];
  await workshop.start({
    keyed: (job) => {
      if (job.id === next) return "next";
      job.signal.addEventListener("abort", () => reasons.push(job.signal.reason.reason));
      return work.opened;
    },
  });
  await workshop.cancel(id, { force: true });
  await workshop.turn();
  expect(reasons).toEqual(["cancelled"]);
  expect((await workshop.job(id)).state).toBe("cancelled");
  expect((await workshop.job(next)).state).toBe("pending");
  work.open();
  await workshop.turn();
  expect((await workshop.job(next)).state).toBe("completed");
  expect(await workshop.names(id)).toContain("staleCompletionIgnored");
});
