// Stopping a worker: handlers are asked, waited for, and their jobs given back without spending a try.
import { expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { gate, untilAborted, Workshop } from "./workshop.js";

function shop() {
  return new Workshop(defineService("shop", { mail: defineJob({ payload: z.object({}) }) }));
}

it("gives the job of a handler that throws back, without a try, for another worker", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const { runAt } = await workshop.job(id);
  const reasons: string[] = [];
  const worker = await workshop.start({
    mail: (job) => {
      job.signal.addEventListener("abort", () => reasons.push(job.signal.reason.reason));
      return untilAborted(job.signal);
    },
  });
  await workshop.clock.advance(3_000);
  await worker.stop();
  expect(worker.state).toBe("stopped");
  expect(reasons).toEqual(["shutdown"]);
  expect(await workshop.job(id)).toMatchObject({ state: "pending", tries: 0, runAt });
  expect((await workshop.events(id)).at(-1)).toMatchObject({ name: "released", cause: "shutdown" });

  const redelivered: boolean[] = [];
  await workshop.start(
    {
      mail: (job) => {
        redelivered.push(job.isRedelivery);
      },
    },
    { instance: "w2" },
  );
  expect(await workshop.job(id)).toMatchObject({ state: "completed", tries: 1, completedBy: "w2" });
  expect(redelivered).toEqual([true]);
});

it("completes the job of a handler that returns", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const worker = await workshop.start({
    mail: (job) => untilAborted(job.signal).catch(() => "finished"),
  });
  await worker.stop();
  expect(await workshop.job(id)).toMatchObject({ state: "completed", result: "finished" });
});

it("waits for handlers that finish within the grace time, and claims nothing meanwhile", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const work = gate();
  const worker = await workshop.start({ mail: () => work.opened });
  const stopping = worker.stop();
  const next = await workshop.create("mail");
  await workshop.clock.advance(9_000);
  expect(worker.state).toBe("stopping");
  work.open();
  await stopping;
  expect((await workshop.job(id)).state).toBe("completed");
  expect((await workshop.job(next)).state).toBe("pending");
});

it("leaves the job of a handler that does not stop to the lapse of its lease", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const worker = await workshop.start({ mail: () => new Promise(() => {}) });
  const stopping = worker.stop();
  await workshop.clock.advance(10_000);
  await stopping;
  expect(await workshop.job(id)).toMatchObject({ state: "active", tries: 1 });
  const keeper = workshop.keeper();
  await keeper.start();
  await workshop.clock.advance(31_000);
  expect(await workshop.job(id)).toMatchObject({ state: "retry", error: { reason: "orphaned" } });
  await keeper.stop();
});

it("gives back what a claim brings after the stop, without calling a handler", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const reply = gate();
  const claim = workshop.engine.claim.bind(workshop.engine);
  workshop.engine.claim = async (ask) => {
    const answer = await claim(ask);
    await reply.opened;
    return answer;
  };
  let calls = 0;
  const worker = await workshop.start({
    mail: () => {
      calls++;
    },
  });
  const stopping = worker.stop();
  reply.open();
  await stopping;
  expect(calls).toBe(0);
  expect(await workshop.names(id)).toEqual(["created", "started", "released"]);
  expect(await workshop.job(id)).toMatchObject({ state: "pending", tries: 0 });
});

it("does not call a handler that was asked to stop while its payload was checked", async () => {
  const checked = gate();
  const payload = z.object({}).refine(() => checked.opened.then(() => true));
  const workshop = new Workshop(defineService("shop", { mail: defineJob({ payload }) }));
  const id = await workshop.create("mail");
  let calls = 0;
  const worker = await workshop.start({
    mail: () => {
      calls++;
    },
  });
  const stopping = worker.stop();
  checked.open();
  await stopping;
  expect(calls).toBe(0);
  expect(await workshop.names(id)).toEqual(["created", "started", "released"]);
});

it("does not wait for a store that does not answer, and says what is not stored", async () => {
  const workshop = shop();
  await workshop.create("mail");
  const work = gate();
  const worker = await workshop.start({ mail: () => work.opened });
  workshop.trouble.settle = "refuse";
  work.open();
  await workshop.turn();
  const stopping = worker.stop();
  await workshop.clock.advance(10_000);
  await stopping;
  expect(workshop.logged("while outcomes are not stored")).toHaveLength(1);
});

it("gives the store three seconds more where its handlers have used up the grace time", async () => {
  const workshop = shop();
  await workshop.create("mail");
  const work = gate();
  const worker = await workshop.start({ mail: () => work.opened });
  workshop.trouble.settle = "refuse";
  const stopping = worker.stop();
  await workshop.clock.advance(9_000);
  work.open();
  await workshop.clock.advance(2_900);
  expect(worker.state).toBe("stopping");
  await workshop.clock.advance(100);
  await stopping;
  expect(workshop.logged("while outcomes are not stored")).toHaveLength(1);
});

it("can be stopped twice, and before it was started", async () => {
  const workshop = shop();
  const worker = await workshop.start({ mail: () => {} });
  await Promise.all([worker.stop(), worker.stop()]);
  expect(worker.state).toBe("stopped");
  const unused = workshop.worker({ mail: () => {} });
  await unused.stop();
  await expect(unused.start()).rejects.toThrow("stopped");
});
