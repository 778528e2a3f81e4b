// Which instants of a schedule are fired, and which are passed over.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { cronReader } from "#millrace/contract/cron.js";
import {
  type CatchUp,
  nextInstant,
  planDue,
  type ScheduleTiming,
  scheduledJobId,
} from "#millrace/core/schedule.js";

const minuteMs = 60_000;
const noon = Date.UTC(2030, 5, 1, 12);
const hourly: ScheduleTiming = { kind: "cron", expression: "0 * * * *", timeZone: "UTC" };

function due(
  timing: ScheduleTiming,
  decidedUntil: number,
  now: number,
  catchUp: CatchUp = "none",
  catchUpMax = 3,
) {
  return planDue({ timing, catchUp, catchUpMax, decidedUntil }, now, cronReader);
}

describe("instants that have come", () => {
  it("are fired when they are on time, and not before", () => {
    expect(due(hourly, noon - 10 * minuteMs, noon - 1)).toBeNull();
    expect(due(hourly, noon - 10 * minuteMs, noon)).toEqual({
      fire: [noon],
      missed: null,
      until: noon,
    });
    expect(due(hourly, noon, noon + 59_000)).toBeNull();
  });

  it("are on time for as long as another leader may take", () => {
    expect(due(hourly, noon - minuteMs, noon + minuteMs - 1)?.fire).toEqual([noon]);
    expect(due(hourly, noon - minuteMs, noon + minuteMs)).toMatchObject({ fire: [], missed: noon });
  });

  it("are not fired again when a clock was set back", () => {
    expect(due(hourly, noon, noon - 30 * minuteMs)).toBeNull();
  });
});

describe("instants that nobody was there for", () => {
  const since = noon - 5 * 60 * minuteMs - 1;
  const hoursAgo = (hours: number) => noon - hours * 60 * minuteMs;

  it("none: are passed over, and those that are on time are fired", () => {
    expect(due(hourly, since, noon, "none")).toEqual({
      fire: [noon],
      missed: hoursAgo(1),
      until: noon,
    });
  });

  it("last: only the newest is fired", () => {
    expect(due(hourly, since, noon, "last")?.fire).toEqual([noon]);
    expect(due(hourly, since, noon - 2 * minuteMs, "last")?.fire).toEqual([hoursAgo(1)]);
  });

  it("all: the newest are fired, up to the limit", () => {
    expect(due(hourly, since, noon, "all")).toEqual({
      fire: [hoursAgo(3), hoursAgo(2), hoursAgo(1), noon],
      missed: hoursAgo(4),
      until: noon,
    });
    expect(due(hourly, since, noon, "all", 5)).toMatchObject({ missed: null });
  });

  it("cost no more for a long time than for a short one", () => {
    const timing = { kind: "every", everyMs: 100, anchor: 0 } as const;
    const plan = due(timing, 1_000, noon, "all", 2);
    expect(plan?.fire.slice(0, 3)).toEqual([noon - 60_100, noon - 60_000, noon - 59_900]);
    expect(plan?.fire).toHaveLength(2 + 600);
    expect(plan?.missed).toBe(noon - 60_200);
  });

  it("happen once at a single time", () => {
    const timing = { kind: "at", at: noon } as const;
    expect(due(timing, noon - 1, noon + 60 * minuteMs, "none")).toMatchObject({ missed: noon });
    expect(due(timing, noon - 1, noon + 60 * minuteMs, "last")).toMatchObject({ fire: [noon] });
    expect(due(timing, noon, noon + 60 * minuteMs, "all")).toBeNull();
  });
});

it("fires every instant of an interval once, however the looks at it fall", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 100, max: 100_000 }),
      fc.array(fc.integer({ min: -20_000, max: 200_000 }), { maxLength: 30 }),
      (everyMs, moves) => {
        const timing = { kind: "every", everyMs, anchor: noon } as const;
        const fired: number[] = [];
        let now = noon;
        let latest = noon;
        let decidedUntil = noon;
        for (const move of moves) {
          now = Math.max(now + move, noon);
          latest = Math.max(latest, now);
          const plan = due(timing, decidedUntil, now, "all", 10_000);
          if (plan === null) continue;
          fired.push(...plan.fire);
          decidedUntil = plan.until;
        }
        const all = Math.floor((latest - noon) / everyMs);
        expect(fired).toEqual(Array.from({ length: all }, (_, k) => noon + (k + 1) * everyMs));
      },
    ),
  );
});

it("an interval goes by its beginning", () => {
  const timing = { kind: "every", everyMs: 1_000, anchor: 500 } as const;
  expect(nextInstant(timing, 0, cronReader)).toBe(1_500);
  expect(nextInstant(timing, 1_500, cronReader)).toBe(2_500);
  expect(nextInstant(timing, 2_499, cronReader)).toBe(2_500);
});

it("names the job of an instant, and no other the same", () => {
  const id = scheduledJobId("shop", "nightly", noon);
  expect(id).toMatch(/^schedule-[0-9a-f]{20}-20300601T120000000Z$/);
  expect(scheduledJobId("shop", "nightly", noon)).toBe(id);
  const others = [
    scheduledJobId("shop", "nightly", noon + 1),
    scheduledJobId("shop", "weekly", noon),
    scheduledJobId("shops", "nightly", noon),
  ];
  expect(new Set([id, ...others]).size).toBe(4);
});
