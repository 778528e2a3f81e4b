// A log that was removed and made anew, while a process that knew the old one still has the view open that both share.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect, defineJob, defineService, openEngine } from "millrace";
import { FakeClock } from "millrace/testing";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { leadMs } from "#millrace/engine/projection/projection.js";
import { freshPrefix, natsConnection } from "../support/nats.js";

const shop = defineService("shop", { pack: defineJob({ payload: z.object({}) }) });

it("is shown by who connects anew, and the other process says once why it shows nothing", async () => {
  const { storeUrl, url, prefix } = await freshPrefix();
  const folder = await mkdtemp(join(tmpdir(), "millrace-new-log-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const shared = `${storeUrl}&projection=file:${join(folder, "view.db")}`;
  const clock = new FakeClock();
  const told: string[] = [];
  const warn = (fields: object) =>
    void told.push((fields as { readonly error: Error }).error.message);
  const logger = { info: () => {}, warn, error: () => {} };
  const old = await openEngine(shared, { clock, logger });
  onTestFinished(() => old.close());
  await old.query("counts", {});
  const { streams } = await jetstreamManager(await natsConnection(url));
  await streams.delete(`${prefix.toUpperCase()}_JOBS`);
  const service = await connect(shop, { url: shared });
  onTestFinished(() => service.stop());
  const { id } = await service.jobs.pack.create({}).orThrow();
  expect((await service.engine.query("jobs", {})).entries).toMatchObject([{ id }]);
  // The old process would go on to lead, as it has done before.
  const tellsWhy = async () => {
    await clock.advance(leadMs);
    const reasons = told.filter((message) => message.includes("of a newer log"));
    // Who leads and who brings the view up to date each tells it once.
    expect(reasons.length).toBeLessThanOrEqual(2);
    return new Set(reasons).size;
  };
  await expect.poll(tellsWhy, { timeout: 10_000 }).toBe(1);
  await service.jobs.pack.create({}).orThrow();
  expect((await service.engine.query("jobs", {})).count).toBe(2);
  for (let time = 0; time < 3; time++) expect(await tellsWhy()).toBe(1);
});
