// What waits for the clock, on every store, with a clock that the test moves: schedules, and how long ended jobs stay.
import { connect, defineJob, defineService, openEngine } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { systemIds } from "#millrace/client/ids.js";
import { scheduledJobId } from "#millrace/core/schedule.js";
import { silentLogger } from "#millrace/engine/logger.js";
import { createKeeper } from "#millrace/keeper/keeper.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { everyStore, type Store } from "../support/every-store.js";

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;

const payload = z.object({});
const contract = defineService(
  "shop",
  {
    report: defineJob({ payload }),
    brief: defineJob({ payload, retention: { cancelled: 10 * minuteMs } }),
    unkept: defineJob({ payload, retention: { cancelled: 0 } }),
  },
  { retention: { cancelled: hourMs } },
);
const hourly = { type: "report", payload: {}, everyMs: hourMs } as const;

/** A service of whose keeper every round is called for by hand. */
async function open(store: Store) {
  const clock = new FakeClock();
  const engine = await openEngine(await store.freshUrl(), { clock });
  onTestFinished(() => engine.close());
  const service = await connect(contract, { engine, clock, keeper: false });
  onTestFinished(() => service.stop());
  const runtime = { clock, engine, ids: systemIds, logger: silentLogger };
  const keeper = createKeeper({
    runtime: { ...runtime, instance: "k1", service: "shop" },
    contract,
  });
  onTestFinished(() => keeper.stop());
  const startedAt = clock.now();
  const idOf = (name: string, hour: number) =>
    scheduledJobId("shop", name, startedAt + hour * hourMs);
  return {
    service,
    /** Lets time pass, and has the keeper look. */
    later: async (delayMs: number) => {
      await clock.leap(delayMs);
      await keeper.tick();
    },
    idOf,
    exists: async (id: string) => (await engine.load([id]))[0] !== null,
    /** The hours of which a schedule has made jobs. */
    fired: async (name: string) => {
      const hours = [1, 2, 3, 4, 5, 6];
      const found = await engine.load(hours.map((hour) => idOf(name, hour)));
      return hours.filter((_, index) => found[index] !== null);
    },
  };
}

describe.for(everyStore)("on $name", (store) => {
  it("a schedule makes up for what was missed as it says", async () => {
    const { service, later, fired } = await open(store);
    const policies = { none: [], last: [5], all: [3, 4, 5] } as const;
    for (const catchUp of ["none", "last", "all"] as const) {
      const most = catchUp === "all" ? { catchUpMax: 3 } : null;
      await service.schedules.create(catchUp, { ...hourly, catchUp, ...most }).orThrow();
    }
    await later(5.5 * hourMs);
    for (const [name, hours] of Object.entries(policies)) expect(await fired(name)).toEqual(hours);
    await later(0.5 * hourMs);
    for (const [name, hours] of Object.entries(policies))
      expect(await fired(name)).toEqual([...hours, 6]);
  });

  it("a schedule skips instants while its last job has not ended, if it is told to", async () => {
    const { service, later, fired, idOf } = await open(store);
    await service.schedules.create("skipping", { ...hourly, overlap: "skip" }).orThrow();
    await service.schedules.create("allowing", hourly).orThrow();
    for (let hour = 1; hour <= 3; hour++) await later(hourMs);
    expect(await fired("skipping")).toEqual([1]);
    expect(await fired("allowing")).toEqual([1, 2, 3]);
    const { lastSkipped } = await service.schedules.get("skipping").orThrow();
    expect(lastSkipped?.reason).toBe("overlap");
    await service.ref(idOf("skipping", 1)).cancel().orThrow();
    await later(hourMs);
    expect(await fired("skipping")).toEqual([1, 4]);
  });

  it("a schedule that was paused makes up for nothing", async () => {
    const { service, later, fired } = await open(store);
    await service.schedules.create("paused", { ...hourly, catchUp: "all" }).orThrow();
    await service.schedules.pause("paused").orThrow();
    await later(2.5 * hourMs);
    await service.schedules.resume("paused").orThrow();
    await later(0);
    expect(await fired("paused")).toEqual([]);
    await later(0.5 * hourMs);
    expect(await fired("paused")).toEqual([3]);
  });

  it("ended jobs stay as long as their type, or else their service, says", async () => {
    const { service, later, exists } = await open(store);
    const ids: { [type: string]: string } = {};
    for (const type of ["report", "brief", "unkept"] as const) {
      const job = await service.jobs[type].create({}).orThrow();
      await job.cancel().orThrow();
      ids[type] = job.id;
    }
    const kept = async () => {
      const found = Object.entries(ids).map(async ([type, id]) =>
        (await exists(id)) ? [type] : [],
      );
      return (await Promise.all(found)).flat();
    };
    await later(1);
    expect(await kept()).toEqual(["report", "brief"]);
    await later(9 * minuteMs);
    expect(await kept()).toEqual(["report", "brief"]);
    await later(2 * minuteMs);
    expect(await kept()).toEqual(["report"]);
    await later(hourMs);
    expect(await kept()).toEqual([]);
  });
});
