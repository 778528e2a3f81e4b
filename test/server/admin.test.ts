// The admin runtime on a real server: it projects, rebuilds while jobs run, shares a projection with a second
// one, and removes what services may not.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type CloudEvent, connect, defineJob, defineService, type Engine } from "millrace";
import { JobsClient, startAdmin } from "millrace/nats";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshPrefix, natsConnection } from "../support/nats.js";
import { freshSchema } from "../support/postgres.js";

const payload = z.object({ number: z.number() });
const shop = defineService("shop", {
  plain: defineJob({ payload, concurrency: 50 }),
  keyed: defineJob({
    payload,
    keyConcurrency: { key: ["one"] },
    queue: { maxQueuedPerKey: 100 },
  }),
  waits: defineJob({ payload }),
});

async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-admin-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** A deployment, and the URLs of its admin runtimes and of its service, whose projections lie apart. */
async function deployment(projection?: string) {
  const folder = await freshFolder();
  const { storeUrl, url, prefix } = await freshPrefix();
  const at = (where: string) => `${storeUrl}&projection=${encodeURIComponent(where)}`;
  const adminUrl = at(projection ?? `file:${join(folder, "admin.db")}`);
  const start = async () => {
    const admin = await startAdmin(adminUrl);
    onTestFinished(() => admin.stop());
    return admin;
  };
  const service = await connect(shop, { url: at(`file:${join(folder, "shop.db")}`) });
  onTestFinished(() => service.stop());
  service.handle({ plain: () => {}, keyed: () => {}, waits: () => {} });
  return { start, service, url, prefix };
}

/** Everything that lists show, but for leases, which the log does not tell of. */
async function viewOf(engine: Engine) {
  const jobs = await engine.query("jobs", { limit: 100 });
  return {
    count: jobs.count,
    entries: jobs.entries.map(({ leaseUntil: _, heartbeatAt: __, ...row }) => row),
    counts: await engine.query("counts", {}),
    keys: await engine.query("keys", { service: "shop" }),
  };
}

describe.for(["SQLite", "PostgreSQL"] as const)("an admin runtime on %s", (database) => {
  const projectionUrl = async () =>
    database === "SQLite" ? undefined : (await freshSchema()).storeUrl;

  it("rebuilds an equal view, also while jobs run", async () => {
    const { start, service } = await deployment(await projectionUrl());
    const admin = await start();
    await service.start();
    const numbers = Array.from({ length: 30 }, (_, number) => number);
    const all = numbers.flatMap((number) => [
      service.jobs.plain.run({ number }),
      service.jobs.keyed.run({ number }),
    ]);
    await all[0];
    await admin.rebuild();
    for (const one of all) expect((await one).isOk()).toBe(true);
    const removed = await service.jobs.plain.create({ number: 99 }).orThrow();
    await removed.wait().orThrow();
    await removed.delete().orThrow();
    const before = await viewOf(admin.engine);
    expect(before.count).toBe(60);
    await admin.rebuild();
    expect(await viewOf(admin.engine)).toEqual(before);
    expect((await admin.projection()).lag).toBe(0);
  });

  it("shares its projection with a second one, which takes over", async () => {
    const { start, service } = await deployment(await projectionUrl());
    const [first, second] = [await start(), await start()];
    await service.jobs.waits.create({ number: 1 }).orThrow();
    expect(await viewOf(second.engine)).toEqual(await viewOf(first.engine));
    const leads = [(await first.projection()).leads, (await second.projection()).leads];
    expect(leads.filter(Boolean)).toHaveLength(1);
    const [leader, other] = leads[0] ? [first, second] : [second, first];
    await leader.stop();
    await service.jobs.waits.create({ number: 2 }).orThrow();
    expect((await other.engine.query("jobs", {})).count).toBe(2);
  });
});

it("catches up with whatever happened while no admin runtime ran", async () => {
  const { start, service } = await deployment();
  const first = await start();
  await service.start();
  const numbers = Array.from({ length: 10 }, (_, number) => number);
  for (const number of numbers) await service.jobs.plain.run({ number }).orThrow();
  expect(await viewOf(first.engine)).toMatchObject({ count: 10 });
  const { entries } = await first.engine.query("jobs", { limit: 100 });
  await first.stop();
  for (const number of numbers) {
    await service.jobs.plain.run({ number }).orThrow();
    await service.jobs.keyed.run({ number }).orThrow();
  }
  for (const { id } of entries.slice(0, 5)) await service.ref(id).delete().orThrow();
  const again = await start();
  const caughtUp = await viewOf(again.engine);
  expect(caughtUp.count).toBe(25);
  await again.rebuild();
  expect(await viewOf(again.engine)).toEqual(caughtUp);
});

it("tells how it is, and how far its projection is behind", async () => {
  const { start, url, prefix } = await deployment();
  await start();
  const jobs = new JobsClient(await natsConnection(url), { prefix });
  const health = await jobs.health().orThrow();
  expect(health).toMatchObject({
    checks: expect.arrayContaining([
      { name: "projection", status: "ok", detail: "0 events behind the log" },
    ]),
  });
});

it("removes the log of a job that a service has deleted and could not remove", async () => {
  const { start, prefix, url, service } = await deployment();
  const admin = await start();
  const folder = await freshFolder();
  const own = `${url}?prefix=${prefix}&service=shop&projection=file:${join(folder, "own.db")}`;
  const limited = await connect(shop, { url: own, instance: "limited" });
  onTestFinished(() => limited.stop());
  const ref = await limited.jobs.waits.create({ number: 1 }).orThrow();
  await ref.delete({ force: true }).orThrow();
  expect(await ref.get()).toMatchObject({ error: { _tag: "JobNotFound" } });
  expect(await service.engine.load([ref.id])).toEqual([null]);
  // The newest event is never forgotten.
  await limited.jobs.waits.create({ number: 0 }).orThrow();
  // What each process takes for the server's time may differ by some milliseconds.
  expect(await admin.engine.prune(admin.engine.now() + 1_000)).toBe(1);
  const again = await limited.jobs.waits.create({ number: 2 }, { id: ref.id }).orThrow();
  expect((await again.events().orThrow()).map(({ name }) => name)).toEqual(["created"]);
});

it("announces every event once as a CloudEvent, whatever number of admin runtimes there is", async () => {
  const { start, service, url, prefix } = await deployment();
  const connection = await natsConnection(url);
  const heard: { subject: string; event: CloudEvent }[] = [];
  const ended = new Promise<void>((resolve) => {
    connection.subscribe(`${prefix}.events.>`, {
      callback: (_error, message) => {
        heard.push({ subject: message.subject, event: message.json<CloudEvent>() });
        if (message.subject.endsWith(".waits.completed")) resolve();
      },
    });
  });
  await connection.flush();
  await start();
  await start();
  await service.start();
  const first = await service.jobs.plain.create({ number: 7 }).orThrow();
  await first.wait().orThrow();
  await service.jobs.waits.run({ number: 8 }).orThrow();
  await ended;
  const told = heard.filter(({ event }) => event.subject === first.id);
  expect(told.map(({ subject }) => subject.slice(prefix.length))).toEqual([
    ".events.shop.plain.created",
    ".events.shop.plain.started",
    ".events.shop.plain.completed",
  ]);
  expect(told[0]?.event).toMatchObject({
    specversion: "1.0",
    type: "millrace.job.created",
    source: "/millrace/shop",
  });
  expect(told[0]?.event.data).not.toHaveProperty("payload");
});
