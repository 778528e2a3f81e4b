// The keeper's duties: lapsed leases and deadlines, in bounded batches, by any number of keepers.
import { expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { Workshop } from "../worker/workshop.js";

function shop() {
  return new Workshop(
    defineService("shop", {
      mail: defineJob({ payload: z.object({}), concurrency: 1_000, retry: { maxTries: 2 } }),
    }),
  );
}

/** Claims jobs for a worker that is never heard of again. */
async function loseWorker(workshop: Workshop): Promise<void> {
  const lane = "shop/mail/mail@1";
  const place = {
    lane,
    service: "shop",
    queue: "mail",
    type: "mail",
    free: 1_000,
    leaseMs: 30_000,
  };
  await workshop.engine.claim({ worker: "lost", lanes: [place], limit: 1_000 });
}

it("frees the jobs of a lost worker soon after their lease has lapsed", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await loseWorker(workshop);
  const keeper = workshop.keeper();
  await keeper.start();
  await workshop.clock.advance(29_999);
  expect((await workshop.job(id)).state).toBe("active");
  await workshop.clock.advance(1_001);
  expect(await workshop.job(id)).toMatchObject({ state: "retry", tries: 1 });
  const [, , retry] = await workshop.events(id);
  expect(retry).toMatchObject({ name: "retry", actor: "keeper:k1", error: { reason: "orphaned" } });
  expect(workshop.logged("Leases lapsed")[0]?.fields).toEqual({ jobs: 1 });
  await keeper.stop();
});

it("ends a job whose last try is lost as dead", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  for (let tries = 0; tries < 2; tries++) {
    await loseWorker(workshop);
    await workshop.clock.advance(30_000);
    await workshop.keeper().tick();
  }
  expect(await workshop.job(id)).toMatchObject({ state: "dead", tries: 2 });
});

it("ends a job as cancelled whose worker is lost after the request", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await loseWorker(workshop);
  await workshop.cancel(id);
  await workshop.clock.advance(30_000);
  await workshop.keeper().tick();
  expect((await workshop.job(id)).state).toBe("cancelled");
});

it("expires waiting jobs at their deadline, inclusive", async () => {
  const workshop = shop();
  const deadline = workshop.clock.now() + 1_000;
  const waiting = await workshop.create("mail", {}, { deadline });
  const delayed = await workshop.create("mail", {}, { deadline, delayMs: 60_000 });
  const later = await workshop.create("mail", {}, { deadline: deadline + 1 });
  const keeper = workshop.keeper();
  await workshop.clock.advance(999);
  await keeper.tick();
  expect((await workshop.job(waiting)).state).toBe("pending");
  await workshop.clock.advance(1);
  await keeper.tick();
  expect((await workshop.job(waiting)).state).toBe("expired");
  expect((await workshop.job(delayed)).state).toBe("expired");
  expect((await workshop.job(later)).state).toBe("pending");
});

it("goes on while there is more than one batch", async () => {
  const workshop = shop();
  const deadline = workshop.clock.now() + 1;
  for (let index = 0; index < 1_100; index++) await workshop.create("mail", {}, { deadline });
  await workshop.clock.advance(1);
  await workshop.keeper().tick();
  const counts = await workshop.engine.query("counts", {});
  expect(counts.map(({ state, count }) => [state, count])).toEqual([["expired", 1_100]]);
});

it("does every duty once when two keepers work at once", async () => {
  const workshop = shop();
  const ids = [];
  for (let index = 0; index < 20; index++) ids.push(await workshop.create("mail"));
  await loseWorker(workshop);
  await workshop.clock.advance(30_000);
  await Promise.all([workshop.keeper("k1").tick(), workshop.keeper("k2").tick()]);
  for (const id of ids) expect(await workshop.names(id)).toEqual(["created", "started", "retry"]);
});

it("leaves a renewed lease alone", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await loseWorker(workshop);
  await workshop.clock.advance(29_000);
  const job = { service: "shop", type: "mail", id };
  await workshop.engine.renew([{ job, token: 1, leaseMs: 30_000 }]);
  await workshop.clock.advance(2_000);
  await workshop.keeper().tick();
  expect((await workshop.job(id)).state).toBe("active");
});

it("keeps going after a fault of the store, and says so once", async () => {
  const workshop = shop();
  const id = await workshop.create("mail", {}, { deadline: workshop.clock.now() + 500 });
  const keeper = workshop.keeper();
  await keeper.start();
  workshop.trouble.due = "refuse";
  await workshop.clock.advance(10_000);
  expect(workshop.logged("The keeper failed")).toHaveLength(1);
  workshop.trouble.due = "none";
  await workshop.clock.advance(2_000);
  expect((await workshop.job(id)).state).toBe("expired");
  await keeper.stop();
});

it("says once that the store fails at jobs, until a round goes well", async () => {
  const workshop = shop();
  const soon = () => workshop.create("mail", {}, { deadline: workshop.clock.now() + 500 });
  const keeper = workshop.keeper();
  await keeper.start();
  for (let times = 1; times <= 2; times++) {
    const id = await soon();
    workshop.trouble.append = "fault-each";
    await workshop.clock.advance(10_000);
    expect(workshop.logged("The keeper could not move on every job")).toHaveLength(times);
    workshop.trouble.append = "none";
    await workshop.clock.advance(2_000);
    expect((await workshop.job(id)).state).toBe("expired");
  }
  await keeper.stop();
});

it("asks little of an idle store", async () => {
  const workshop = shop();
  const keeper = workshop.keeper();
  await keeper.start();
  workshop.calls.length = 0;
  await workshop.clock.advance(60_000);
  const calls = workshop.calls.filter((call) => call !== "now");
  expect(calls.length).toBeLessThan(250);
  await keeper.stop();
});
