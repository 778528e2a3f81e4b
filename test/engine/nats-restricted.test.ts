// A whole service as a user with no more than the permissions that are derived for it: everything that it
// does goes well, and the server has had nothing to refuse.
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, defineJob, defineService } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { manifest } from "#millrace/contract/manifest.js";
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
  const asked = 'Publish Violation - Subject "$JS.API.STREAM.INFO.MILLRACE_JOBS"';
  expect(refused).toEqual([asked]);
});
