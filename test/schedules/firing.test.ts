// What the leading keeper makes of schedules, on a store in memory with a clock that the test moves.
import { expect, it } from "vitest";
import { z } from "zod";
import { createClient } from "#millrace/client/client.js";
import { encryptionDemanded } from "#millrace/client/encryption-demand.js";
import { Schedules } from "#millrace/client/schedules.js";
import { Signing } from "#millrace/client/signing.js";
import { generateSigningKeys } from "#millrace/client/signing-keys.js";
import { generateEncryptionKey, Vault } from "#millrace/client/vault.js";
import { defineJob, defineService } from "#millrace/contract/define.js";
import type { ScheduleInput } from "#millrace/contract/schedules.js";
import { scheduledJobId } from "#millrace/core/schedule.js";
import { StoreFailed } from "#millrace/engine/errors.js";
import { createKeeper } from "#millrace/keeper/keeper.js";
import { Workshop } from "../worker/workshop.js";

const contract = defineService("shop", {
  report: defineJob({ payload: z.object({ kind: z.string() }), queue: { name: "slow" } }),
  sync: defineJob({
    payload: z.object({ origin: z.string() }),
    keyConcurrency: { key: ["/origin"] },
  }),
});

const hourly = { type: "report", payload: { kind: "sales" }, cron: "0 * * * *" } as const;
const hourMs = 60 * 60 * 1_000;

function shop() {
  const workshop = new Workshop(contract);
  const schedules = new Schedules(createClient(workshop.runtime("api"), contract), contract);
  const startedAt = workshop.clock.now();
  return {
    workshop,
    schedules,
    create: (spec: Partial<ScheduleInput> = {}) =>
      schedules.create("hourly", { ...hourly, ...spec } as ScheduleInput).orThrow(),
    idOf: (hours: number) => scheduledJobId("shop", "hourly", startedAt + hours * hourMs),
    idsOf: async () => {
      const page = await workshop.engine.query("jobs", { limit: 100 });
      return page.entries.map(({ id }) => id).sort();
    },
  };
}

it("makes a job at its instant, with everything that the schedule says", async () => {
  const { workshop, create, idOf, idsOf, schedules } = shop();
  await create({ priority: 7, deadlineMs: 5_000, tags: ["money"] });
  const keeper = workshop.keeper();
  await workshop.clock.leap(hourMs - 2_000);
  await keeper.start();
  await workshop.clock.advance(1_999);
  expect(await idsOf()).toEqual([]);
  await workshop.clock.advance(1);
  expect(await idsOf()).toEqual([idOf(1)]);
  const now = workshop.clock.now();
  expect(await workshop.job(idOf(1))).toMatchObject({
    type: "report",
    typeVersion: 1,
    queue: "slow",
    payload: { kind: "sales" },
    priority: 7,
    createdAt: now,
    runAt: now,
    deadline: now + 5_000,
    tags: ["schedule:hourly", "money"],
  });
  expect((await workshop.events(idOf(1)))[0]?.actor).toBe("keeper:k1");
  expect(await schedules.get("hourly").orThrow()).toMatchObject({
    lastFired: { at: now, jobId: idOf(1) },
    nextAt: now + hourMs,
  });
  await keeper.stop();
});

it("fires within the millisecond, however long the keeper waits between its rounds", async () => {
  const { workshop, create, idOf } = shop();
  await create();
  const rarely = { tickMs: 24 * hourMs, ttlMs: 24 * hourMs, renewMs: 6 * hourMs };
  const keeper = workshop.keeper("k1", rarely);
  await keeper.start();
  await workshop.clock.advance(hourMs);
  expect(await workshop.exists(idOf(1))).toBe(true);
  await keeper.stop();
});

it("fires each instant once, however many keepers take themselves for the leader", async () => {
  const { workshop, create, idsOf, idOf } = shop();
  await create();
  const keepers = ["k1", "k2", "k3"].map((name) => workshop.keeper(name));
  for (let hour = 0; hour < 3; hour++) {
    await workshop.clock.leap(hourMs);
    await Promise.all(keepers.map((keeper) => keeper.tick()));
  }
  expect(await idsOf()).toEqual([1, 2, 3].map(idOf));
});

it("does not fire an instant again whose job was removed, nor when the clock is set back", async () => {
  const { workshop, create, idOf, idsOf } = shop();
  await create({ catchUp: "all" });
  const keeper = workshop.keeper();
  await workshop.clock.leap(hourMs);
  await keeper.tick();
  await workshop.remove(idOf(1));
  await keeper.tick();
  await workshop.clock.leap(-30 * 60 * 1_000);
  await keeper.tick();
  await workshop.clock.leap(30 * 60 * 1_000);
  await keeper.tick();
  expect(await idsOf()).toEqual([]);
});

it("goes on from a job that was made although its schedule does not know", async () => {
  const { workshop, create, idOf, schedules } = shop();
  await create();
  await workshop.create("report", { kind: "sales" }, { id: idOf(1) });
  const keeper = workshop.keeper();
  await workshop.clock.leap(hourMs);
  await keeper.tick();
  expect(await schedules.get("hourly").orThrow()).toMatchObject({ lastFired: { jobId: idOf(1) } });
  await workshop.clock.leap(hourMs);
  await keeper.tick();
  expect(await workshop.exists(idOf(2))).toBe(true);
});

it("fires all others when the store takes no job of one, and passes over its instants in the end", async () => {
  const { workshop, schedules } = shop();
  const every = { type: "report", payload: { kind: "sales" }, everyMs: 10_000 };
  const names = Array.from({ length: 60 }, (_, index) => `s${100 + index}`);
  for (const name of ["bad", ...names]) await schedules.create(name, every).orThrow();
  const { createdAt } = await schedules.get("bad").orThrow();
  const instant = createdAt + 10_000;
  const bad = scheduledJobId("shop", "bad", instant);
  const { engine } = workshop;
  const error = new StoreFailed({ url: engine.url, message: "integer out of range" });
  const append: typeof engine.append = async (changes, ...more) =>
    changes[0]?.job.id === bad ? [{ outcome: "faulted", error }] : engine.append(changes, ...more);
  const failing = new Proxy(engine, {
    get: (target, name) => {
      if (name === "append") return append;
      const member = Reflect.get(target, name, target) as unknown;
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
  const runtime = { ...workshop.runtime("k1"), engine: failing };
  const keeper = createKeeper({ runtime, contract });
  await keeper.start();
  await workshop.clock.advance(10_500);
  const fired = async () => {
    const all = await schedules.list().orThrow();
    return all.filter(({ lastFired }) => lastFired?.at === instant).map(({ name }) => name);
  };
  expect(await fired()).toEqual(names);
  await workshop.clock.advance(5_000);
  expect((await schedules.get("bad").orThrow()).lastSkipped).toEqual({
    ...{ at: instant, reason: "refused" },
  });
  await workshop.clock.advance(5_000);
  expect((await schedules.get("bad").orThrow()).lastFired?.at).toBe(instant + 10_000);
  await keeper.stop();
});

it("makes up for what was missed as the schedule says", async () => {
  const missed = {
    none: [],
    last: [5],
    all: [3, 4, 5],
  };
  for (const [catchUp, hours] of Object.entries(missed) as [keyof typeof missed, number[]][]) {
    const { workshop, create, idOf, idsOf, schedules } = shop();
    await create({ catchUp, ...(catchUp === "all" ? { catchUpMax: 3 } : null) });
    await workshop.clock.leap(5.5 * hourMs);
    await workshop.keeper().tick();
    expect(await idsOf()).toEqual(hours.map(idOf));
    const { lastSkipped } = await schedules.get("hourly").orThrow();
    expect(lastSkipped?.reason).toBe(catchUp === "last" ? undefined : "missed");
    await workshop.clock.leap(0.5 * hourMs);
    await workshop.keeper().tick();
    expect(await idsOf()).toEqual([...hours, 6].map(idOf));
  }
});

it("skips instants while the last job has not ended, if it is told to", async () => {
  const { workshop, create, idOf, idsOf, schedules } = shop();
  await create({ overlap: "skip" });
  const keeper = workshop.keeper();
  for (let hour = 0; hour < 3; hour++) {
    await workshop.clock.leap(hourMs);
    await keeper.tick();
  }
  expect(await idsOf()).toEqual([idOf(1)]);
  expect((await schedules.get("hourly").orThrow()).lastSkipped).toEqual({
    at: workshop.clock.now(),
    reason: "overlap",
  });
  await workshop.complete(idOf(1));
  await keeper.tick();
  expect(await idsOf()).toEqual([idOf(1)]);
  await workshop.clock.leap(hourMs);
  await keeper.tick();
  expect(await idsOf()).toEqual([idOf(1), idOf(4)]);
});

it("goes on when a full key lets no job in", async () => {
  const { workshop, create, idsOf, idOf, schedules } = shop();
  await create({ type: "sync", payload: { origin: "north" } });
  const keeper = workshop.keeper();
  for (let hour = 0; hour < 2; hour++) {
    await workshop.clock.leap(hourMs);
    await keeper.tick();
  }
  expect(await idsOf()).toEqual([idOf(1)]);
  expect((await schedules.get("hourly").orThrow()).lastSkipped?.reason).toBe("key_full");
  await workshop.complete(idOf(1));
  await workshop.clock.leap(hourMs);
  await keeper.tick();
  expect(await idsOf()).toEqual([idOf(1), idOf(3)]);
});

it("one schedule that makes no valid job does not keep the others from firing", async () => {
  const { workshop, create, idOf, schedules } = shop();
  const older = defineService("shop", { sync: defineJob({ payload: z.object({}) }) });
  const client = createClient(workshop.runtime("api"), older);
  const spec = { ...hourly, type: "sync", payload: {} };
  await new Schedules(client, older).create("broken", spec).orThrow();
  await create();
  await workshop.clock.leap(hourMs);
  await workshop.keeper().tick();
  expect(await workshop.exists(idOf(1))).toBe(true);
  expect((await schedules.get("broken").orThrow()).lastSkipped?.reason).toBe("refused");
  expect(workshop.logged("makes no valid job")).toHaveLength(1);
});

it("fires nothing while it is paused, and makes up for nothing afterwards", async () => {
  const { workshop, create, idOf, idsOf, schedules } = shop();
  await create({ catchUp: "all" });
  expect((await schedules.pause("hourly").orThrow()).nextAt).toBeNull();
  const keeper = workshop.keeper();
  await workshop.clock.leap(2.5 * hourMs);
  await keeper.tick();
  await schedules.resume("hourly").orThrow();
  await keeper.tick();
  expect(await idsOf()).toEqual([]);
  await workshop.clock.leap(0.5 * hourMs);
  await keeper.tick();
  expect(await idsOf()).toEqual([idOf(3)]);
});

it("keeps trying when the store does not answer", async () => {
  const { workshop, create, idOf } = shop();
  await create();
  const keeper = workshop.keeper();
  await workshop.clock.leap(hourMs - 2_000);
  await keeper.start();
  await workshop.clock.advance(1_000);
  workshop.trouble.append = "refuse";
  await workshop.clock.advance(5_000);
  expect(workshop.logged("Schedules could not be fired")).toHaveLength(1);
  workshop.trouble.append = "lose-reply";
  await workshop.clock.advance(5_000);
  workshop.trouble.append = "none";
  await workshop.clock.advance(5_000);
  expect(await workshop.names(idOf(1))).toEqual(["created"]);
  await keeper.stop();
});

it("signs what it makes up for so that it may still run", async () => {
  const { privateKey } = generateSigningKeys();
  const { workshop, create, idOf } = shop();
  await create({ catchUp: "all" });
  const signing = new Signing({ sign: privateKey, expiresMs: 60_000 });
  const runtime = { ...workshop.runtime("k1"), signing };
  await workshop.clock.leap(2 * hourMs);
  await createKeeper({ runtime, contract }).tick();
  const [loaded] = await workshop.engine.load([idOf(1)]);
  expect(loaded?.job.signature?.expiresAt).toBe(workshop.engine.now() + 60_000);
});

it("signs what it makes with the key of the process that leads", async () => {
  const { publicKey, privateKey } = generateSigningKeys();
  const { workshop, create, idOf } = shop();
  await create();
  const signing = new Signing({ sign: privateKey, verify: [publicKey] });
  await workshop.clock.leap(hourMs);
  await createKeeper({ runtime: { ...workshop.runtime("k1"), signing }, contract }).tick();
  expect((await workshop.job(idOf(1))).signature).toBeDefined();
});

const { publicKey, privateKey } = generateSigningKeys();
const vault = new Vault({ keys: [{ id: "k1", key: generateEncryptionKey() }] });
const keyed = [
  ["signed", { signing: new Signing({ sign: privateKey }) }, {}],
  [
    "signed, and the leader checks",
    { signing: new Signing({ sign: privateKey }) },
    { signing: new Signing({ verify: [publicKey] }) },
  ],
  ["encrypted", { vault }, {}],
  ["encrypted, and the leader knows", { vault }, { encryptionDemand: encryptionDemanded }],
] as const;

it.each(keyed)("leaves instants of jobs that are %s to who has keys", async (_, keys, none) => {
  const { workshop, idOf, idsOf, schedules } = shop();
  const holder = { ...workshop.runtime("holder"), ...keys };
  await new Schedules(createClient(holder, contract), contract)
    .create("hourly", { ...hourly, catchUp: "all" })
    .orThrow();
  const leader = createKeeper({ runtime: { ...workshop.runtime("bare"), ...none }, contract });
  await workshop.clock.leap(hourMs - 2_000);
  await leader.start();
  await workshop.clock.advance(30_000);
  expect(await idsOf()).toEqual([]);
  const [{ decidedUntil, ...left }] = (await recordOf(workshop)) as [Record<string, unknown>];
  expect(decidedUntil).toBe(left.createdAt);
  expect(await schedules.get("hourly").orThrow()).not.toHaveProperty("lastSkipped");
  expect((await schedules.run("hourly")).isErr()).toBe(true);
  const said = workshop.lines.filter(({ message }) => message.includes("holds the keys"));
  expect(said).toMatchObject([{ level: "warn", fields: { schedule: "hourly" } }]);
  // Another keeper that has the keys does not lead, and makes the job nevertheless.
  const follower = createKeeper({ runtime: holder, contract });
  await follower.start();
  await workshop.clock.advance(10_000);
  expect([leader.isLeader, follower.isLeader]).toEqual([true, false]);
  expect(await idsOf()).toEqual([idOf(1)]);
  await follower.stop();
  await leader.stop();
});

it("leaves to the leader what needs no keys, and the leader's own instants for a while", async () => {
  const { workshop, create, idOf, idsOf } = shop();
  await create();
  const follower = createKeeper({ runtime: { ...workshop.runtime("holder"), vault }, contract });
  await workshop.clock.leap(hourMs - 5_000);
  await workshop.keeper("bare").start();
  await follower.start();
  await workshop.clock.advance(10_000);
  expect((await workshop.events(idOf(1)))[0]?.actor).toBe("keeper:bare");
  expect(await idsOf()).toEqual([idOf(1)]);
  await follower.stop();
});

/** What the store holds of schedules. */
async function recordOf(workshop: Workshop): Promise<readonly unknown[]> {
  const records = await workshop.engine.query("records", { prefix: "schedule/", limit: 10 });
  return records.map(({ body }) => body);
}
