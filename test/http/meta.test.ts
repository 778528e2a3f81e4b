// What a server says of itself, on every store.
import { openEngine } from "millrace";
import { FakeClock } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { Readiness } from "#millrace/server/http/readiness.js";
import { apiStores, around, freshPlace, openServer, sharedServers, sqlite } from "./api.js";
import { operations, undocumented } from "./documented.js";

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  it("says that it lives and that its store can be used", async () => {
    expect((await servers.api.get("/healthz")).body).toEqual({ status: "ok" });
    const ready = await servers.api.get("/readyz");
    expect([ready.status, ready.body]).toEqual([
      200,
      { status: "ready", checks: [{ name: "store", status: "ok" }] },
    ]);
  });

  it("says what it is, without the secrets of its store's URL", async () => {
    const { body } = await servers.api.get("/v1/info");
    expect(body).toMatchObject({ name: "millrace", auth: "none", actor: "admin:local" });
    const kind = { SQLite: "file", PostgreSQL: "postgres", JetStream: "nats" }[store.name];
    expect(body.engine.kind).toBe(kind);
    expect(body.engine.url).not.toMatch(/[@?]/);
    expect((await servers.other.get("/v1/info")).body.instance).not.toBe(body.instance);
  });
});

it("shows the named retry policies with their delays", async () => {
  const { api } = await openServer({ url: "memory:" });
  const { body } = await api.get("/v1/retry-policies");
  const names = body.entries.map(({ name }: { name: string }) => name);
  expect(names).toEqual(["default", "linear-1m", "linear-10m", "linear-1h", "exponential"]);
  expect(body.entries[0].delaysMs).toEqual([5_000, 30_000, 120_000, 600_000, 1_800_000]);
});

it("serves its own description, which names every route", async () => {
  const { api } = await openServer({ url: "memory:" });
  const response = await api.send("GET", "/v1/openapi.json");
  const document = (await response.json()) as { paths: { [path: string]: object } };
  const served = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method} ${path}`),
  );
  expect(served).toEqual(operations.map(({ method, path }) => `${method} ${path}`));
});

it("is not ready when its store does not answer, and says why in the same shape", async () => {
  const { api, engine } = await openServer({ url: await freshPlace(sqlite), keeper: false });
  await engine.close();
  const ready = await api.get("/readyz");
  expect([ready.status, ready.body.status, ready.body.checks[0].status]).toEqual([
    503,
    "not_ready",
    "failed",
  ]);
  expect((await api.get("/healthz")).status).toBe(200);
});

it("asks its store once for all who want to know, and again a second later", async () => {
  const clock = new FakeClock();
  const store = await openEngine("memory:", { clock });
  onTestFinished(() => store.close());
  let questions = 0;
  const engine = around(store, "head", async (go) => {
    questions++;
    return go();
  });
  const readiness = new Readiness(engine, clock);
  const many = await Promise.all(Array.from({ length: 5 }, () => readiness.check()));
  expect(many).toEqual(Array(5).fill({ name: "store", status: "ok" }));
  expect(questions).toBe(1);

  const { api } = await openServer({ engine, clock, keeper: false });
  questions = 0;
  const ask = async () => (await api.get("/readyz")).status;
  expect([await ask(), await ask()]).toEqual([200, 200]);
  expect(questions).toBe(1);
  await clock.advance(1_000);
  await store.close();
  expect([await ask(), await ask()]).toEqual([503, 503]);
  expect(questions).toBe(2);
});

it("refuses paths and methods that it does not have, in its envelope", async () => {
  const { api } = await openServer({ url: "memory:" });
  const nowhere = await api.send("GET", "/v1/nowhere", { headers: { "X-Request-Id": "r-1" } });
  expect([nowhere.status, await nowhere.json()]).toEqual([
    404,
    {
      error: {
        code: "not_found",
        message: expect.stringContaining("/v1/openapi.json"),
        details: { reason: "route_not_found" },
        requestId: "r-1",
      },
    },
  ]);
  const wrong = await api.send("PATCH", "/v1/jobs/retry");
  expect([wrong.status, wrong.headers.get("allow")]).toEqual([
    405,
    expect.stringContaining("POST"),
  ]);
  expect(await wrong.json()).toMatchObject({
    error: { details: { reason: "method_not_allowed" } },
  });
});

it("gives problems where they are asked for", async () => {
  const { api } = await openServer({ url: "memory:" });
  const headers = { Accept: "application/problem+json", "X-Request-Id": "r-2" };
  const { status, headers: given, body } = await api.get("/v1/jobs/none", { headers });
  expect([status, given.get("content-type")]).toEqual([404, "application/problem+json"]);
  expect(body).toEqual({
    ...{ type: "about:blank", title: "not_found", status: 404, code: "not_found" },
    ...{ reason: "job_not_found", detail: expect.stringContaining("none"), requestId: "r-2" },
  });
  const invalid = await api.get("/v1/jobs?limit=0", { headers });
  expect(invalid.body).toMatchObject({ status: 400, reason: "query_invalid", field: "limit" });
});

it("answers HEAD as GET without a body", async () => {
  const { api } = await openServer({ url: "memory:" });
  const response = await api.send("HEAD", "/v1/jobs");
  expect([response.status, await response.text()]).toEqual([200, ""]);
});

describe("the judge of these tests", () => {
  const answered = { method: "GET", pathname: "/healthz", status: 200, text: '{"status":"ok"}' };
  const contentType = "application/json";

  it.each([
    ["a status", { status: 418 }],
    ["a media type", { contentType: "text/html" }],
    ["a value", { text: '{"status":"fine"}' }],
    ["a member", { text: '{"status":"ok","more":1}' }],
    ["a path", { pathname: "/healthy" }],
  ])("notices %s that is not documented", (_, wrong) => {
    expect(undocumented({ ...answered, contentType })).toBeNull();
    expect(undocumented({ ...answered, contentType, ...wrong })).not.toBeNull();
  });
});
