// Contracts and chains over HTTP, on every store: what a service accepts, and jobs that continue one another.
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { defineJob, defineService, type Json, openEngine } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { manifest as manifestOf } from "#millrace/contract/manifest.js";
import { canonicalHash } from "#millrace/core/json.js";
import { recordId } from "#millrace/engine/record.js";
import { apiStores, freshService, sharedServers } from "./api.js";

const mail = { payload: z.object({ to: z.string() }), result: z.object({ messageId: z.string() }) };

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  it("checks creates and results against the accepted contract", async () => {
    const { api, other } = servers;
    const service = freshService();
    const asked = { service, type: "mail", payload: { to: 1 } };
    const before = await api.post("/v1/jobs", asked);
    expect(before.status).toBe(201);
    await api.post(`/v1/jobs/${before.body.id}/cancel`);
    const contract = defineService(service, { mail: defineJob(mail) });
    const accepted = await api.accept(contract);
    expect(accepted.body).toMatchObject({ acceptedBy: "admin:local", manifest: { service } });
    const wrong = await api.post("/v1/jobs", asked);
    expect([wrong.status, wrong.body.error.code, wrong.body.error.details]).toMatchObject([
      ...[422, "invalid_argument"],
      { reason: "payload_invalid", field: "payload/to" },
    ]);
    const id = await api.create(service, "mail", { payload: { to: "a@b.example" } });
    const unknown = await api.post("/v1/jobs", { ...asked, version: 7, payload: { to: "x" } });
    expect([unknown.status, unknown.body.error.details.field]).toEqual([400, "version"]);
    const { token } = await api.claimOne(service, "mail");
    const bad = await api.settle(id, token, { outcome: "completed", result: { messageId: 5 } });
    expect([bad.status, bad.body.error.details.reason]).toEqual([422, "result_invalid"]);
    const good = await other.settle(id, token, {
      ...{ outcome: "completed", result: { messageId: "m-1" } },
    });
    expect(good.body).toMatchObject({ state: "completed", result: { messageId: "m-1" } });
  });

  it("refuses a name that cannot be checked, and of a batch that entry alone", async () => {
    const { api } = servers;
    const service = freshService();
    const counts = { payload: z.record(z.string(), z.number()) };
    await api.accept(defineService(service, { count: defineJob(counts) }));
    const job = (payload: object) => ({ service, type: "count", payload });
    const odd = job({ "\ud800": 1 });
    const alone = await api.post("/v1/jobs", odd);
    expect([alone.status, alone.body.error.details]).toMatchObject([
      ...[422, { reason: "payload_invalid", field: "payload" }],
    ]);
    expect(alone.body.error.message).toContain("half of a surrogate pair");
    const { status, body } = await api.post("/v1/jobs/batch", { jobs: [job({ a: 1 }), odd] });
    expect([status, body.entries]).toMatchObject([
      ...[200, [{ outcome: "accepted" }, { outcome: "refused" }]],
    ]);
  });

  it("says how a manifest stands, and takes a migration only by its name", async () => {
    const { api } = servers;
    const service = freshService();
    const first = defineService(service, { mail: defineJob(mail) });
    const later = defineService(service, {
      mail: defineJob({ ...mail, payload: z.object({ to: z.string(), subject: z.string() }) }),
    });
    const path = `/v1/contracts/${service}`;
    expect((await api.get(path)).status).toBe(404);
    const diff = async (contract: typeof first) =>
      (await api.post(`${path}/diff`, { manifest: manifestOf(contract) })).body;
    expect(await diff(first)).toMatchObject({ standing: "first" });
    await api.accept(first);
    expect(await diff(first)).toMatchObject({ standing: "accepted" });
    const standing = await diff(later);
    expect(standing).toMatchObject({ standing: "migration", migration: expect.any(String) });
    const refused = await api.accept(later);
    expect([refused.status, refused.body.error.details]).toMatchObject([
      409,
      { reason: "migration_not_named", migration: standing.migration, changes: expect.any(Array) },
    ]);
    const accepted = await api.accept(later, { migration: standing.migration });
    expect(accepted.body.earlier).toHaveLength(1);
    expect((await api.get(path)).body).toEqual(accepted.body);
    const { body } = await api.get("/v1/contracts");
    expect(body.entries).toContainEqual({
      ...{ service, jobs: 1, signature: accepted.body.manifest.signature },
      ...{ acceptedAt: accepted.body.acceptedAt, acceptedBy: "admin:local" },
    });
  });

  it("refuses a manifest of another service, or one that was changed by hand", async () => {
    const { api } = servers;
    const service = freshService();
    const manifest = manifestOf(defineService(service, { mail: defineJob(mail) }));
    const elsewhere = await api.post("/v1/contracts/shop/diff", { manifest });
    expect(elsewhere.body.error.details.reason).toBe("manifest_of_another_service");
    const changed = { manifest: { ...manifest, jobs: [] } };
    const { body } = await api.post(`/v1/contracts/${service}/accept`, changed);
    expect(body.error.details.reason).toBe("manifest_signature_wrong");
  });

  it("refuses a manifest whose settings or schemas cannot work, and names the field", async () => {
    const { api } = servers;
    const service = freshService();
    const manifest = manifestOf(defineService(service, { mail: defineJob(mail) }));
    const [job] = manifest.jobs;
    const accept = async (changed: object, signed?: object) => {
      const { signature: _, ...content } = {
        ...manifest,
        jobs: [{ ...job, ...changed }],
        ...signed,
      };
      const sent = { ...content, signature: canonicalHash(content as unknown as Json) };
      const { status, body } = await api.post(`/v1/contracts/${service}/accept`, {
        manifest: sent,
      });
      return [status, body.error?.details.reason, body.error?.details.field];
    };
    const settings = (changed: object) => ({ settings: { ...job?.settings, ...changed } });
    const pattern = (text: string) => ({ properties: { to: { type: "string", pattern: text } } });
    const wrong: readonly [field: string, changed: object][] = [
      ["settings.version", { settings: {} }],
      ["settings.queue", settings({ queue: null })],
      ["settings.queue.maxQueuedPerKey", settings({ queue: {} })],
      ["settings.retention", settings({ retention: null })],
      ["settings.leaseMs", settings({ leaseMs: 1_000.5 })],
      ["settings.priority", settings({ priority: 1.5 })],
      ["settings.maxTries", settings({ maxTries: 3e9 })],
      ["settings.backoff", settings({ backoff: { kind: "zz" } })],
      ["settings.keyConcurrency.maxActive", settings({ keyConcurrency: { key: ["a"] } })],
      ["settings.version", { version: 3e9, ...settings({ version: 3e9 }) }],
      ["version", { version: 2 }],
      ["queue", { queue: "another" }],
      ["payload", { payload: 5 }],
      ["payload", { payload: { type: "bogus" } }],
      ["payload", { payload: pattern("(") }],
      ["payload", { payload: { $ref: "#/nope" } }],
      ["result", { result: { required: "messageId" } }],
    ];
    for (const [field, changed] of wrong)
      expect(await accept(changed)).toEqual([400, "manifest_invalid", `manifest.jobs.0.${field}`]);
    expect(await accept({}, { jobs: [job, job] })).toEqual([
      ...[400, "manifest_invalid", "manifest.version"],
    ]);
    expect(await accept({}, { manifest: 2 })).toEqual([
      ...[400, "manifest_invalid", "manifest.manifest"],
    ]);
    expect((await accept({}, { later: true }))[0]).toBe(200);
  });

  it("shows what is wrong with a stored contract that is broken, and replaces it", async () => {
    const { api, url } = servers;
    const engine = await openEngine(url);
    onTestFinished(() => engine.close());
    const service = freshService();
    const contract = defineService(service, { mail: defineJob(mail) });
    const manifest = manifestOf(contract);
    const id = recordId.contract(service);
    const stored = { manifest: { ...manifest, jobs: [null] }, earlier: [] } as unknown as Json;
    await engine.swap([{ id, expect: 0, body: stored }]);
    const path = `/v1/contracts/${service}`;
    const read = await api.get(path);
    expect([read.status, read.body.error.details.reason]).toEqual([503, "contract_unusable"]);
    expect((await api.get("/v1/contracts")).status).toBe(200);
    const { body } = await api.post(`${path}/diff`, { manifest });
    const sentence = expect.stringContaining("manifest.jobs.0 is missing");
    expect(body).toMatchObject({ standing: "migration", diff: { changes: [{ sentence }] } });
    expect((await api.accept(contract)).status).toBe(409);
    const accepted = await api.accept(contract, { migration: body.migration });
    expect(accepted.body).toMatchObject({ manifest, earlier: [] });
    expect((await api.get(path)).status).toBe(200);
  });

  it("stops checking a payload that a pattern would take for ever to check", async () => {
    const { api } = servers;
    const service = freshService();
    const to = z.string().regex(/^(a+)+$/);
    await api.accept(defineService(service, { mail: defineJob({ payload: z.object({ to }) }) }));
    const create = (text: string) =>
      api.post("/v1/jobs", { service, type: "mail", payload: { to: text } });
    expect((await create("aaa")).status).toBe(201);
    const slow = await create(`${"a".repeat(60)}!`);
    expect([slow.status, slow.body.error.details.reason]).toEqual([422, "payload_invalid"]);
    expect(slow.body.error.message).toContain("within 250 ms");
  });

  it("starts, shows, completes and deletes chains", async () => {
    const { api, other } = servers;
    const service = freshService();
    const contract = defineService(service, {
      order: defineJob({ payload: z.object({}), continuations: ["ship"] }),
      ship: defineJob({ payload: z.object({ to: z.string() }), result: z.string() }),
    });
    await api.accept(contract);
    const started = await api.post("/v1/chains", { service, type: "order", payload: {} });
    expect(started.status).toBe(201);
    const { id } = started.body;
    const path = `/v1/chains/${id}`;
    const continueWith = { type: "ship", payload: { to: "home" } };
    const wrong = await api.post(`${path}/complete`, {
      continueWith: { type: "order", payload: {} },
    });
    expect([wrong.status, wrong.body.error.code]).toEqual([400, "invalid_argument"]);
    for (const ended of [{ result: { approved: true } }, {}]) {
      const refused = await api.post(`${path}/complete`, ended);
      expect([refused.status, refused.body.error.details.reason]).toEqual([422, "result_invalid"]);
      expect(refused.body.error.message).toContain('continue with "ship"');
    }
    const order = await other.claimOne(service, "order");
    const settled = await api.settle(id, order.token, { outcome: "completed" });
    expect([settled.status, settled.body.error.details.reason]).toEqual([422, "result_invalid"]);
    const next = await api.post(`${path}/complete`, { continueWith });
    expect(next.body).toMatchObject({ id, state: "pending", count: 2, current: { type: "ship" } });
    const listed = await other.get(`/v1/chains?service=${service}&state=queued`);
    expect(listed.body.entries).toMatchObject([{ id, currentType: "ship", state: "pending" }]);
    const { token } = await other.claimOne(service, "ship");
    const running = await api.delete(path);
    expect([running.status, running.body.error.code]).toEqual([409, "conflict"]);
    await api.settle(next.body.current.id, token, { outcome: "released" });
    const done = await other.post(`${path}/complete`, { result: "shipped" });
    expect(done.body).toMatchObject({ state: "completed", output: "shipped" });
    const again = await api.post(`${path}/complete`, { result: "twice" });
    expect([again.status, again.body.error.details.reason]).toEqual([409, "already_completed"]);
    expect((await api.delete(path)).body).toEqual({ deleted: 2 });
    for (const answer of [await api.get(path), await api.delete(path)])
      expect(answer.status).toBe(404);
  });

  it("ends chains with a result whose schema a manifest cannot tell", async () => {
    const { api } = servers;
    const service = freshService();
    const text: StandardSchemaV1<string, string> = {
      "~standard": { version: 1, vendor: "own", validate: (value) => ({ value: String(value) }) },
    };
    const payload = z.object({});
    const contract = defineService(service, {
      ask: defineJob({ payload, result: text, continuations: ["ask"] }),
    });
    await api.accept(contract);
    const { id } = (await api.post("/v1/chains", { service, type: "ask", payload: {} })).body;
    const done = await api.post(`/v1/chains/${id}/complete`, { result: "yes" });
    expect([done.status, done.body.output]).toEqual([200, "yes"]);
  });
});
