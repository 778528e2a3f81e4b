// The worker protocol, on every store: claiming, keeping, reporting and settling jobs from any language, at any server.
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { type ClientRequest, request } from "node:http";
import type { Socket } from "node:net";
import { defineJob, defineService, openEngine } from "millrace";
import { FakeClock } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import {
  type Api,
  apiStores,
  around,
  type Claimed,
  freshPlace,
  freshService,
  openServer,
  sharedServers,
  sqlite,
} from "./api.js";
import { eventsOf } from "./reading.js";

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  it("hands a job to one worker, which settles it at another server", async () => {
    const { api, other } = servers;
    const service = freshService();
    const id = await api.create(service, "mail", { payload: { to: "a" } });
    const { job, token, leaseUntil } = await api.claimOne(service, "mail");
    expect(job).toMatchObject({ id, state: "active", payload: { to: "a" }, worker: "w-1" });
    expect(token).toBe(1);
    expect(Date.parse(leaseUntil)).toBeGreaterThan(Date.parse(job.startedAt));
    expect(await other.claim(service, "mail")).toEqual([]);
    const settled = await other.settle(id, token, { outcome: "completed", result: [1] });
    expect(settled.body).toMatchObject({ id, state: "completed", result: [1] });
    const again = await api.settle(id, token, { outcome: "completed", result: [2] });
    expect([again.status, again.body.error.details]).toMatchObject([
      ...[409, { reason: "stale_token", field: "token", state: "completed" }],
    ]);
    expect((await api.get(`/v1/jobs/${id}`)).body.result).toEqual([1]);
  });

  it("waits for a job that is created at another server", async () => {
    const { api, other } = servers;
    const service = freshService();
    const claiming = api.claimOne(service, "mail", { waitMs: 30_000 });
    const id = await other.create(service, "mail");
    expect((await claiming).job.id).toBe(id);
  });

  it("claims several types and queues, up to the limits", async () => {
    const { api } = servers;
    const service = freshService();
    for (let index = 0; index < 3; index++) await api.create(service, "mail");
    await api.create(service, "ship", { queue: "slow" });
    await api.create(service, "ship", { version: 2 });
    const types = [
      { type: "mail", limit: 2 },
      { type: "ship", queue: "slow" },
    ];
    const claimed = await api.claim(service, "", { types, limit: 10 });
    const got = claimed.map(({ job }) => `${job.type} ${job.queue}`).sort();
    expect(got).toEqual(["mail mail", "mail mail", "ship slow"]);
    const second = await api.claim(service, "", { types: [{ type: "ship", version: 2 }] });
    expect(second.map(({ job }) => job.typeVersion)).toEqual([2]);
  });

  it("refuses a claim that names a lane twice, as the contract has it", async () => {
    const { api } = servers;
    const service = freshService();
    const claim = (...types: readonly object[]) =>
      api.post("/v1/work/claims", { service, worker: "w-1", types, limit: 10 });
    const mail = { type: "mail" };
    const twice = [
      await claim(mail, mail),
      await claim({ ...mail, queue: "slow" }, { ...mail, queue: "slow", limit: 5 }),
      await claim(mail, { type: "ship" }, { ...mail, queue: "mail", version: 1 }),
    ];
    for (const { status, body } of twice) {
      const { code, field, details } = body.error;
      expect([status, code, field ?? details.field, details.reason]).toEqual([
        ...[400, "invalid_argument", "types", "type_repeated"],
      ]);
    }
    const apart = await claim(mail, { ...mail, version: 2 }, { ...mail, queue: "slow" });
    expect(apart.status).toBe(200);
  });

  it("renews leases, and tells of cancels, ends and losses", async () => {
    const { api, other } = servers;
    const service = freshService();
    const ids = [];
    for (let index = 0; index < 3; index++) ids.push(await api.create(service, "mail"));
    const claimed = await api.claim(service, "mail", { leaseMs: 10_000, waitMs: 10_000 });
    for (; claimed.length < 3; ) Object.assign(claimed, await api.claim(service, "mail"));
    const tokens = new Map(claimed.map(({ job, token }) => [job.id, token]));
    const [kept = "", cancelled = "", ended = ""] = ids;
    await other.post(`/v1/jobs/${cancelled}/cancel`);
    await other.post(`/v1/jobs/${ended}/complete`, { result: 1 });
    const leases = [
      ...ids.map((jobId) => ({ jobId, token: tokens.get(jobId) ?? 1, leaseMs: 60_000 })),
      { jobId: kept, token: 9 },
      { jobId: "nobody", token: 1 },
    ];
    const { body } = await other.post("/v1/work/renewals", { leases });
    expect(body.entries).toMatchObject([
      { jobId: kept, outcome: "held", cancelRequested: false },
      { jobId: cancelled, outcome: "held", cancelRequested: true },
      { jobId: ended, outcome: "ended", state: "completed" },
      { jobId: kept, outcome: "lost", state: "active" },
      { jobId: "nobody", outcome: "lost" },
    ]);
    const until = Date.parse(body.entries[0].leaseUntil);
    const before = claimed.find(({ job }) => job.id === kept);
    expect(until).toBeGreaterThan(Date.parse(before?.leaseUntil ?? "") + 30_000);
    const confirmed = await api.settle(cancelled, 1, { outcome: "cancelled", reason: "asked" });
    expect(confirmed.body).toMatchObject({ state: "cancelled", reason: "asked" });
  });

  it("lets a worker continue the job that it holds, which frees its key once it has let go", async () => {
    const { api, other } = servers;
    const service = freshService();
    const keyed = {
      keyConcurrency: { key: ["orders"], maxActive: 1 },
      queue: { maxQueuedPerKey: 1 },
    };
    const payload = z.object({});
    const contract = defineService(service, {
      order: defineJob({ payload, continuations: ["ship"], ...keyed }),
      ship: defineJob({ payload }),
    });
    await api.accept(contract);
    const id = await api.create(service, "order");
    const next = await api.create(service, "order");
    const { job, token } = await api.claimOne(service, "order");
    expect(job.id).toBe(id);
    const refused = await api.settle(id, token, { outcome: "completed" });
    expect([refused.status, refused.body.error.details.reason]).toEqual([422, "result_invalid"]);
    expect(refused.body.error.message).toContain(
      `continue with "ship", by POST /v1/jobs/${id}/complete with continueWith.`,
    );
    const leases = [{ jobId: id, token }];
    const renew = async () => (await api.post("/v1/work/renewals", { leases })).body.entries;
    expect(await renew()).toMatchObject([{ jobId: id, outcome: "held" }]);
    const continueWith = { type: "ship", payload: {} };
    const completed = await other.post(`/v1/jobs/${id}/complete`, { continueWith });
    expect(completed.body).toMatchObject({ id, state: "completed" });
    expect(await renew()).toMatchObject([{ jobId: id, outcome: "ended", state: "completed" }]);
    expect((await api.claimOne(service, "ship")).job.id).toBe(completed.body.continuedBy);
    expect(await api.claim(service, "order")).toEqual([]);
    const late = await api.settle(id, token, { outcome: "completed" });
    expect([late.status, late.body.error.details.reason]).toEqual([409, "stale_token"]);
    expect((await api.claimOne(service, "order")).job.id).toBe(next);
  });

  it("refuses numbers that no store can hold, and renews what comes beside the largest", async () => {
    const { api } = servers;
    const service = freshService();
    const most = 2 ** 31 - 1;
    const jobId = await api.create(service, "mail");
    const { token } = await api.claimOne(service, "mail");
    const renew = (other: number) =>
      api.post("/v1/work/renewals", {
        leases: [
          { jobId, token },
          { jobId, token: other },
        ],
      });
    const claim = { service, worker: "w-1", types: [{ type: "mail", version: most + 1 }] };
    const job = { service, type: "mail", payload: null, version: most + 1 };
    const work = `/v1/work/jobs/${jobId}`;
    const released = { token: most + 1, outcome: "released" };
    const refused = [
      [await renew(most + 1), "leases.1.token"],
      [await api.post("/v1/work/claims", claim), "types.0.version"],
      [await api.post("/v1/jobs", job), "version"],
      [await api.post("/v1/jobs", { ...job, version: 1, maxTries: most + 1 }), "maxTries"],
      [await api.post("/v1/schedules", { ...job, name: "a", everyMs: 1_000 }), "version"],
      [await api.post(`${work}/settle`, released), "token"],
      [await api.post(`${work}/progress`, { token: most + 1, progress: {} }), "token"],
    ] as const;
    for (const [{ status, body }, field] of refused)
      expect([status, body.error.details.field]).toEqual([400, field]);
    expect((await renew(most)).body.entries).toMatchObject([
      ...[{ outcome: "held" }, { outcome: "lost" }],
    ]);
    expect((await api.post("/v1/jobs", { ...job, version: most })).status).toBe(201);
  });

  it("stores progress and lines, under the token only", async () => {
    const { api } = servers;
    const service = freshService();
    const id = await api.create(service, "mail");
    const { token } = await api.claimOne(service, "mail");
    const path = `/v1/work/jobs/${id}`;
    const progress = { step: "render", current: 1, total: 2 };
    expect((await api.post(`${path}/progress`, { token, progress })).body).toEqual({
      stored: true,
    });
    const entries = [{ message: "half way" }, { level: "warn", message: "slow" }];
    expect((await api.post(`${path}/logs`, { token, entries })).body).toEqual({ stored: true });
    const late = await api.post(`${path}/progress`, { token: token + 1, progress });
    expect(late.body).toEqual({ stored: false });
    expect((await api.get(`/v1/jobs/${id}`)).body.progress).toEqual(progress);
    const { body } = await api.get(`/v1/jobs/${id}/logs`);
    expect(body.entries).toMatchObject([
      { level: "info", message: "half way" },
      { level: "warn", message: "slow" },
    ]);
  });

  it("takes every outcome", async () => {
    const { api } = servers;
    const service = freshService();
    const settle = async (outcome: object) => {
      const id = await api.create(service, "mail");
      const claimed = await api.claimOne(service, "mail");
      expect(claimed.job.id).toBe(id);
      const { status, body } = await api.settle(id, claimed.token, outcome);
      // What may run again would be in the way of the next.
      if (status === 200 && !body.endedAt) await api.delete(`/v1/jobs/${id}?force=true`);
      else if (status !== 200) await api.post(`/v1/jobs/${id}/cancel`, { force: true });
      return status === 200 ? body : body.error.details;
    };
    const error = { message: "no", name: "Timeout", code: "E1" };
    expect(await settle({ outcome: "completed" })).toMatchObject({ state: "completed" });
    expect(await settle({ outcome: "failed", error })).toMatchObject({ state: "retry", error });
    expect(await settle({ outcome: "terminated", error })).toMatchObject({ state: "failed" });
    expect(await settle({ outcome: "skipped", reason: "old" })).toMatchObject({ state: "skipped" });
    const snoozed = await settle({ outcome: "snoozed", delayMs: 60_000 });
    expect(snoozed).toMatchObject({ state: "pending", tries: 0 });
    expect(Date.parse(snoozed.runAt)).toBeGreaterThan(Date.parse(snoozed.updatedAt) + 50_000);
    expect(await settle({ outcome: "released" })).toMatchObject({ state: "pending", tries: 0 });
    const missing = [{ outcome: "failed" }, { outcome: "skipped" }, { outcome: "snoozed" }];
    for (const outcome of missing)
      expect(await settle(outcome)).toMatchObject({ reason: "field_missing" });
    const nothing = { result: null, reason: "ignored" };
    expect(await settle({ outcome: "cancelled", ...nothing })).toMatchObject({ reason: "ignored" });
  });

  it("takes no outcome that says what would be lost", async () => {
    const { api } = servers;
    const service = freshService();
    const id = await api.create(service, "mail");
    const { token } = await api.claimOne(service, "mail");
    const error = { message: "no" };
    const lost = [
      ["result", { outcome: "failed", error, result: { messageId: "m-1" } }],
      ["result", { outcome: "released", result: false }],
      ["error", { outcome: "completed", result: 1, error }],
      ["delayMs", { outcome: "failed", error, delayMs: 5 }],
      ["reason", { outcome: "completed", reason: "done" }],
    ] as const;
    for (const [field, outcome] of lost) {
      const { status, body } = await api.settle(id, token, outcome);
      expect([status, body.error.details]).toEqual([400, { reason: "field_unwanted", field }]);
    }
    expect((await api.settle(id, token, { outcome: "completed", result: 1 })).status).toBe(200);
  });

  it("gives back what it has claimed for a caller that has gone", async () => {
    const { api } = servers;
    const service = freshService();
    await using events = await eventsOf(api, `/v1/events?service=${service}`);
    const body = JSON.stringify({
      service,
      worker: "gone",
      types: [{ type: "mail" }],
      waitMs: 20_000,
    });
    const claiming = request(`${api.url}/v1/work/claims`, { method: "POST" });
    claiming.on("error", () => {});
    claiming.end(body);
    // The claim waits by the time that another of the same worker has been answered.
    await new Promise((resolve) => claiming.once("finish", resolve));
    await api.claim(service, "other");
    claiming.destroy();
    const id = await api.create(service, "mail");
    const { job } = await api.claimOne(service, "mail", { worker: "here" });
    expect([job.id, job.tries, job.worker]).toEqual([id, 1, "here"]);
    expect((await events.next()).event).toBe("created");
  });
});

it("gives jobs back at once whose caller goes while they are claimed, and no try is spent", async () => {
  const store = await openEngine(await freshPlace(sqlite));
  onTestFinished(() => store.close());
  const accepted: Socket[] = [];
  const accept = (message: unknown) => accepted.push((message as { socket: Socket }).socket);
  subscribe("net.server.socket", accept);
  onTestFinished(() => void unsubscribe("net.server.socket", accept));
  const body = { service: "shop", worker: "gone", types: [{ type: "mail", limit: 2 }], limit: 2 };
  let claiming: ClientRequest | undefined;
  // The first claim that gives jobs is answered once the server knows that its caller has gone.
  const engine = around(store, "claim", async (go) => {
    const answer = (await go()) as { readonly jobs: readonly unknown[] };
    const leaving = answer.jobs.length > 0 ? claiming : undefined;
    if (leaving === undefined) return answer;
    claiming = undefined;
    const { localPort } = leaving.socket ?? {};
    const connection = accepted.find(({ remotePort }) => remotePort === localPort);
    leaving.destroy();
    if (connection) await once(connection, "close");
    return answer;
  });
  const { api } = await openServer({ engine, keeper: false });
  await using events = await eventsOf(api, "/v1/events?name=released");
  const jobs = ["a", "b"].map((id) => ({ service: "shop", type: "mail", id, payload: {} }));
  await api.post("/v1/jobs/batch", { jobs });
  claiming = request(`${api.url}/v1/work/claims`, { method: "POST" });
  claiming.on("error", () => {});
  claiming.end(JSON.stringify({ ...body, waitMs: 30_000 }));
  const released = [(await events.next()).data, (await events.next()).data];
  for (const event of released)
    expect(event).toMatchObject({ actor: "worker:http/gone", state: "pending", tries: 0 });
  const again = await api.claim("shop", "mail", { worker: "here" });
  expect(again.map(({ job }) => [job.id, job.tries, job.worker]).sort()).toEqual([
    ["a", 1, "here"],
    ["b", 1, "here"],
  ]);
});

describe("time", () => {
  async function scene() {
    const clock = new FakeClock();
    const { api } = await openServer({ url: await freshPlace(sqlite), clock });
    return { clock, api };
  }

  it("ends a claim that has waited as long as it was asked to", async () => {
    const { clock, api } = await scene();
    const before = clock.now();
    const claiming = api.claim("shop", "mail", { waitMs: 30_000 });
    expect(await whileTimePasses({ clock, api }, claiming)).toEqual([]);
    expect(clock.now() - before).toBeGreaterThanOrEqual(30_000);
  });

  it("takes a job as soon as its time has come", async () => {
    const { clock, api } = await scene();
    const id = await api.create("shop", "mail", { delayMs: 10_000 });
    const claiming = api.claimOne("shop", "mail", { waitMs: 30_000 });
    expect((await whileTimePasses({ clock, api }, claiming)).job.id).toBe(id);
  });

  it("gives a job whose lease has lapsed to another, and ignores what the first one says", async () => {
    const { clock, api } = await scene();
    const id = await api.create("shop", "mail");
    const first = await api.claimOne("shop", "mail", { leaseMs: 5_000 });
    let second: Claimed | undefined;
    for (let seconds = 0; seconds < secondsMax && second === undefined; seconds++) {
      await clock.advance(1_000);
      [second] = await api.claim("shop", "mail", { worker: "w-2" });
    }
    expect([second?.job.id, second?.token]).toEqual([id, 2]);
    const late = await api.settle(id, first.token, { outcome: "completed" });
    expect(late.body.error.details.reason).toBe("stale_token");
    const { body } = await api.get(`/v1/jobs/${id}/events`);
    const names = body.entries.map(({ name }: { name: string }) => name);
    expect(names).toContain("staleCompletionIgnored");
    expect((await api.settle(id, 2, { outcome: "completed" })).body.state).toBe("completed");
  });

  it("fails a try that takes longer than its type allows", async () => {
    const { clock, api } = await scene();
    const id = await api.create("shop", "mail");
    const { token } = await api.claimOne("shop", "mail", { leaseMs: 3_600_000 });
    await clock.leap(3_600_000 - 1_000);
    const lease = { jobId: id, token, leaseMs: 60_000 };
    const held = await api.post("/v1/work/renewals", { leases: [lease] });
    expect(held.body.entries[0].outcome).toBe("held");
    await clock.leap(1_000);
    const lost = await api.post("/v1/work/renewals", { leases: [lease] });
    expect(lost.body.entries).toEqual([{ jobId: id, outcome: "lost" }]);
    const { body } = await api.get(`/v1/jobs/${id}`);
    expect([body.state, body.error.reason]).toEqual(["retry", "timeout"]);
  });
});

/** How many seconds may pass before something has happened. */
const secondsMax = 10_000;

/** Lets a fake clock go on until a promise has settled, no faster than the store answers: claims wait for each other there. */
async function whileTimePasses<Value>(
  { clock, api }: { readonly clock: FakeClock; readonly api: Api },
  promise: Promise<Value>,
): Promise<Value> {
  let isSettled = false;
  const settle = () => {
    isSettled = true;
  };
  promise.then(settle, settle);
  for (let seconds = 0; seconds < secondsMax && !isSettled; seconds++) {
    await clock.advance(1_000);
    await api.claim("shop", "bystander");
  }
  return promise;
}
