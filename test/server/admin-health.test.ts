// What an admin runtime says of its projection: well while it rests, however many events that is, and not when it does not
// catch up.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "better-sqlite3";
import { connect, defineJob, defineService } from "millrace";
import { JobsClient, startAdmin } from "millrace/nats";
import { FakeClock } from "millrace/testing";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshPrefix, natsConnection } from "../support/nats.js";

const shop = defineService("shop", { pack: defineJob({ payload: z.object({}) }) });

/** How often a thousand are created to make more events than are usually applied at once. */
const batches = 11;

async function deployment() {
  const folder = await mkdtemp(join(tmpdir(), "millrace-health-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const { storeUrl, url, prefix } = await freshPrefix();
  const view = join(folder, "admin.db");
  const service = await connect(shop, { url: `${storeUrl}&projection=file:${folder}/shop.db` });
  onTestFinished(() => service.stop());
  const thousand = Array.from({ length: 1_000 }, () => ({ payload: {} }));
  const create = () => service.jobs.pack.createMany(thousand).orThrow();
  const jobs = new JobsClient(await natsConnection(url), { prefix });
  const start = async (clock: FakeClock) => {
    const admin = await startAdmin(`${storeUrl}&projection=file:${view}`, { clock });
    onTestFinished(() => admin.stop());
    return admin;
  };
  return { start, create, jobs, view };
}

/** A deployment whose projection stands still: another process leads, and brings nothing up to date. */
async function standing() {
  const { start, create, jobs, view } = await deployment();
  const clock = new FakeClock();
  const first = await start(clock);
  await first.stop();
  const database = new Database(view);
  onTestFinished(() => void database.close());
  database.prepare("UPDATE projection SET leader = 'another', leader_until = ?").run(2 ** 50);
  const admin = await start(clock);
  return { create, jobs, clock, database, admin };
}

it("is healthy while its projection rests, however many events gather", async () => {
  const { create, jobs, admin } = await standing();
  for (let batch = 0; batch < batches; batch++) await create();
  expect(await admin.projection()).toMatchObject({ lag: batches * 1_000 });
  expect(await jobs.health().orThrow()).toMatchObject({ status: "healthy" });
}, 60_000);

it("is unhealthy where its projection does not catch up", async () => {
  const { create, jobs, clock, database } = await standing();
  await create();
  const healthy = await jobs.health().orThrow();
  expect(healthy).toMatchObject({
    status: "healthy",
    checks: [{}, { name: "projection", detail: "1000 events behind the log" }],
  });
  await clock.advance(30_001);
  expect(await jobs.health().orThrow()).toMatchObject({
    status: "unhealthy",
    checks: [
      { name: "store", status: "ok" },
      {
        name: "projection",
        status: "failed",
        detail: "1000 events behind the log, and not caught up for 31 s",
      },
    ],
  });
  database.prepare("UPDATE projection SET position = ?").run(2 ** 50);
  expect(await jobs.health().orThrow()).toMatchObject({ status: "healthy" });
});
