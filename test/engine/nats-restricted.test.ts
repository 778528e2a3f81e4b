// A whole service as a user with no more than the permissions that are derived for it: everything that it
// does goes well, and the server has had nothing to refuse.
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, defineJob, defineService } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { commandMany } from "#millrace/client/commands.js";
import { systemIds } from "#millrace/client/ids.js";
import { manifest } from "#millrace/contract/manifest.js";
import { systemClock } from "#millrace/engine/clock.js";
import { silentLogger } from "#millrace/engine/logger.js";
import { openNats } from "#millrace/engine/nats/open.js";
import { permissionsOf, permissionsText, type Role } from "#millrace/engine/nats/permissions.js";
import { ownNats } from "../support/nats.js";

const payload = z.object({});
const shop = defineService("shop", {
  plain: defineJob({ payload }),
  flaky: defineJob({ payload, retry: { maxTries: 2, backoff: () => 1 } }),
  keyed: defineJob({
    payload,
    keyConcurrency: { key: ["all"], maxActive: 1 },
    queue: { maxQueuedPerKey: 5 },
  }),
  capped: defineJob({ payload, maxActive: 1 }),
  slow: defineJob({ payload }),
});

const bankContract = defineService("bank", { plain: defineJob({ payload }) });

it("a service runs its jobs with no more than its permissions", async () => {
  const folder = await mkdtemp(join(tmpdir(), "millrace-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const roles: Record<string, Role> = {
    admin: { kind: "admin" },
    shop: { kind: "service", manifest: manifest(shop) },
  };
  const users = Object.entries(roles).map(([user, role]) => {
    const permissions = permissionsText(permissionsOf({ prefix: "millrace" }, role));
    return `{ user: ${user}, password: ${user}, ${permissions} }`;
  });
  const log = join(folder, "server.log");
  const server = await ownNats({
    config: `log_file: ${JSON.stringify(log)}\nauthorization { users: [ ${users.join(", ")} ] }`,
  });
  const urlOf = (user: string) => {
    const projection = encodeURIComponent(`file:${join(folder, `${user}.db`)}`);
    return `${server.url.replace("//", `//${user}:${user}@`)}?projection=${projection}`;
  };
  const admin = await openNats(urlOf("admin"));
  onTestFinished(() => admin.close());
  const engine = await openNats(`${urlOf("shop")}&service=shop`);
  onTestFinished(() => engine.close());
  const service = await connect(shop, { engine });
  onTestFinished(() => service.stop());

  let failures = 0;
  let isRunning: () => void = () => {};
  const running = new Promise<void>((resolve) => {
    isRunning = resolve;
  });
  service.handle({
    plain: async (job) => {
      await job.progress({ step: "one" });
      await job.log("one");
      await job.heartbeat();
    },
    flaky: async () => {
      failures += 1;
      if (failures === 1) throw new Error("once");
    },
    keyed: async () => {},
    capped: async () => {},
    slow: async ({ signal }) => {
      isRunning();
      await new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason));
      });
    },
  });
  await service.start();

  const { jobs } = service;
  const first = await jobs.plain.create({}, { idempotencyKey: "one" }).orThrow();
  await first.wait().orThrow();
  await (await jobs.plain.create({}, { delayMs: 5 }).orThrow()).wait().orThrow();
  await (await jobs.flaky.create({}).orThrow()).wait().orThrow();
  for (const face of [jobs.keyed, jobs.capped]) {
    const refs = [];
    for (let n = 0; n < 3; n++) refs.push(await face.create({}).orThrow());
    for (const ref of refs) await ref.wait().orThrow();
  }
  const slow = await jobs.slow.create({}).orThrow();
  await running;
  await slow.cancel().orThrow();
  expect(await slow.wait()).toMatchObject({ error: { _tag: "JobEnded", state: "cancelled" } });
  await service.queues.pause("plain").orThrow();
  await service.queues.resume("plain").orThrow();
  const { entries } = await service.reads.audit().orThrow();
  expect(entries.slice(0, 2).map(({ action }) => action)).toEqual(["queue.resume", "queue.pause"]);
  const bank = await connect(bankContract, { engine: admin });
  onTestFinished(() => bank.stop());
  await bank.jobs.plain.create({}, { id: "taken" }).orThrow();
  for (const face of [jobs.plain, jobs.keyed])
    expect(await face.create({}, { id: "taken", idempotencyKey: "two" })).toMatchObject({
      error: { _tag: "JobExists" },
    });
  expect((await service.reads.keys().orThrow()).entries).toMatchObject([
    { active: [], queuedCount: 0 },
  ]);
  await first.retry({ force: true }).orThrow();
  await first.wait().orThrow();
  const listed = await service.reads.jobs({ limit: 100 }).orThrow();
  expect(listed.count).toBe(10);
  expect(await service.reads.workers().orThrow()).toHaveLength(1);
  expect((await first.events().orThrow()).length).toBeGreaterThan(5);
  await expect(connect(bankContract, { engine })).rejects.toMatchObject({
    _tag: "InvalidOption",
    field: "url",
    message: expect.stringMatching(/service "shop".*contract of "bank"/),
  });
  await service.stop();

  const refused = (await readFile(log, "utf8")).match(/(Publish|Subscription) Violation.*/g) ?? [];
  // Whether it may manage streams is asked once, at the beginning.
  // Servers before 2.12 also name the user.
  const asked =
    /^Publish Violation - (User "shop", )?Subject "\$JS\.API\.STREAM\.INFO\.MILLRACE_JOBS"$/;
  expect(refused).toEqual([expect.stringMatching(asked)]);
});

it("a service replays its dead jobs and leaves it to the admin to dismiss them", async () => {
  const roles: Record<string, Role> = {
    admin: { kind: "admin" },
    bank: { kind: "service", manifest: manifest(bankContract) },
  };
  const users = Object.entries(roles).map(([user, role]) => {
    const permissions = permissionsText(permissionsOf({ prefix: "millrace" }, role));
    return `{ user: ${user}, password: ${user}, ${permissions} }`;
  });
  const server = await ownNats({ config: `authorization { users: [ ${users.join(", ")} ] }` });
  const open = async (user: string, scope = "") => {
    const address = server.url.replace("//", `//${user}:${user}@`);
    const engine = await openNats(`${address}?projection=memory:${scope}`);
    onTestFinished(() => engine.close());
    const opened = await connect(bankContract, { engine });
    onTestFinished(() => opened.stop());
    return opened;
  };
  const admin = await open("admin");
  const bank = await open("bank", "&service=bank");
  bank.jobs.plain.handle(async () => {
    throw new Error("broken");
  });
  await bank.start();
  const ref = await bank.jobs.plain.create({}, { maxTries: 1 }).orThrow();
  const dead = { error: { _tag: "JobEnded", state: "dead" } };
  expect(await ref.wait()).toMatchObject(dead);
  await ref.replay().orThrow();
  expect(await ref.wait()).toMatchObject(dead);
  expect(await ref.dismiss()).toMatchObject({
    error: {
      _tag: "StoreUnavailable",
      message: expect.stringContaining("does not permit this"),
    },
  });
  expect(await ref.get().orThrow()).toMatchObject({ state: "dead", run: 2 });
  await admin.ref(ref.id).dismiss().orThrow();
  expect(await ref.get().orThrow()).toMatchObject({ state: "dismissed" });
});

describe("a command that a user may not give", () => {
  const scope = { prefix: "millrace" };

  /** A service that may leave one job alone, its admin, and how often the server had to refuse something about a job. */
  async function denied() {
    const folder = await mkdtemp(join(tmpdir(), "millrace-"));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const { publish, ...rest } = permissionsOf(scope, {
      kind: "service",
      manifest: manifest(shop),
    });
    const deny = [...(publish.deny ?? []), "millrace.jobs.shop.*.not-yours.>"];
    const permissions = permissionsText({ ...rest, publish: { ...publish, deny } });
    const users = `{ user: admin, password: admin }, { user: shop, password: shop, ${permissions} }`;
    const log = join(folder, "server.log");
    const server = await ownNats({
      config: `log_file: ${JSON.stringify(log)}\nauthorization { users: [ ${users} ] }`,
    });
    const open = async (user: string, more = "") => {
      const url = `${server.url.replace("//", `//${user}:${user}@`)}?projection=memory:${more}`;
      const service = await connect(shop, { url });
      onTestFinished(() => service.stop());
      return service;
    };
    const admin = await open("admin");
    const service = await open("shop", "&service=shop");
    const refusals = async (id: string) =>
      (await readFile(log, "utf8")).split("\n").filter((line) => line.includes(id)).length;
    return { admin, service, refusals };
  }

  it("tells so, and is not given again and again", async () => {
    const { service, refusals } = await denied();
    service.handle({
      flaky: async () => {
        throw new Error("always");
      },
    });
    await service.start();
    const job = await service.jobs.flaky.create({}, { maxTries: 1 }).orThrow();
    await job.wait();
    expect(await job.dismiss()).toMatchObject({
      error: {
        _tag: "StoreUnavailable",
        message: expect.stringMatching(/does not permit this.*dismissed.*use another user/),
      },
    });
    // A store looks whether it was stored all the same, some times.
    expect(await refusals(job.id)).toBeLessThan(10);
    expect((await job.get().orThrow()).state).toBe("dead");
  });

  it("keeps no other job from being given one in the same call", async () => {
    const { admin, service, refusals } = await denied();
    await admin.jobs.plain.create({}, { id: "not-yours" }).orThrow();
    const ids = ["one", "not-yours", "two"];
    for (const id of ["one", "two"]) await service.jobs.plain.create({}, { id }).orThrow();
    const { engine, instance } = service;
    const fixed = { clock: systemClock, ids: systemIds, logger: silentLogger };
    const runtime = { engine, instance, service: "shop", ...fixed };
    const outcomes = await commandMany(runtime, ids, () => ({
      command: "cancel",
      eventId: runtime.ids.eventId(),
      actor: "client:test",
    }));
    expect(outcomes).toMatchObject([
      { ok: true, job: { state: "cancelled" } },
      { ok: false, fault: { _tag: "StoreUnavailable" } },
      { ok: true, job: { state: "cancelled" } },
    ]);
    expect(await refusals("not-yours")).toBeLessThan(10);
  });
});
