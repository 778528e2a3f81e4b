// Operating over HTTP, on every store: dead letters, queues, keys, services and workers.
import { defineJob, defineService } from "millrace";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { type Api, apiStores, freshService, openServer, sharedServers } from "./api.js";
import { eventsOf } from "./reading.js";

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  describe("dead letters", () => {
    it("are listed, replayed and dismissed one by one", async () => {
      const { api } = servers;
      const service = freshService();
      const first = await api.deadJob(service, "mail");
      const second = await api.deadJob(service, "mail");
      const list = `/v1/dead-letters?service=${service}`;
      const { body } = await api.get(list);
      expect(body.entries).toMatchObject([
        { id: second, state: "dead", detail: "no" },
        { id: first, state: "dead", detail: "no" },
      ]);
      const replayed = await api.post(`/v1/dead-letters/${first}/replay`);
      expect(replayed.body).toMatchObject({ id: first, state: "pending", run: 2 });
      const dismissed = await api.post(`/v1/dead-letters/${second}/dismiss`, { reason: "seen" });
      expect(dismissed.body.state).toBe("dismissed");
      expect((await api.get(list)).body.count).toBe(0);
      const alive = await api.post(`/v1/dead-letters/${first}/dismiss`);
      expect([alive.status, alive.body.error.code]).toEqual([409, "conflict"]);
    });

    it("are replayed and dismissed by filter, a bounded number at a time", async () => {
      const { api } = servers;
      const service = freshService();
      for (let index = 0; index < 3; index++) await api.deadJob(service, "mail");
      const other = await api.deadJob(service, "ship", { tags: ["blue"] });
      const bulk = async (what: string, body: object) =>
        (await api.post(`/v1/dead-letters/${what}`, body)).body;
      const filter = { service, type: "mail" };
      expect(await bulk("replay", { filter, preview: true })).toEqual({
        ...{ matched: 3, done: 0, failed: 0, remaining: 3, preview: true },
      });
      const some = await bulk("replay", { filter, limit: 2 });
      expect(some).toEqual({ matched: 3, done: 2, failed: 0, remaining: 1, preview: false });
      const rest = await bulk("dismiss", { filter, reason: "enough" });
      expect(rest).toEqual({ matched: 1, done: 1, failed: 0, remaining: 0, preview: false });
      const left = await api.get(`/v1/dead-letters?service=${service}&tag=blue`);
      expect(left.body.entries).toMatchObject([{ id: other }]);
      const wrong = await api.post("/v1/dead-letters/replay", { filter: { state: "dead" } });
      expect(wrong.status).toBe(400);
    });
  });

  describe("queues", () => {
    it("are made by one of several at once, whose settings count", async () => {
      const { api, other } = servers;
      const service = freshService();
      for (let round = 0; round < 2; round++) {
        const answers = await Promise.all(
          Array.from({ length: 8 }, (_, index) => {
            const asked = { service, queue: "slow", maxActive: index + 1 };
            return (index % 2 === 0 ? api : other).post("/v1/queues", asked);
          }),
        );
        expect(answers.map(({ status }) => status).sort()).toEqual([201, ...Array(7).fill(409)]);
        const winner = answers.findIndex(({ status }) => status === 201);
        const path = `/v1/queues/${service}/slow`;
        expect((await api.get(path)).body.maxActive).toBe(winner + 1);
        for (const { body } of answers.filter(({ status }) => status === 409))
          expect(body.error.details).toEqual({ reason: "queue_already_exists", field: "queue" });
        // A queue that was forgotten may be made again.
        expect((await api.delete(path)).status).toBe(204);
      }
    });

    it("are made, changed, paused, resumed and deleted", async () => {
      const { api, other } = servers;
      const service = freshService();
      const path = `/v1/queues/${service}/slow`;
      const made = await api.post("/v1/queues", { service, queue: "slow", maxActive: 2 });
      const queue = { service, queue: "slow", paused: false, maxActive: 2, waiting: 0, active: 0 };
      expect([made.status, made.headers.get("location"), made.body]).toEqual([201, path, queue]);
      const again = await other.post("/v1/queues", { service, queue: "slow" });
      expect([again.status, again.body.error.code, again.body.error.details.reason]).toEqual([
        ...[409, "duplicate", "queue_already_exists"],
      ]);
      const patched = await api.call("PATCH", path, { body: { maxActive: null, paused: true } });
      const { maxActive: _, ...unlimited } = queue;
      expect(patched.body).toEqual({ ...unlimited, paused: true });
      expect((await api.post(`${path}/resume`)).body.paused).toBe(false);
      expect((await api.post(`${path}/pause`)).body.paused).toBe(true);
      expect((await other.get(path)).body.paused).toBe(true);
      expect((await api.get(`/v1/queues?service=${service}`)).body.entries).toHaveLength(1);
      expect((await api.delete(path)).status).toBe(204);
      const gone = await api.get(path);
      expect([gone.status, gone.body.error.details.reason]).toEqual([404, "queue_not_found"]);
      expect((await api.delete(path)).status).toBe(404);
      expect((await api.call("PATCH", path, { body: {} })).status).toBe(404);
    });

    it("hand out nothing while they are paused, and again once resumed", async () => {
      const { api, other } = servers;
      const service = freshService();
      const id = await api.create(service, "mail");
      await api.post(`/v1/queues/${service}/mail/pause`);
      expect(await other.claim(service, "mail")).toEqual([]);
      const why = await api.get(`/v1/jobs/${id}/why`);
      expect(why.body.reason).toBe("queue_paused");
      await other.post(`/v1/queues/${service}/mail/resume`);
      expect((await api.claimOne(service, "mail")).job.id).toBe(id);
    });

    it("are purged of what waits; what runs stays", async () => {
      const { api } = servers;
      const service = freshService();
      const path = `/v1/queues/${service}/mail`;
      const running = await api.create(service, "mail");
      await api.claimOne(service, "mail");
      await api.create(service, "mail");
      await api.create(service, "mail", { delayMs: 60_000 });
      const full = await api.delete(path);
      expect([full.status, full.body.error.details.reason]).toEqual([409, "queue_not_empty"]);
      const preview = await api.post(`${path}/purge`, { preview: true });
      expect(preview.body).toEqual({ matched: 2, removed: 0, remaining: 2, preview: true });
      const purged = await api.post(`${path}/purge`);
      expect(purged.body).toEqual({ matched: 2, removed: 2, remaining: 0, preview: false });
      expect((await api.get(`/v1/jobs/${running}`)).body.state).toBe("active");
      expect((await api.delete(`${path}?force=true`)).status).toBe(204);
    });
  });

  it("shows keys, and releases one that a lost worker blocks", async () => {
    const { api } = servers;
    const service = freshService();
    const contract = defineService(service, {
      sync: defineJob({
        payload: z.object({ origin: z.string() }),
        keyConcurrency: {
          ...{ key: ["sync", "/origin"], maxActive: 1, stalePolicy: "block" },
          ...{ heartbeatIntervalMs: 300, heartbeatTtlMs: 1_000 },
        },
        queue: { maxQueuedPerKey: 1, whenFull: "reject" },
      }),
    });
    await api.accept(contract);
    const payload = { origin: "a" };
    const first = await api.create(service, "sync", { payload });
    const second = await api.create(service, "sync", { payload });
    const full = await api.post("/v1/jobs", { service, type: "sync", payload });
    expect([full.status, full.body.error]).toMatchObject([
      409,
      { code: "conflict", details: { reason: "queue_full", existingJobId: expect.any(String) } },
    ]);
    await api.claimOne(service, "sync");
    const { body: page } = await api.get(`/v1/keys?service=${service}&type=sync`);
    const [key] = page.entries;
    expect(key).toMatchObject({ maxActive: 1, maxQueued: 1, queued: [second], blocked: false });
    expect(key.active).toMatchObject([{ jobId: first, worker: "w-1" }]);
    const path = `/v1/keys/${key.hash}`;
    expect((await api.get(path)).body.key).toBe(key.key);
    const byKey = `/v1/jobs?service=${service}&key=${encodeURIComponent(key.key)}`;
    expect((await api.get(byKey)).body.count).toBe(2);
    // The server's keeper sees the lease lapse and blocks the key.
    await untilBlocked(api, first);
    expect((await api.post(`${path}/release`)).body).toEqual({ released: [first] });
    expect((await api.get(`/v1/jobs/${first}`)).body.state).toBe("stale");
    expect((await api.post(`${path}/release`)).body).toEqual({ released: [] });
    const trail = await api.get(`/v1/audit?service=${service}&action=key.release`);
    expect(trail.body.entries).toMatchObject([
      { actor: "admin:local", service, target: key.hash, details: { released: [first] } },
    ]);
    expect((await api.claimOne(service, "sync")).job.id).toBe(second);
    expect((await api.get("/v1/keys/0123456789abcdef")).status).toBe(404);
    expect((await api.get("/v1/keys/other")).status).toBe(400);
  });

  it("shows services and the workers that speak HTTP", async () => {
    const { api } = servers;
    const service = freshService();
    await api.create(service, "mail");
    await api.claimOne(service, "mail", { worker: "python-7", agent: "web.1" });
    const one = await api.get(`/v1/services/${service}`);
    expect(one.body).toEqual({
      ...{ name: service, instances: 1, hasContract: false, jobs: { active: 1 } },
    });
    const { body } = await api.get("/v1/services");
    expect(body.entries).toContainEqual(one.body);
    expect((await api.get(`/v1/services/${freshService()}`)).status).toBe(404);
    const workers = await api.get(`/v1/workers?service=${service}`);
    expect(workers.body.entries).toMatchObject([
      { service, instance: "python-7", agent: "web.1", fresh: true },
    ]);
  });
});

/** Resolves when the lease of a job has lapsed under a key that blocks. */
async function untilBlocked(api: Api, id: string): Promise<void> {
  await using events = await eventsOf(api, `/v1/jobs/${id}/events`);
  while ((await events.next()).event !== "keyBlocked");
}

describe("the queue DEFAULT", () => {
  it("is refused unless the server allows it", async () => {
    const body = { service: "shop", queue: "DEFAULT" };
    const { api } = await openServer({ url: "memory:" });
    const guarded = await api.post("/v1/queues", body);
    expect([guarded.status, guarded.body.error.details]).toEqual([
      ...[400, { reason: "default_queue_guarded", field: "queue" }],
    ]);
    const allowing = await openServer({ url: "memory:", allowCreateDefault: true });
    expect((await allowing.api.post("/v1/queues", body)).status).toBe(201);
  });
});
