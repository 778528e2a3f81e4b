// A claim belongs to the bearer token that made it, on every store: under another one its lease is as good as lost.
import { openEngine } from "millrace";
import { FakeClock } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Engine } from "#millrace/engine/engine.js";
import type { Capability } from "#millrace/server/http/caller.js";
import { Tokens } from "#millrace/server/http/tokens.js";
import { type Answer, type Api, apiStores, around, freshPlace, openServer } from "../api.js";

async function tokenFor(engine: Engine, ...capabilities: Capability[]): Promise<string> {
  const tokens = new Tokens(engine, new FakeClock());
  return (await tokens.create({ name: "team", capabilities, createdBy: "test" })).secret;
}

/** What a caller gets for everything that a worker may say of a job. */
async function sayAll(api: Api, id: string, token: string): Promise<readonly Answer[]> {
  const path = `/v1/work/jobs/${id}`;
  return [
    await api.post("/v1/work/renewals", { leases: [{ jobId: id, token: 1 }] }, { token }),
    await api.post(`${path}/progress`, { token: 1, progress: { step: "mine" } }, { token }),
    await api.post(`${path}/logs`, { token: 1, entries: [{ message: "mine" }] }, { token }),
    await api.post(`${path}/settle`, { token: 1, outcome: "completed" }, { token }),
  ];
}

describe.each(apiStores)("on $name", (store) => {
  async function scene() {
    const { api, engine } = await openServer({ url: await freshPlace(store), auth: "token" });
    const admin = await tokenFor(engine, "admin.read", "admin.mutate");
    const [own, other] = [await tokenFor(engine, "work:shop"), await tokenFor(engine, "work:shop")];
    const wish = { service: "shop", type: "mail", payload: {} };
    const { id } = (await api.post("/v1/jobs", wish, { token: admin })).body;
    const ask = { service: "shop", worker: "w-1", types: [{ type: "mail" }], waitMs: 20_000 };
    const claimed = await api.post("/v1/work/claims", ask, { token: own });
    expect(claimed.body.jobs).toMatchObject([{ job: { id }, token: 1 }]);
    const namesOf = async () => {
      const { body } = await api.get(`/v1/jobs/${id}/events`, { token: admin });
      return body.entries.map(({ name }: { name: string }) => name);
    };
    return { api, admin, own, other, id, namesOf };
  }

  function expectLost([renewed, progress, lines, settled]: readonly Answer[], id: string) {
    expect(renewed?.body.entries).toEqual([{ jobId: id, outcome: "lost" }]);
    expect([progress?.body, lines?.body]).toEqual([{ stored: false }, { stored: false }]);
    expect([settled?.status, settled?.body.error.details.reason]).toEqual([409, "stale_token"]);
  }

  it("another token can neither keep a job nor say anything of it", async () => {
    const { api, admin, own, other, id, namesOf } = await scene();
    const before = await namesOf();
    expectLost(await sayAll(api, id, other), id);
    expect(await namesOf()).toEqual(before);
    const job = await api.get(`/v1/jobs/${id}`, { token: admin });
    const tokenId = own.split("_")[1];
    expect(job.body).toMatchObject({ state: "active", worker: `w-1@${tokenId}` });
    const { body } = await api.get("/v1/workers", { token: admin });
    expect(body.entries).toMatchObject([{ instance: `w-1@${tokenId}` }]);
    const [renewed, progress, lines, settled] = await sayAll(api, id, own);
    expect(renewed?.body.entries).toMatchObject([{ outcome: "held" }]);
    expect([progress?.body, lines?.body]).toEqual([{ stored: true }, { stored: true }]);
    expect(settled?.body).toMatchObject({ state: "completed", completedBy: `w-1@${tokenId}` });
  });

  it("another token cannot let go of what a worker holds after its job was ended", async () => {
    const { api, admin, own, other, id, namesOf } = await scene();
    await api.post(`/v1/jobs/${id}/complete`, {}, { token: admin });
    expectLost(await sayAll(api, id, other), id);
    expect(await namesOf()).not.toContain("staleCompletionIgnored");
    const [renewed, , , settled] = await sayAll(api, id, own);
    expect(renewed?.body.entries).toMatchObject([{ outcome: "ended", state: "completed" }]);
    expect(settled?.status).toBe(409);
    expect(await namesOf()).toContain("staleCompletionIgnored");
  });
});

it("reads each history once, a few at a time, and none for tokens that no job ever had", async () => {
  const store = await openEngine("memory:");
  onTestFinished(() => store.close());
  const histories: (readonly string[])[] = [];
  const engine = around(store, "load", (go, [ids, options]) => {
    if ((options as { readonly history?: boolean } | undefined)?.history === true)
      histories.push(ids as readonly string[]);
    return go();
  });
  const { api } = await openServer({ engine, auth: "token", keeper: false });
  const admin = await tokenFor(engine, "admin.read", "admin.mutate");
  const [own, other] = [await tokenFor(engine, "work:shop"), await tokenFor(engine, "work:shop")];
  const ids = Array.from({ length: 10 }, (_, index) => `job-${index}`);
  const jobs = ids.map((id) => ({ service: "shop", type: "mail", id, payload: {} }));
  await api.post("/v1/jobs/batch", { jobs }, { token: admin });
  const ask = { service: "shop", worker: "w-1", types: [{ type: "mail", limit: 10 }], limit: 10 };
  expect((await api.post("/v1/work/claims", ask, { token: own })).body.jobs).toHaveLength(10);
  const renew = async (token: string, leases: readonly object[]) => {
    histories.length = 0;
    const { body } = await api.post("/v1/work/renewals", { leases }, { token });
    return body.entries.map(({ outcome }: { readonly outcome: string }) => outcome);
  };

  const neverGiven = ids.flatMap((jobId) => [999, 2].map((token) => ({ jobId, token })));
  expect(new Set(await renew(own, neverGiven))).toEqual(new Set(["lost"]));
  expect(histories).toEqual([]);

  for (const id of ids) await api.post(`/v1/jobs/${id}/complete`, {}, { token: admin });
  const leases = [...ids, ...ids].map((jobId) => ({ jobId, token: 1 }));
  expect(new Set(await renew(other, leases))).toEqual(new Set(["lost"]));
  expect(new Set(await renew(own, leases))).toEqual(new Set(["ended"]));
  expect(histories.flat()).toEqual(ids);
  expect(Math.max(...histories.map(({ length }) => length))).toBeLessThanOrEqual(4);
});
