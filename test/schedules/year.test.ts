// A year of schedules in three zones, on a fake clock, compared with what the platform's own calendar says.
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { createClient } from "#millrace/client/client.js";
import { Schedules } from "#millrace/client/schedules.js";
import { cronReader } from "#millrace/contract/cron.js";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { nextInstant, scheduledJobId } from "#millrace/core/schedule.js";
import { fakeStart } from "#millrace/testing/fake-clock.js";
import { Workshop } from "../worker/workshop.js";
import { jumps, minutesThat, type WallClock } from "./wall-clock.js";

const dayMs = 24 * 60 * 60 * 1_000;
const from = fakeStart;
const until = Date.UTC(2031, 0, 1);

/** North, south, and one whose clocks move by half an hour. */
const zones = ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe"];

/** Expressions that follow the wall clock: what does not exist is left out, what exists twice fires twice. */
const followers: { readonly [cron: string]: (clock: WallClock) => boolean } = {
  "*/20 * * * *": ({ minute }) => minute % 20 === 0,
  "15,45 1-3 * * *": ({ minute, hour }) => minute % 30 === 15 && hour >= 1 && hour <= 3,
  "0 2,14 * * *": ({ minute, hour }) => minute === 0 && (hour === 2 || hour === 14),
  "0 9 1 * 1": ({ minute, hour, day, weekday }) =>
    minute === 0 && hour === 9 && (day === 1 || weekday === 1),
};

function instants(cron: string, timeZone: string): readonly number[] {
  const timing = { kind: "cron", expression: cron, timeZone } as const;
  const found: number[] = [];
  let at = nextInstant(timing, from, cronReader);
  while (at !== null && at <= until) {
    found.push(at);
    at = nextInstant(timing, at, cronReader);
  }
  return found;
}

describe.each(zones)("a year in %s", (timeZone) => {
  it.each(Object.keys(followers))("follows the wall clock: %s", (cron) => {
    const fits = followers[cron] as (clock: WallClock) => boolean;
    expect(instants(cron, timeZone)).toEqual(minutesThat(fits, timeZone, from, until));
  });

  it.each([
    ["30 2 * * *", 2 * 60 + 30],
    ["45 1 * * *", 60 + 45],
    ["15 2 * * *", 2 * 60 + 15],
  ])("fires once a day at one time of day: %s", (cron, minuteOfDay) => {
    const exact = minutesThat(
      ({ hour, minute }) => hour * 60 + minute === minuteOfDay,
      timeZone,
      from,
      until,
    );
    // Of two on one day the first counts, and a day without one fires when the gap ends.
    const once = exact.filter((at, index) => at - (exact[index - 1] ?? 0) > dayMs / 2);
    const skipped = jumps(timeZone, from, until)
      .filter(({ from, to }) => from < minuteOfDay && minuteOfDay < to)
      .map(({ at }) => at);
    expect(instants(cron, timeZone)).toEqual([...once, ...skipped].sort((a, b) => a - b));
  });
});

it("fires each instant of a year once, through every change of the clocks", async () => {
  const contract = defineService("shop", { report: defineJob({ payload: z.object({}) }) });
  const workshop = new Workshop(contract);
  const schedules = new Schedules(
    createClient(workshop.runtime("api"), workshop.contract),
    workshop.contract,
  );
  const expected: string[] = [];
  for (const timeZone of zones) {
    for (const cron of ["30 2 * * *", "0 */6 * * *"]) {
      const name = `s${expected.length}`;
      const spec = { type: "report", payload: {}, catchUp: "all", timeZone, cron } as const;
      await schedules.create(name, spec).orThrow();
      expected.push(...instants(cron, timeZone).map((at) => scheduledJobId("shop", name, at)));
    }
  }
  const keeper = workshop.keeper();
  await keeper.start();
  const stepMs = 31 * 60 * 60 * 1_000;
  while (workshop.clock.now() < until) {
    await workshop.clock.leap(Math.min(stepMs, until - workshop.clock.now()));
    // The keeper has lost the lead in the leap, and takes it again.
    await workshop.clock.advance(1_000);
  }
  await keeper.stop();
  const fired: string[] = [];
  const head = await workshop.engine.head();
  const reading = new AbortController();
  for await (const { event, cursor } of workshop.engine.tail(null, reading.signal)) {
    if (event.name === "created" && event.runAt <= until) fired.push(event.jobId);
    if (cursor === head) break;
  }
  expect(fired.toSorted()).toEqual(expected.toSorted());
});
