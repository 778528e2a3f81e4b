// Edges that are easily got wrong: keys that stand for other jobs, filters of live lines, queue names, and stopping.
import { defineJob, defineService } from "millrace";
import { expect, it } from "vitest";
import { z } from "zod";
import { freshPlace, openServer, sqlite } from "./api.js";
import { linesOf } from "./reading.js";

it("an Idempotency-Key of a create that was answered with another job stands for that job", async () => {
  const { api } = await openServer({ url: await freshPlace(sqlite), keeper: false });
  const asked = { service: "shop", type: "mail", payload: {}, idempotencyKey: "order-1" };
  const first = await api.post("/v1/jobs", asked);
  const headers = { "Idempotency-Key": "request-1" };
  for (let times = 0; times < 2; times++) {
    const again = await api.post("/v1/jobs", asked, { headers });
    expect([again.status, again.body.id]).toEqual([200, first.body.id]);
    expect(again.headers.get("location")).toBe(`/v1/jobs/${first.body.id}`);
  }
});

it("live lines tell of every change of the jobs that the filter names, and of no other", async () => {
  const { api } = await openServer({ url: await freshPlace(sqlite), keeper: false });
  const lines = await linesOf(api, "/v1/jobs?stream=ndjson&text=order-1&state=cancelled");
  await api.create("shop", "mail", { id: "order-11" });
  for (const id of ["order-1", "zebra-1"]) {
    await api.create("shop", "mail", { id });
    await api.post(`/v1/jobs/${id}/cancel`);
  }
  await api.post("/v1/jobs/order-11/cancel");
  const told = [await lines.next(), await lines.next()].map((line) => JSON.parse(line));
  expect(told).toMatchObject([
    { id: "order-1", state: "cancelled" },
    { id: "order-11", state: "cancelled" },
  ]);
});

it("a guarded queue comes into being by no route", async () => {
  const { api } = await openServer({ url: await freshPlace(sqlite), keeper: false });
  const answers = await Promise.all([
    api.post("/v1/jobs", { service: "shop", type: "mail", payload: {}, queue: "DEFAULT" }),
    api.post("/v1/queues", { service: "shop", queue: "DEFAULT" }),
    api.post("/v1/queues/shop/DEFAULT/pause"),
  ]);
  for (const { status, body } of answers)
    expect([status, body.error.details.reason]).toEqual([400, "default_queue_guarded"]);
  expect((await api.get("/v1/queues")).body.entries).toEqual([]);
});

it("the output of a chain hides what its job's type marks as secret", async () => {
  const { api } = await openServer({ url: await freshPlace(sqlite), keeper: false });
  const secret = { result: ["/token"] };
  const result = z.object({ token: z.string() });
  await api.accept(
    defineService("shop", {
      login: defineJob({ payload: z.object({}), result, secret }),
    }),
  );
  const { body } = await api.post("/v1/chains", { service: "shop", type: "login", payload: {} });
  await api.post(`/v1/chains/${body.id}/complete`, { result: { token: "open sesame" } });
  const chain = await api.get(`/v1/chains/${body.id}`);
  expect(chain.body).toMatchObject({ state: "completed", output: { token: "[redacted]" } });
  expect(JSON.stringify(chain.body)).not.toContain("sesame");
});

it("a stop answers whoever waits for work", async () => {
  const { api, stop } = await openServer({ url: await freshPlace(sqlite), keeper: false });
  const waiting = api.claim("shop", "mail", { waitMs: 30_000 });
  // The claim is under way once its worker is known.
  while ((await api.get("/v1/workers")).body.entries.length === 0);
  await stop();
  expect(await waiting).toEqual([]);
});

it("a contract with schedules and retention is accepted, and its secrets are hidden in schedules", async () => {
  const { api } = await openServer({ url: await freshPlace(sqlite), keeper: false });
  const payload = z.object({ password: z.string() });
  const jobs = { sync: defineJob({ payload, secret: { payload: ["/password"] } }) };
  const retention = { completed: Number.POSITIVE_INFINITY };
  const nightly = { type: "sync", payload: { password: "declared" }, cron: "0 3 * * *" } as const;
  const contract = defineService("shop", jobs, { retention, schedules: { nightly } });
  expect((await api.accept(contract)).status).toBe(200);
  const accepted = await api.get("/v1/contracts/shop");
  expect(accepted.body.manifest.retention).toEqual({ completed: "forever" });
  expect(JSON.stringify(accepted.body)).not.toContain("declared");
  const asked = { service: "shop", name: "own", type: "sync", payload: { password: "sesame" } };
  const made = await api.post("/v1/schedules", { ...asked, everyMs: 60_000 });
  expect(made.body.payload).toEqual({ password: "[redacted]" });
  expect(JSON.stringify((await api.get("/v1/schedules/shop")).body)).not.toContain("sesame");
});
