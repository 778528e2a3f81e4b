// One keeper leads a service at a time; another takes over within seconds.
import { expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { Workshop } from "../worker/workshop.js";

function shop() {
  return new Workshop(defineService("shop", { mail: defineJob({ payload: z.object({}) }) }));
}

it("makes the first candidate the leader and leaves the others waiting", async () => {
  const workshop = shop();
  const [first, second] = [workshop.keeper("k1"), workshop.keeper("k2")];
  await first.start();
  await second.start();
  expect([first.isLeader, second.isLeader]).toEqual([true, false]);
  await workshop.clock.advance(120_000);
  expect([first.isLeader, second.isLeader]).toEqual([true, false]);
  await Promise.all([first.stop(), second.stop()]);
});

it("lets exactly one of many lead", async () => {
  const workshop = shop();
  const keepers = Array.from({ length: 5 }, (_, index) => workshop.keeper(`k${index}`));
  await Promise.all(keepers.map((keeper) => keeper.start()));
  for (let second = 0; second < 30; second++) {
    await workshop.clock.advance(1_000);
    expect(keepers.filter(({ isLeader }) => isLeader)).toHaveLength(1);
  }
  await Promise.all(keepers.map((keeper) => keeper.stop()));
});

it("hands over when the leader stops", async () => {
  const workshop = shop();
  const [first, second] = [workshop.keeper("k1"), workshop.keeper("k2")];
  await first.start();
  await second.start();
  await workshop.clock.advance(1_000);
  await first.stop();
  expect(first.isLeader).toBe(false);
  await workshop.clock.advance(5_250);
  expect(second.isLeader).toBe(true);
  await second.stop();
  await second.stop();
});

it("stops leading before its record runs out when the store is away, and another takes over", async () => {
  const workshop = shop();
  const first = workshop.keeper("k1");
  await first.start();
  workshop.trouble.swap = "refuse";
  await workshop.clock.advance(3_999);
  expect(first.isLeader).toBe(true);
  await workshop.clock.advance(1);
  expect(first.isLeader).toBe(false);
  const second = workshop.keeper("k2");
  await second.start();
  await workshop.clock.advance(1_000);
  // The first cannot write either way; the record has run out now.
  workshop.trouble.swap = "none";
  await workshop.clock.advance(2_000);
  expect([first.isLeader, second.isLeader].filter(Boolean)).toHaveLength(1);
  await Promise.all([first.stop(), second.stop()]);
});

it("does its duties again after it has led, lost and led again", async () => {
  const workshop = shop();
  const keeper = workshop.keeper("k1");
  await keeper.start();
  workshop.trouble.swap = "refuse";
  workshop.trouble.records = "refuse";
  await workshop.clock.advance(20_000);
  expect(keeper.isLeader).toBe(false);
  const quiet = workshop.count("due");
  await workshop.clock.advance(10_000);
  expect(workshop.count("due")).toBe(quiet);
  workshop.trouble.swap = "none";
  workshop.trouble.records = "none";
  await workshop.clock.advance(5_000);
  expect(keeper.isLeader).toBe(true);
  expect(workshop.count("due")).toBeGreaterThan(quiet);
  await keeper.stop();
});

it("knows its own record when only the reply of a renewal was lost", async () => {
  const workshop = shop();
  const keeper = workshop.keeper("k1");
  await keeper.start();
  workshop.trouble.swap = "lose-reply";
  await workshop.clock.advance(1_500);
  workshop.trouble.swap = "none";
  await workshop.clock.advance(1_000);
  expect(keeper.isLeader).toBe(true);
  await workshop.clock.advance(10_000);
  expect(keeper.isLeader).toBe(true);
  await keeper.stop();
});

it("cannot be started again", async () => {
  const workshop = shop();
  const keeper = workshop.keeper("k1");
  await keeper.stop();
  await expect(keeper.start()).rejects.toThrow("stopped");
});
