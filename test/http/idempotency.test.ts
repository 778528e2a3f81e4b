// The Idempotency-Key of a create, on every store: one job for one request, however often and to whichever server it
// is sent, and wherever a server dies in between.
import { FakeClock } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Engine } from "#millrace/engine/engine.js";
import { StoreUnavailable } from "#millrace/engine/errors.js";
import { openEngine } from "#millrace/engine/open.js";
import { apiStores, freshPlace, freshService, openServer, sharedServers, sqlite } from "./api.js";

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  it("gives the same job and Location for the same request, at every server", async () => {
    const { api, other } = servers;
    const headers = { "Idempotency-Key": freshService() };
    const asked = { service: freshService(), type: "mail", payload: { n: 1 } };
    const first = await api.post("/v1/jobs", asked, { headers });
    expect([first.status, first.body.outcome]).toEqual([201, "accepted"]);
    for (const server of [api, other]) {
      const again = await server.post("/v1/jobs", asked, { headers });
      expect([again.status, again.body]).toEqual([200, { ...first.body, outcome: "existing" }]);
      expect(again.headers.get("location")).toBe(first.headers.get("location"));
    }
    const changed = await other.post("/v1/jobs", { ...asked, payload: { n: 2 } }, { headers });
    expect([changed.status, changed.body.error.details]).toEqual([
      ...[422, { reason: "idempotency_key_reused", field: "Idempotency-Key" }],
    ]);
    const fresh = await api.post("/v1/jobs", asked, { headers: { "Idempotency-Key": "another" } });
    expect(fresh.body.id).not.toBe(first.body.id);
  });

  it("creates one job of many requests at once; those that come too early are told to wait", async () => {
    const { api, other } = servers;
    const service = freshService();
    const headers = { "Idempotency-Key": service };
    const asked = { service, type: "mail", payload: {} };
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        (index % 2 === 0 ? api : other).post("/v1/jobs", asked, { headers }),
      ),
    );
    const ids = answers.filter(({ status }) => status < 300).map(({ body }) => body.id);
    expect(new Set(ids).size).toBe(1);
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    for (const { body, headers: given } of answers.filter(({ status }) => status >= 300)) {
      expect(body.error.details.reason).toBe("idempotency_key_in_flight");
      expect(given.get("retry-after")).toBe("1");
    }
    expect((await api.get(`/v1/jobs?service=${service}`)).body.count).toBe(1);
  });

  it("lets a request that was refused be mended under the same key", async () => {
    const { api } = servers;
    const headers = { "Idempotency-Key": freshService() };
    const asked = { service: freshService(), type: "mail", payload: {} };
    const refused = await api.post("/v1/jobs", { ...asked, tags: [""] }, { headers });
    expect(refused.status).toBe(400);
    expect((await api.post("/v1/jobs", asked, { headers })).status).toBe(201);
  });

  it("refuses a key that is too long", async () => {
    const asked = { service: freshService(), type: "mail", payload: {} };
    const headers = { "Idempotency-Key": "k".repeat(256) };
    const { status, body } = await servers.api.post("/v1/jobs", asked, { headers });
    expect([status, body.error.details.reason]).toEqual([400, "idempotency_key_invalid"]);
  });
});

/** An engine whose appends and swaps go through `around`, which may lose or fail them. */
function interfered(
  engine: Engine,
  around: (name: "append" | "swap", go: () => Promise<unknown>, what: string) => Promise<unknown>,
): Engine {
  return new Proxy(engine, {
    get(target, member) {
      const found = Reflect.get(target, member, target) as unknown;
      if (typeof found !== "function") return found;
      if (member !== "append" && member !== "swap") return found.bind(target);
      return (...parameters: unknown[]) =>
        around(member, () => found.apply(target, parameters), JSON.stringify(parameters[0]));
    },
  });
}

const lost = () => new StoreUnavailable({ url: "file:", message: "The answer was lost." });

/** Two servers on one file, the first of them on a store that fails as it is told to. */
async function scene(around: Parameters<typeof interfered>[1]) {
  const url = await freshPlace(sqlite);
  const clock = new FakeClock();
  const engine = await openEngine(url, { clock });
  onTestFinished(() => engine.close());
  const failing = await openServer({ engine: interfered(engine, around), clock, keeper: false });
  const sound = await openServer({ engine, clock, keeper: false });
  return { failing: failing.api, sound: sound.api, clock };
}

const asked = { service: "shop", type: "mail", payload: {} };
const headers = { "Idempotency-Key": "order-1" };

describe("a server that fails in between", () => {
  it("has taken the key but created nothing: another creates that very job once it may", async () => {
    const dead: Promise<never> = new Promise(() => {});
    const { failing, sound, clock } = await scene((name, go) => (name === "append" ? dead : go()));
    const gone = new AbortController();
    const first = failing.post("/v1/jobs", asked, { headers, signal: gone.signal });
    first.catch(() => {});
    const early = await untilTaken(sound);
    expect(early).toBe("idempotency_key_in_flight");
    gone.abort();
    await clock.advance(30_001);
    const second = await sound.post("/v1/jobs", asked, { headers });
    expect(second.status).toBe(201);
    const third = await sound.post("/v1/jobs", asked, { headers });
    expect([third.status, third.body.id]).toEqual([200, second.body.id]);
    expect((await sound.get("/v1/jobs")).body.count).toBe(1);
  });

  it("has created the job and lost the answer: the job is found, not created again", async () => {
    const { failing, sound, clock } = await scene(async (name, go) => {
      const answer = await go();
      if (name === "append") throw lost();
      return answer;
    });
    const first = await failing.post("/v1/jobs", asked, { headers });
    expect([first.status, first.headers.get("retry-after")]).toEqual([503, "1"]);
    await clock.advance(30_001);
    const second = await sound.post("/v1/jobs", asked, { headers });
    expect([second.status, second.body.outcome]).toEqual([200, "existing"]);
    expect((await sound.get("/v1/jobs")).body.count).toBe(1);
  });

  it("has created the job and cannot note it: the answer stands, and so does the job", async () => {
    let swaps = 0;
    const { failing, sound, clock } = await scene(async (name, go, what) => {
      if (name === "swap" && what.includes("request/") && ++swaps > 1) throw lost();
      return go();
    });
    const first = await failing.post("/v1/jobs", asked, { headers });
    expect(first.status).toBe(201);
    await clock.advance(30_001);
    const second = await sound.post("/v1/jobs", asked, { headers });
    expect([second.status, second.body.id]).toEqual([200, first.body.id]);
  });

  it("remembers a key for ten minutes", async () => {
    const { sound, clock } = await scene((_, go) => go());
    const first = await sound.post("/v1/jobs", asked, { headers });
    await clock.advance(10 * 60_000 - 1);
    expect((await sound.post("/v1/jobs", asked, { headers })).body.id).toBe(first.body.id);
    await clock.advance(1);
    expect((await sound.post("/v1/jobs", asked, { headers })).body.id).not.toBe(first.body.id);
  });
});

/** Asks until the key has been taken, and gives the reason of the refusal. */
async function untilTaken(api: { post: Awaited<ReturnType<typeof scene>>["sound"]["post"] }) {
  for (;;) {
    // Another payload is refused as soon as the key is taken, and creates nothing before.
    const probe = await api.post("/v1/jobs", { ...asked, tags: [""] }, { headers });
    if (probe.status === 422) break;
  }
  const { body } = await api.post("/v1/jobs", asked, { headers });
  return body.error.details.reason;
}
