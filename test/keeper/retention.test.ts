// Retention: ended jobs are kept as long as their type says, and no longer.
import { expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService, versions } from "#millrace/contract/define.js";
import { Workshop } from "../worker/workshop.js";

const payload = z.object({});
const minuteMs = 60_000;
const dayMs = 24 * 60 * minuteMs;

function shop() {
  return new Workshop(
    defineService("shop", {
      mail: defineJob({ payload, retention: { completed: 10 * minuteMs } }),
      plain: defineJob({ payload }),
      forever: defineJob({ payload, retention: { completed: Number.POSITIVE_INFINITY } }),
      unkept: defineJob({ payload, retention: { completed: 0 } }),
      moved: versions(
        defineJob({ payload, retention: { completed: 30 * minuteMs } }),
        defineJob({ payload, version: 2, retention: { completed: 0 } }),
      ),
    }),
  );
}

it("removes a job when its time is over, and records that", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.complete(id);
  const keeper = workshop.keeper();
  await keeper.start();
  await workshop.clock.advance(10 * minuteMs);
  expect(await workshop.exists(id)).toBe(true);
  await workshop.clock.advance(minuteMs);
  expect(await workshop.exists(id)).toBe(false);
  const deleted = await feedOf(workshop, id);
  expect(deleted).toMatchObject([{ name: "deleted", reason: "retention", actor: "keeper:k1" }]);
  await keeper.stop();
});

it("keeps jobs as their service says, where their type does not", async () => {
  const workshop = new Workshop(
    defineService(
      "shop",
      {
        mail: defineJob({ payload, retention: { completed: dayMs } }),
        plain: defineJob({ payload }),
      },
      { retention: { completed: minuteMs, cancelled: 0 } },
    ),
  );
  const [mail, plain] = [await workshop.create("mail"), await workshop.create("plain")];
  await workshop.complete(mail);
  await workshop.complete(plain);
  const cancelled = await workshop.create("mail");
  await workshop.cancel(cancelled);
  const keeper = workshop.keeper();
  await workshop.clock.advance(1);
  await keeper.tick();
  expect(await workshop.exists(cancelled)).toBe(false);
  await workshop.clock.advance(minuteMs);
  await keeper.tick();
  expect([await workshop.exists(mail), await workshop.exists(plain)]).toEqual([true, false]);
});

it("refuses a service whose retention cannot work", () => {
  const define = () => defineService("shop", {}, { retention: { completed: -1 } });
  expect(define).toThrow("retention.completed is -1");
});

it("keeps unfinished jobs, and ended ones by the defaults where nothing is said", async () => {
  const workshop = shop();
  const open = await workshop.create("plain", {}, { delayMs: 365 * dayMs });
  const completed = await workshop.create("plain");
  const cancelled = await workshop.create("plain");
  await workshop.complete(completed);
  await workshop.cancel(cancelled);
  const keeper = workshop.keeper();
  await workshop.clock.advance(7 * dayMs);
  await keeper.tick();
  expect(await workshop.exists(completed)).toBe(true);
  await workshop.clock.advance(1);
  await keeper.tick();
  expect(await workshop.exists(completed)).toBe(false);
  expect(await workshop.exists(cancelled)).toBe(true);
  await workshop.clock.advance(23 * dayMs);
  await keeper.tick();
  expect(await workshop.exists(cancelled)).toBe(false);
  expect(await workshop.exists(open)).toBe(true);
});

it("never removes what is kept for good", async () => {
  const workshop = shop();
  const id = await workshop.create("forever");
  await workshop.complete(id);
  await workshop.clock.advance(10 * 365 * dayMs);
  await workshop.keeper().tick();
  expect(await workshop.exists(id)).toBe(true);
});

it("discards at the next tick what is not kept and no worker has discarded", async () => {
  const workshop = shop();
  const keeper = workshop.keeper();
  await keeper.start();
  const id = await workshop.create("unkept");
  await workshop.complete(id);
  await workshop.clock.advance(1_001);
  expect(await workshop.exists(id)).toBe(false);
  await keeper.stop();
});

it("keeps all versions of a type as long as the one that keeps longest", async () => {
  const workshop = shop();
  const ids = [await workshop.createVersion("moved", 1), await workshop.createVersion("moved", 2)];
  for (const id of ids) await workshop.complete(id);
  const keeper = workshop.keeper();
  await workshop.clock.advance(30 * minuteMs);
  await keeper.tick();
  for (const id of ids) expect(await workshop.exists(id)).toBe(true);
  await workshop.clock.advance(1);
  await keeper.tick();
  for (const id of ids) expect(await workshop.exists(id)).toBe(false);
});

it("forgets the trace of a removed job after a week", async () => {
  const workshop = shop();
  const id = await workshop.create("unkept");
  await workshop.complete(id);
  const keeper = workshop.keeper();
  await workshop.clock.advance(1);
  await keeper.tick();
  await workshop.clock.advance(7 * dayMs);
  await keeper.tick();
  expect(await feedOf(workshop, id)).toHaveLength(1);
  await workshop.clock.advance(1);
  await keeper.tick();
  expect(await feedOf(workshop, id)).toHaveLength(0);
});

async function feedOf(workshop: Workshop, id: string) {
  const end = await workshop.create("plain");
  const stop = new AbortController();
  const events = [];
  for await (const { event } of workshop.engine.tail(null, stop.signal)) {
    if (event.jobId === end) stop.abort();
    else if (event.jobId === id) events.push(event);
  }
  return events;
}
