// A worker's presence: announced, kept fresh, and taken away at the end.
import { expect, it } from "vitest";
import { z } from "zod";
import { workerRows } from "#millrace/client/presence.js";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { gate, Workshop } from "./workshop.js";

function shop() {
  return new Workshop(
    defineService("shop", {
      mail: defineJob({ payload: z.object({}), concurrency: 4 }),
      print: defineJob({ payload: z.object({}), version: 2 }),
    }),
  );
}

it("says which process runs what, and how much of it", async () => {
  const workshop = shop();
  const work = gate();
  const startedAt = workshop.clock.now();
  const worker = await workshop.start({ mail: () => work.opened, print: () => {} });
  await workshop.create("mail");
  await workshop.clock.advance(30_000);
  const [row] = await workerRows(workshop.engine, "shop");
  expect(row).toMatchObject({
    service: "shop",
    instance: "w1",
    startedAt,
    heartbeatAt: startedAt + 30_000,
    concurrency: 14,
    pid: process.pid,
    fresh: true,
    types: [
      { type: "mail", version: 1, concurrency: 4, active: 1 },
      { type: "print", version: 2, concurrency: 10, active: 0 },
    ],
  });
  work.open();
  await worker.stop();
  expect(await workerRows(workshop.engine, "shop")).toEqual([]);
});

it("stays while the worker lives, and runs out when it is silent", async () => {
  const workshop = shop();
  await workshop.start({ mail: () => {} });
  await workshop.clock.advance(600_000);
  expect(await workerRows(workshop.engine)).toHaveLength(1);
  workshop.trouble.swap = "refuse";
  await workshop.clock.advance(90_000);
  expect(await workerRows(workshop.engine)).toHaveLength(0);
  expect(workshop.logged("presence could not be recorded").length).toBeGreaterThan(0);
  workshop.trouble.swap = "none";
  await workshop.clock.advance(30_000);
  expect(await workerRows(workshop.engine)).toHaveLength(1);
});

it("replaces what a process of the same name has left behind", async () => {
  const workshop = shop();
  await workshop.start({ mail: () => {} });
  await workshop.clock.advance(10_000);
  await workshop.start({ mail: () => {} });
  const rows = await workerRows(workshop.engine);
  expect(rows).toHaveLength(1);
  expect(rows[0]?.startedAt).toBe(workshop.clock.now());
  await workshop.clock.advance(30_000);
  expect(workshop.logged("same instance name").length).toBeGreaterThan(0);
});
