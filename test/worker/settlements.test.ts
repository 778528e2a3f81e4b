// Outcomes reach the store through faults, lost replies and changes by others, or the log says so.
import { expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { gate, Workshop } from "./workshop.js";

function shop() {
  return new Workshop(
    defineService("shop", {
      mail: defineJob({ payload: z.object({}), concurrency: 50 }),
      unkept: defineJob({
        payload: z.object({}),
        retry: { maxTries: 1 },
        retention: { completed: 0, dead: 0 },
      }),
    }),
  );
}

it("sends the outcomes of one turn in one call, and the next claim with it", async () => {
  const workshop = shop();
  for (let index = 0; index < 50; index++) await workshop.create("mail");
  await workshop.start({ mail: async () => {} });
  expect(workshop.count("settle")).toBe(1);
  const calls = workshop.calls.filter((call) => call !== "now");
  expect(calls[calls.indexOf("settle") + 1]).toBe("claim");
});

it.each(["refuse", "fault-each"] as const)(
  "sends an outcome again after a fault of the store: %s",
  async (trouble) => {
    const workshop = shop();
    const id = await workshop.create("mail");
    const work = gate();
    await workshop.start({ mail: () => work.opened });
    workshop.trouble.settle = trouble;
    work.open();
    await workshop.clock.advance(5_000);
    expect((await workshop.job(id)).state).toBe("active");
    const [line] = workshop.logged("Outcomes could not be stored");
    expect(line?.fields).toMatchObject({ error: { message: "The store is away." }, outcomes: 1 });
    expect(workshop.count("settle")).toBeLessThan(10);
    workshop.trouble.settle = "none";
    await workshop.clock.advance(5_000);
    expect(await workshop.names(id)).toEqual(["created", "started", "completed"]);
  },
);

it("keeps the lease while it waits for the store to take an outcome", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const work = gate();
  await workshop.start({ mail: () => work.opened });
  const keeper = workshop.keeper();
  await keeper.start();
  workshop.trouble.settle = "refuse";
  work.open();
  await workshop.clock.advance(60_000);
  workshop.trouble.settle = "none";
  await workshop.clock.advance(5_000);
  expect(await workshop.job(id)).toMatchObject({ state: "completed", tries: 1 });
  await keeper.stop();
});

it("recognises its own event when only the reply was lost", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const work = gate();
  const worker = await workshop.start({ mail: () => work.opened });
  workshop.trouble.settle = "lose-reply";
  work.open();
  await workshop.turn();
  workshop.trouble.settle = "none";
  await workshop.clock.advance(1_000);
  expect(await workshop.names(id)).toEqual(["created", "started", "completed"]);
  expect(worker.active).toBe(0);
  expect(workshop.logged("ignored")).toHaveLength(0);
});

it("gives up when the lease has lapsed, and says which outcome is lost", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const work = gate();
  const worker = await workshop.start({ mail: () => work.opened });
  workshop.trouble.settle = "refuse";
  workshop.trouble.renew = "refuse";
  work.open();
  await workshop.clock.advance(40_000);
  expect(worker.active).toBe(0);
  const [line] = workshop.logged("An outcome was not stored");
  expect(line).toMatchObject({ level: "error", fields: { jobId: id, outcome: "completed" } });
});

it("decides again when the job has moved on under the same token", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const work = gate<string>();
  const worker = workshop.worker({ mail: () => work.opened });
  workshop.engine.wake = () => () => {};
  await worker.start();
  await workshop.turn();
  await workshop.cancel(id);
  work.open("done");
  await workshop.turn();
  expect(await workshop.names(id)).toEqual(["created", "started", "cancelRequested", "completed"]);
});

it("claims no more while too many outcomes wait for the store", async () => {
  const workshop = new Workshop(
    defineService("shop", { mail: defineJob({ payload: z.object({}), concurrency: 5 }) }),
  );
  for (let index = 0; index < 50; index++) await workshop.create("mail");
  workshop.trouble.settle = "refuse";
  const worker = await workshop.start({ mail: async () => {} });
  await workshop.turn();
  expect(worker.active).toBe(20);
  workshop.trouble.settle = "none";
  await workshop.clock.advance(2_000);
  expect(worker.active).toBe(0);
  const [completed] = await workshop.engine.query("counts", { filter: { state: ["completed"] } });
  expect(completed?.count).toBe(50);
});

it("discards at once what its type does not keep, and nothing else", async () => {
  const workshop = shop();
  const kept = await workshop.create("mail");
  const completed = await workshop.create("unkept");
  const dead = await workshop.create("unkept", { fail: true });
  await workshop.start({
    mail: () => "done",
    unkept: (job) => (job.id === dead ? Promise.reject(new Error("down")) : "done"),
  });
  expect(await workshop.exists(kept)).toBe(true);
  expect(await workshop.exists(completed)).toBe(false);
  expect(await workshop.exists(dead)).toBe(false);
});
