// Tokens: what is kept of them, when they count, and that every route asks for its own capability.
import { readFile } from "node:fs/promises";
import { FakeClock } from "millrace/testing";
import { describe, expect, it } from "vitest";
import type { Engine } from "#millrace/engine/engine.js";
import { recordId } from "#millrace/engine/record.js";
import type { Capability } from "#millrace/server/http/caller.js";
import type { Route } from "#millrace/server/http/route.js";
import { routes } from "#millrace/server/http/routes/all.js";
import { Tokens } from "#millrace/server/http/tokens.js";
import { type Api, apiStores, freshPlace, openServer, sqlite } from "../api.js";
import { eventsOf } from "../reading.js";

const everything: readonly Capability[] = ["admin.read", "admin.mutate", "admin.stream", "work:*"];

/** A token that is made beside the server, as the command line makes the first one. */
async function tokenFor(
  engine: Engine,
  capabilities: readonly Capability[] = everything,
  more: { readonly expiresAt?: number; readonly agent?: string } = {},
): Promise<string> {
  const tokens = new Tokens(engine, new FakeClock());
  const wish = { name: "anna", capabilities, createdBy: "test", ...more };
  return (await tokens.create(wish)).secret;
}

async function scene(url = "memory:") {
  const clock = new FakeClock();
  const server = await openServer({ url, auth: "token", clock, rateLimit: 100_000 });
  return { ...server, clock, token: await tokenFor(server.engine) };
}

describe.each(apiStores)("on $name", (store) => {
  it("makes, lists and revokes tokens, and names them in events", async () => {
    const { api, engine } = await openServer({ url: await freshPlace(store), auth: "token" });
    const token = await tokenFor(engine);
    const wish = { name: "deploy", capabilities: ["admin.read", "admin.mutate"] };
    const made = await api.post("/v1/tokens", wish, { token });
    expect(made.status).toBe(201);
    const { secret, id, ...shown } = made.body;
    expect(secret).toMatch(/^mr_[0-9a-f]{16}_[A-Za-z0-9_-]{43}$/);
    expect(shown).toMatchObject({ ...wish, createdBy: "admin:anna" });
    const { body: list } = await api.get("/v1/tokens", { token });
    expect(list.entries).toContainEqual({ id, ...shown });
    expect(JSON.stringify(list)).not.toContain(secret.slice(20));
    const asked = { service: "shop", type: "mail", payload: {} };
    const created = await api.post("/v1/jobs", asked, { token: secret });
    const { body } = await api.get(`/v1/jobs/${created.body.id}/events`, { token: secret });
    expect(body.entries[0].actor).toBe("admin:deploy");
    expect((await api.get("/v1/info", { token: secret })).body.actor).toBe("admin:deploy");
    expect((await api.delete(`/v1/tokens/${id}`, { token })).status).toBe(204);
    expect((await api.delete(`/v1/tokens/${id}`, { token })).status).toBe(404);
    expect((await api.get("/v1/jobs", { token: secret })).status).toBe(401);
  });
});

describe.each(apiStores)("the list on $name", (store) => {
  it("goes on until every token was shown", async () => {
    const url = await freshPlace(store);
    const { api, engine } = await openServer({ url, keeper: false });
    const tokens = new Tokens(engine, new FakeClock());
    const names = Array.from({ length: 7 }, (_, index) => `t-${index}`);
    // One expires only when all calendars of four digits have ended.
    const expiresAt = Date.parse("9999-12-31T23:59:59Z");
    for (const name of names)
      await tokens.create({ name, capabilities: ["admin.read"], createdBy: "test", expiresAt });
    const seen: string[] = [];
    const sizes: number[] = [];
    for (let next: string | undefined = "/v1/tokens?limit=3"; next !== undefined; ) {
      const { body, headers } = await api.get(next);
      seen.push(...body.entries.map(({ name }: { readonly name: string }) => name));
      sizes.push(body.entries.length);
      const [, linked] = /^<(.+)>; rel="next"$/.exec(headers.get("link") ?? "") ?? [];
      expect(linked?.endsWith(`cursor=${body.nextCursor}`)).toBe(linked && true);
      next = linked;
    }
    expect([sizes, seen.sort()]).toEqual([[3, 3, 1], names]);
    expect((await api.get("/v1/tokens?limit=7")).body.nextCursor).toBeUndefined();
    expect((await api.get("/v1/tokens?cursor=x")).status).toBe(400);
  });
});

describe("a token", () => {
  it("that has expired is listed for seven more days, and then forgotten", async () => {
    const { api, clock, engine, token } = await scene();
    const wish = { name: "short", capabilities: ["admin.read"], expiresInMs: 60_000 };
    const { body } = await api.post("/v1/tokens", wish, { token });
    const isListed = async () =>
      JSON.stringify((await api.get("/v1/tokens", { token })).body).includes(body.id);
    const weekMs = 7 * 24 * 60 * 60 * 1_000;
    await clock.leap(60_000 + weekMs - 1);
    expect(await isListed()).toBe(true);
    await clock.leap(1);
    expect(await isListed()).toBe(false);
    expect(await engine.records([recordId.token(body.id)])).toEqual([null]);
  });

  it("is stored as a hash only", async () => {
    const url = await freshPlace(sqlite);
    const { token, stop } = await scene(url);
    const key = token.slice(20);
    await stop();
    const file = url.slice("file:".length);
    for (const part of [file, `${file}-wal`]) {
      const stored = await readFile(part, "latin1").catch(() => "");
      expect(stored.includes(key)).toBe(false);
    }
  });

  it("stops counting when it expires", async () => {
    const { api, clock, token } = await scene();
    const wish = { name: "short", capabilities: ["admin.read"], expiresInMs: 60_000 };
    const { body } = await api.post("/v1/tokens", wish, { token });
    expect(body.expiresAt).toBe(new Date(clock.now() + 60_000).toISOString());
    await clock.leap(59_999);
    expect((await api.get("/v1/jobs", { token: body.secret })).status).toBe(200);
    await clock.leap(1);
    expect((await api.get("/v1/jobs", { token: body.secret })).status).toBe(401);
    const both = { ...wish, expiresAt: "2040-01-01T00:00:00Z" };
    const refused = await api.post("/v1/tokens", both, { token });
    expect([refused.status, refused.body.error.details.reason]).toEqual([400, "expiry_both_set"]);
  });

  it("that another server revoked stops counting within two seconds", async () => {
    const url = await freshPlace(sqlite);
    const { api, clock, token } = await scene(url);
    const other = await openServer({ url, auth: "token", clock, keeper: false });
    const wish = { name: "leaked", capabilities: ["admin.read"] };
    const { body } = await api.post("/v1/tokens", wish, { token });
    expect((await other.api.get("/v1/jobs", { token: body.secret })).status).toBe(200);
    await api.delete(`/v1/tokens/${body.id}`, { token });
    await clock.leap(2_000);
    expect((await other.api.get("/v1/jobs", { token: body.secret })).status).toBe(401);
  });

  it("that is missing, wrong or mangled is refused alike, and too many of those are", async () => {
    const { api, token } = await scene();
    const wrong = `${token.slice(0, -1)}${token.endsWith("A") ? "B" : "A"}`;
    const texts = [wrong, `mr_${"0".repeat(16)}_${token.slice(20)}`, "x", `${token}x`];
    for (const text of texts) {
      const { status, headers, body } = await api.get("/v1/jobs", { token: text });
      expect([status, body.error.details.reason]).toEqual([401, "token_invalid"]);
      expect(headers.get("www-authenticate")).toBe('Bearer realm="millrace"');
    }
    const none = await api.get("/v1/jobs");
    expect([none.status, none.body.error.details.reason]).toEqual([401, "token_missing"]);
    const basic = await api.get("/v1/jobs", { headers: { Authorization: "Basic YTpi" } });
    expect(basic.body.error.details.reason).toBe("authorization_invalid");
    const flood = await Promise.all(
      Array.from({ length: 70 }, () => api.get("/v1/jobs", { token: wrong })),
    );
    expect(flood.filter(({ status }) => status === 429).length).toBeGreaterThan(0);
    expect((await api.get("/v1/jobs", { token })).status).toBe(200);
  });

  it("gives only what its maker may do itself", async () => {
    const { api, engine } = await scene();
    const token = await tokenFor(engine, ["admin.mutate", "work:shop"]);
    const give = async (...capabilities: string[]) =>
      (await api.post("/v1/tokens", { name: "next", capabilities }, { token })).status;
    expect(await give("work:shop", "admin.mutate")).toBe(201);
    for (const capability of ["admin.read", "work:*", "work:other"])
      expect(await give(capability)).toBe(403);
    expect(await give("root")).toBe(400);
    expect(await give("work:")).toBe(400);
  });

  it("that is bound to an agent claims for no other", async () => {
    const { api, engine, token: all } = await scene();
    const token = await tokenFor(engine, ["work:*"], { agent: "web.1" });
    const ask = { service: "shop", worker: "w-1", types: [{ type: "mail" }] };
    const other = await api.post("/v1/work/claims", { ...ask, agent: "web.2" }, { token });
    expect([other.status, other.body.error.details.reason]).toEqual([403, "agent_mismatch"]);
    expect((await api.post("/v1/work/claims", ask, { token })).status).toBe(200);
    const { body } = await api.get("/v1/workers", { token: all });
    expect(body.entries).toMatchObject([{ agent: "web.1" }]);
  });

  it("gives on no more than it has: its agent, its time, and its name", async () => {
    const { api, engine } = await scene();
    const agent = "node-7";
    const until = new Date(engine.now() + 60_000).toISOString();
    const bound = await tokenFor(engine, ["admin.mutate"], {
      agent,
      expiresAt: engine.now() + 60_000,
    });
    const make = (more: object) =>
      api.post(
        "/v1/tokens",
        { name: "next", capabilities: ["admin.mutate"], ...more },
        { token: bound },
      );
    const { status, body } = await make({});
    expect([status, body.agent]).toEqual([201, agent]);
    expect(Date.parse(body.expiresAt)).toBeLessThanOrEqual(Date.parse(until) + 1_000);
    expect((await make({ agent: "node-8" })).status).toBe(403);
    expect((await make({ name: "local" })).body.error.details.reason).toBe("name_reserved");
  });

  it("works for its own services only, also by the id of a job", async () => {
    const { api, engine, token } = await scene();
    const created = await api.post("/v1/jobs", { service: "b", type: "t", payload: {} }, { token });
    const { id } = created.body;
    const own = await tokenFor(engine, ["work:a"]);
    const ask = { service: "b", worker: "w-1", types: [{ type: "t" }] };
    const path = `/v1/work/jobs/${id}`;
    const renewal = { leases: [{ jobId: id, token: 1 }] };
    const renewed = await api.post("/v1/work/renewals", renewal, { token: own });
    expect(renewed.body.entries).toEqual([{ jobId: id, outcome: "lost" }]);
    const answers = await Promise.all([
      api.post("/v1/work/claims", ask, { token: own }),
      api.post(`${path}/progress`, { token: 1, progress: {} }, { token: own }),
      api.post(`${path}/logs`, { token: 1, entries: [{ message: "x" }] }, { token: own }),
      api.post(`${path}/settle`, { token: 1, outcome: "released" }, { token: own }),
    ]);
    for (const { status, body } of answers)
      expect([status, body.error.details.capability]).toEqual([403, "work:b"]);
  });
});

describe("every route", () => {
  const bodies: { readonly [operation: string]: object } = {
    createJob: { service: "shop", type: "mail", payload: {} },
    createJobs: { jobs: [{ service: "shop", type: "mail", payload: {} }] },
    startChain: { service: "shop", type: "mail", payload: {} },
    retryJobs: { ids: ["none"] },
    createQueue: { service: "shop", queue: "slow" },
    createToken: { name: "next", capabilities: ["admin.mutate"] },
    claimJobs: { service: "shop", worker: "w-1", types: [{ type: "mail" }] },
    renewLeases: { leases: [{ jobId: "none", token: 1 }] },
    reportProgress: { token: 1, progress: {} },
    logLines: { token: 1, entries: [{ message: "x" }] },
    settleJob: { token: 1, outcome: "released" },
  };

  async function statusOf(api: Api, route: Route, token?: string) {
    const path = route.path.replace("{hash}", "0123456789abcdef").replaceAll(/\{\w+\}/g, "none");
    const body = route.body && (bodies[route.operation] ?? {});
    const ask = { ...(body && { body }), ...(token === undefined ? null : { token }) };
    const timeout = route.operation === "waitForJob" ? "?timeoutMs=0" : "";
    return (await api.call(route.method.toUpperCase(), `${path}${timeout}`, ask)).status;
  }

  // A server has patience for so many requests without a token.
  const groups = [...new Set(routes.map(({ group }) => group))];

  it.each(groups)("of %s asks for its own capability, and for no other", async (group) => {
    const { api, engine } = await scene();
    const tokens = await Promise.all(everything.map((one) => tokenFor(engine, [one])));
    for (const route of routes.filter((one) => one.group === group)) {
      const open = route.needs === "nothing";
      const seen = [await statusOf(api, route)];
      for (const token of tokens) seen.push(await statusOf(api, route, token));
      const statuses = seen.map((status) => (status === 401 || status === 403 ? status : "may"));
      expect([route.operation, ...statuses]).toEqual([
        ...[route.operation, open ? "may" : 401],
        ...everything.map((capability) => (open || isMet(route, capability) ? "may" : 403)),
      ]);
    }
  });

  /** A job or lease that is not there is of no service, so that only a claim can be refused here. */
  function isMet({ needs, operation }: Route, capability: Capability): boolean {
    if (needs !== "work") return needs === capability;
    return capability === "work:*" || operation !== "claimJobs";
  }

  it("needs admin.stream for streams, besides admin.read", async () => {
    const { api, engine, token } = await scene();
    const created = await api.post("/v1/jobs", { ...bodies.createJob }, { token });
    const paths = ["/v1/events", `/v1/jobs/${created.body.id}/events`, "/v1/jobs?stream=ndjson"];
    const reader = await tokenFor(engine, ["admin.read"]);
    const streamer = await tokenFor(engine, ["admin.read", "admin.stream"]);
    const headers = { Accept: "text/event-stream" };
    for (const path of paths) {
      const { status } = await api.call("GET", path, { headers, token: reader });
      expect([path, status]).toEqual([path, 403]);
      const reading = await eventsOf(api, path, undefined, { token: streamer });
      reading.leave();
    }
  });
});
