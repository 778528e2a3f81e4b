// The keepers of a server: every service is tended, whatever is wrong with another and however many there are.
import { defineJob, defineService, type Json } from "millrace";
import { FakeClock } from "millrace/testing";
import { expect, it } from "vitest";
import { z } from "zod";
import { manifest as manifestOf } from "#millrace/contract/manifest.js";
import { recordId } from "#millrace/engine/record.js";
import { type Api, openServer } from "./api.js";

/** A server in memory whose time stands still, and what it has warned of. */
async function openStill() {
  const clock = new FakeClock();
  const warnings: string[] = [];
  const silent = () => {};
  const warn = (fields: { readonly service?: string }, message: string) => {
    warnings.push(`${fields.service ?? ""}: ${message}`);
  };
  const logger = { debug: silent, info: silent, warn, error: silent };
  const server = await openServer({ url: "memory:", clock, logger });
  return { ...server, clock, warnings };
}

async function everySecond(api: Api, service: string): Promise<void> {
  const asked = { service, name: "tick", type: "tick", payload: null, everyMs: 1_000 };
  expect((await api.post("/v1/schedules", asked)).status).toBe(201);
}

async function hasFired(api: Api, service: string): Promise<boolean> {
  const { body } = await api.get(`/v1/schedules/${service}/tick`);
  return body.lastFired !== undefined;
}

it("tends all services but the one whose stored contract cannot be used, until another is accepted", async () => {
  const { api, engine, clock, warnings } = await openStill();
  const contract = defineService("aaa", { mail: defineJob({ payload: z.object({}) }) });
  const manifest = manifestOf(contract);
  const jobs = manifest.jobs.map((job) => ({ ...job, settings: { leaseMs: 1_000.5 } }));
  const acceptance = { acceptedAt: 0, acceptedBy: "an older version", earlier: [] };
  const body = { manifest: { ...manifest, jobs }, ...acceptance } as unknown as Json;
  await engine.swap([{ id: recordId.contract("aaa"), expect: 0, body }]);
  await everySecond(api, "zzz");
  await clock.advance(20_000);
  expect(await hasFired(api, "zzz")).toBe(true);
  expect(warnings).toEqual(["aaa: A service could not be tended; the server keeps trying."]);
  const asked = { service: "aaa", type: "mail", payload: {} };
  const refused = await api.post("/v1/jobs", asked);
  expect([refused.status, refused.body.error.details.reason]).toEqual([503, "contract_unusable"]);
  expect(refused.body.error.message).toContain("jobs.0.settings.version is missing");
  const both = await api.post("/v1/jobs/batch", { jobs: [asked, { ...asked, service: "other" }] });
  expect(both.body.entries).toMatchObject([{ outcome: "refused" }, { outcome: "accepted" }]);
  const { body: standing } = await api.post("/v1/contracts/aaa/diff", { manifest });
  const { migration } = standing;
  expect((await api.accept(contract, migration && { migration })).status).toBe(200);
  expect((await api.post("/v1/jobs", asked)).status).toBe(201);
});

it("tends more services than it can at once in turn, and says so", async () => {
  const { api, clock, warnings } = await openStill();
  const others = Array.from({ length: 259 }, (_, index) => `s${1_000 + index}`);
  const jobs = others.map((service) => ({ service, type: "t", payload: null }));
  await api.post("/v1/jobs/batch", { jobs });
  await everySecond(api, "s0");
  await everySecond(api, "zzz");
  await clock.advance(8_000);
  expect([await hasFired(api, "s0"), await hasFired(api, "zzz")]).toEqual([true, false]);
  expect(warnings.join()).toContain("There are more than 200 services");
  await clock.advance(30_000);
  expect(await hasFired(api, "zzz")).toBe(true);
  await api.delete("/v1/schedules/s0/tick");
  await everySecond(api, "s0");
  await clock.advance(60_000);
  expect(await hasFired(api, "s0")).toBe(true);
});
