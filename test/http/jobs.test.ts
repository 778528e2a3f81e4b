// Jobs over HTTP, on every store: creating them, and everything that one job can be asked and told.
import { describe, expect, it } from "vitest";
import { type Api, apiStores, freshService, sharedServers } from "./api.js";

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  describe("a create", () => {
    it("stores the job and says where it is", async () => {
      const service = freshService();
      const asked = {
        ...{ service, type: "mail:new", payload: { to: ["a", null, 1.5] }, priority: 3 },
        ...{ tags: ["blue", "two words"], maxTries: 2, queue: "slow" },
        ...{ runAt: "2040-01-31T12:00:00.123+01:00", deadline: "2050-01-01T00:00:00Z" },
        context: { requestId: "order-7" },
      };
      const { status, headers, body } = await servers.api.post("/v1/jobs", asked);
      expect(status).toBe(201);
      expect(body).toEqual({ outcome: "accepted", id: body.id, service, type: "mail:new" });
      expect(headers.get("location")).toBe(`/v1/jobs/${body.id}`);
      const { body: job } = await servers.other.get(`/v1/jobs/${body.id}`);
      expect(job).toMatchObject({
        ...{ state: "pending", payload: asked.payload, priority: 3, queue: "slow", maxTries: 2 },
        ...{ tags: ["blue", "two words"], runAt: "2040-01-31T11:00:00.123Z" },
        ...{ deadline: "2050-01-01T00:00:00.000Z", context: { requestId: "order-7" } },
      });
    });

    it("takes the payload's bytes in base64, and never both", async () => {
      const service = freshService();
      const payload_base64 = Buffer.from('{"name":"Zoë"}').toString("base64");
      const asked = { service, type: "mail", payload_base64 };
      const { body } = await servers.api.post("/v1/jobs", asked);
      const { body: job } = await servers.api.get(`/v1/jobs/${body.id}`);
      expect(job.payload).toEqual({ name: "Zoë" });
      const refusals = [{ payload: 1, payload_base64 }, {}, { payload_base64: "{}" }].concat(
        { payload_base64: Buffer.from("{").toString("base64") },
        { payload_base64: Buffer.from([0x22, 0xff, 0x22]).toString("base64") },
      );
      const reasons = await Promise.all(
        refusals.map(async (part) => {
          const answer = await servers.api.post("/v1/jobs", { service, type: "mail", ...part });
          return `${answer.status} ${answer.body.error.details.reason}`;
        }),
      );
      expect(reasons).toEqual([
        ...["400 payload_both_set", "400 payload_missing", "400 payload_base64_invalid"],
        ...["400 payload_base64_invalid", "400 payload_base64_invalid"],
      ]);
    });

    it("takes its trace and request from the headers", async () => {
      const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
      const headers = { traceparent, "X-Request-Id": "checkout-1" };
      const asked = { service: freshService(), type: "mail", payload: {} };
      const { body } = await servers.api.post("/v1/jobs", asked, { headers });
      const { body: job } = await servers.api.get(`/v1/jobs/${body.id}`);
      expect(job.context.requestId).toBe("checkout-1");
      expect(job.context.traceId).toBe("0af7651916cd43dd8448eb211c80319c");
    });

    it("refuses an id that is taken, and unknown fields, by name", async () => {
      const service = freshService();
      const asked = { service, type: "mail", payload: {}, id: `own-${service}` };
      expect((await servers.api.post("/v1/jobs", asked)).status).toBe(201);
      const again = await servers.other.post("/v1/jobs", asked);
      expect([again.status, again.body.error.code, again.body.error.details]).toEqual([
        ...[409, "duplicate", { reason: "job_exists", field: "id" }],
      ]);
      const unknown = await servers.api.post("/v1/jobs", { ...asked, prority: 1 });
      expect([unknown.status, unknown.body.error.details.reason]).toEqual([400, "unknown_field"]);
      expect(unknown.body.error.message).toContain("prority");
      const wrong = await servers.api.post("/v1/jobs", { ...asked, type: "a b", delayMs: -1 });
      expect([wrong.status, wrong.body.error.details.field]).toEqual([400, "type"]);
      expect(wrong.body.error.details.issues).toHaveLength(2);
    });

    it("waits for its blockers, and is refused when one is not there", async () => {
      const service = freshService();
      const first = await servers.api.create(service, "pay");
      const second = await servers.api.create(service, "ship", { blockers: [{ id: first }] });
      const { body: why } = await servers.api.get(`/v1/jobs/${second}/why`);
      expect(why).toMatchObject({ reason: "blocked", sentence: expect.stringContaining(first) });
      const asked = { service, type: "ship", payload: {}, blockers: [{ id: "nobody" }] };
      const { status, body } = await servers.api.post("/v1/jobs", asked);
      expect([status, body.error.code, body.error.details.blockerId]).toEqual([
        ...[422, "dependency_failed", "nobody"],
      ]);
    });

    it("gives the job that its idempotency key stands for", async () => {
      const service = freshService();
      const asked = { service, type: "mail", payload: { n: 1 }, idempotencyKey: "order-1" };
      const first = await servers.api.post("/v1/jobs", asked);
      const second = await servers.other.post("/v1/jobs", asked);
      expect([second.status, second.body]).toEqual([200, { ...first.body, outcome: "existing" }]);
      const other = await servers.api.post("/v1/jobs", { ...asked, payload: { n: 2 } });
      expect([other.status, other.body.error.details.reason]).toEqual([
        ...[422, "idempotency_key_reused"],
      ]);
    });
  });

  it("creates many jobs with an outcome for each", async () => {
    const service = freshService();
    const job = { service, type: "mail", payload: {} };
    const one = `one-${service}`;
    const jobs = [
      { ...job, id: one },
      { ...job, id: one },
      { ...job, blockers: [{ id: one }] },
      { ...job, tags: [" "] },
      { ...job, payload: { constructor: 1 } },
    ];
    const { status, body } = await servers.api.post("/v1/jobs/batch", { jobs });
    expect(status).toBe(200);
    const outcomes = body.entries.map(
      (entry: { outcome: string; error?: { details: { reason: string } } }) =>
        entry.error?.details.reason ?? entry.outcome,
    );
    expect(outcomes.slice(0, 2).sort()).toEqual(["accepted", "job_exists"]);
    expect(outcomes.slice(2)).toEqual(["accepted", "option_invalid", "payload_invalid"]);
    const many = Array.from({ length: 1_001 }, () => job);
    expect((await servers.api.post("/v1/jobs/batch", { jobs: many })).status).toBe(400);
    const all = await servers.api.post("/v1/jobs/batch", { jobs: many.slice(1) });
    expect(new Set(all.body.entries.map(({ id }: { id: string }) => id)).size).toBe(1_000);
  });

  it("answers 404 for a job that is not there, whatever is asked of it", async () => {
    const { api } = servers;
    const paths = ["", "/why", "/wait?timeoutMs=0", "/events", "/logs"];
    const commands = ["cancel", "retry", "complete"];
    const answers = await Promise.all([
      ...paths.map((path) => api.get(`/v1/jobs/nobody${path}`)),
      ...commands.map((command) => api.post(`/v1/jobs/nobody/${command}`)),
      ...[api.delete("/v1/jobs/nobody"), api.post("/v1/dead-letters/nobody/replay")],
      api.post("/v1/dead-letters/nobody/dismiss"),
      api.settle("nobody", 1, { outcome: "completed" }),
    ]);
    for (const { status, body } of answers)
      expect([status, body.error.details.reason]).toEqual([404, "job_not_found"]);
  });

  it("deletes an ended job, and one that has not ended only by force", async () => {
    const service = freshService();
    const id = await servers.api.create(service, "mail");
    const kept = await servers.api.delete(`/v1/jobs/${id}`);
    expect([kept.status, kept.body.error.details.reason]).toEqual([409, "state_forbids"]);
    const gone = await servers.api.delete(`/v1/jobs/${id}?force=true&reason=tidy`);
    expect([gone.status, gone.body.id, gone.body.state]).toEqual([200, id, "pending"]);
    expect((await servers.other.get(`/v1/jobs/${id}`)).status).toBe(404);
  });

  it("cancels a waiting job at once, and asks a running one to stop", async () => {
    const { api } = servers;
    const service = freshService();
    const waiting = await api.create(service, "mail");
    const cancelled = await api.post(`/v1/jobs/${waiting}/cancel`, { reason: "not needed" });
    expect([cancelled.status, cancelled.body]).toEqual([
      ...[202, { outcome: "cancelled", state: "cancelled" }],
    ]);
    const again = await api.post(`/v1/jobs/${waiting}/cancel`);
    expect([again.status, again.body.outcome]).toEqual([202, "ended"]);
    const running = await api.create(service, "mail");
    await api.claimOne(service, "mail");
    const asked = await api.post(`/v1/jobs/${running}/cancel`);
    expect([asked.status, asked.body]).toEqual([202, { outcome: "requested", state: "active" }]);
    const forced = await api.post(`/v1/jobs/${running}/cancel`, { force: true });
    expect(forced.body).toEqual({ outcome: "cancelled", state: "cancelled" });
  });

  it("retries an ended job as a new run, a completed one only by force", async () => {
    const { api } = servers;
    const service = freshService();
    const id = await api.deadJob(service, "mail");
    const retried = await api.post(`/v1/jobs/${id}/retry`, { delayMs: 60_000 });
    expect(retried.body).toMatchObject({ id, state: "pending", run: 2, tries: 0 });
    const refused = await api.post(`/v1/jobs/${id}/retry`);
    expect([refused.status, refused.body.error.details.state]).toEqual([409, "pending"]);
    await api.post(`/v1/jobs/${id}/complete`, { result: 1 });
    expect((await api.post(`/v1/jobs/${id}/retry`)).status).toBe(409);
    expect((await api.post(`/v1/jobs/${id}/retry`, { force: true })).body.run).toBe(3);
  });

  it("retries many with an outcome for each", async () => {
    const { api } = servers;
    const service = freshService();
    const dead = await api.deadJob(service, "mail");
    const waiting = await api.create(service, "mail");
    const { body } = await api.post("/v1/jobs/retry", { ids: [dead, waiting, "nobody"] });
    expect(body.entries).toMatchObject([
      { id: dead, outcome: "retried", state: "pending" },
      { id: waiting, outcome: "refused", error: { code: "conflict" } },
      { id: "nobody", outcome: "refused", error: { code: "not_found" } },
    ]);
    const ids = Array.from({ length: 101 }, (_, index) => `j-${index}`);
    expect((await api.post("/v1/jobs/retry", { ids })).status).toBe(400);
  });

  it("completes a job without a worker, once", async () => {
    const { api } = servers;
    const id = await api.create(freshService(), "approve");
    const done = await api.post(`/v1/jobs/${id}/complete`, { result: { yes: true } });
    expect(done.body).toMatchObject({ state: "completed", result: { yes: true } });
    expect(done.body.completedBy).toBeNull();
    const again = await api.post(`/v1/jobs/${id}/complete`, { result: 2 });
    expect([again.status, again.body.error.details]).toEqual([
      ...[409, { reason: "already_completed", state: "completed" }],
    ]);
  });

  it("waits for the end of a job, whichever server hears of it", async () => {
    const { api, other } = servers;
    const service = freshService();
    const id = await api.create(service, "mail");
    const early = await api.get(`/v1/jobs/${id}/wait?timeoutMs=0`);
    expect([early.body.done, early.body.job.state]).toEqual([false, "pending"]);
    const waiting = other.get(`/v1/jobs/${id}/wait`);
    const { token } = await api.claimOne(service, "mail");
    await api.settle(id, token, { outcome: "completed", result: "sent" });
    const { body } = await waiting;
    expect([body.done, body.job.state, body.job.result]).toEqual([true, "completed", "sent"]);
  });

  it("names who gave each command, in the events", async () => {
    const { api } = servers;
    const service = freshService();
    const id = await api.create(service, "mail", { maxTries: 1 });
    const { token } = await api.claimOne(service, "mail", { worker: "python-1" });
    await api.settle(id, token, { outcome: "failed", error: { message: "no" } });
    await api.post(`/v1/dead-letters/${id}/dismiss`, { reason: "seen" });
    expect(await actorsOf(api, id)).toEqual([
      ["created", "admin:local"],
      ["started", "worker:python-1"],
      ["dead", "worker:http/python-1"],
      ["dismissed", "admin:local"],
    ]);
  });
});

async function actorsOf(api: Api, id: string): Promise<readonly unknown[]> {
  const { body } = await api.get(`/v1/jobs/${id}/events`);
  return body.entries
    .filter(({ name }: { name: string }) => name !== "ready")
    .map(({ name, actor }: { name: string; actor: string }) => [name, actor]);
}
