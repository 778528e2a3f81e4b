// Encrypted services over HTTP, on every store: a server with keys takes and gives plain text and stores none, and one
// without keys refuses what it would have to store.
import {
  connect,
  defineJob,
  defineService,
  generateEncryptionKey,
  generateSigningKeys,
  openEngine,
  signJob,
} from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { canonicalHash } from "#millrace/core/json.js";
import { apiStores, around, freshPlace, freshService, openServer, sqlite } from "./api.js";

const first = { id: "k1", key: generateEncryptionKey() };
// The same key, as base64 has it.
const encryptionKeys = [{ id: "k1", key: Buffer.from(first.key, "hex").toString("base64") }];

function clinic() {
  return defineService(
    freshService(),
    {
      report: defineJob({
        payload: z.object({ patient: z.string() }),
        result: z.object({ finding: z.string() }),
        retry: { maxTries: 1 },
      }),
    },
    { encrypted: true },
  );
}

async function opened(place: Parameters<typeof freshPlace>[0]) {
  const url = await freshPlace(place);
  const contract = clinic();
  const keyed = await openServer({ url, encryptionKeys, keeper: false });
  const bare = await openServer({ url, keeper: false });
  expect((await keyed.api.accept(contract)).status).toBe(200);
  const service = await connect(contract, { url, encryption: { keys: [first] }, keeper: false });
  onTestFinished(() => service.stop());
  return { url, contract, name: contract.name, keyed: keyed.api, bare: bare.api, service };
}

// No id or hash can hold this by chance.
const secret = "no-4242";
const payload = { patient: secret };

describe.each(apiStores)("on $name", (place) => {
  it("keeps what comes over HTTP out of the store, and gives it to workers", async () => {
    const { name, keyed, service } = await opened(place);
    const id = await keyed.create(name, "report", { payload });
    const { job, token } = await keyed.claimOne(name, "report");
    expect(job.payload).toEqual(payload);
    expect((await keyed.get(`/v1/jobs/${id}`)).body.payload).toBe("[encrypted]");
    const outcome = { outcome: "completed", result: { finding: secret } };
    const settled = await keyed.settle(id, token, outcome);
    expect(settled.body).toMatchObject({ state: "completed", result: "[encrypted]" });
    expect(await service.ref(id).wait().orThrow()).toEqual({ finding: secret });
    const other = await keyed.create(name, "report", { payload });
    const completed = await keyed.post(`/v1/jobs/${other}/complete`, {
      result: { finding: secret },
    });
    expect(completed.body).toMatchObject({ payload: "[encrypted]", result: "[encrypted]" });
    const stored = await service.engine.load([id, other], { history: true });
    expect(JSON.stringify(stored)).not.toContain(secret);
    const schedule = { service: name, name: "often", type: "report", payload, everyMs: 60_000 };
    expect((await keyed.post("/v1/schedules", schedule)).body.payload).toBe("[encrypted]");
    expect((await service.schedules.get("often").orThrow()).payload).toEqual(payload);
    const records = await service.engine.query("records", { prefix: "schedule/", limit: 10 });
    expect(JSON.stringify(records)).not.toContain(secret);
    const fired = await keyed.post(`/v1/schedules/${name}/often/run`);
    const { payload: made } = await service.ref(fired.body.id).get().orThrow();
    expect(made).toEqual(payload);
  });

  it("refuses without keys what would have to be encrypted", async () => {
    const { name, keyed, bare, service } = await opened(place);
    const asked = { service: name, type: "report", payload };
    const headers = { "Idempotency-Key": "once" };
    const id = await keyed.create(name, "report", { payload });
    const { token } = await keyed.claimOne(name, "report");
    const outcome = { outcome: "completed", result: { finding: secret } };
    const types = [{ type: "report" }];
    const answers = [
      await bare.post("/v1/jobs", asked),
      await bare.post("/v1/jobs", asked, { headers }),
      await bare.post("/v1/schedules", { ...asked, name: "often", everyMs: 60_000 }),
      await bare.post("/v1/work/claims", { service: name, worker: "w-1", types }),
      await bare.settle(id, token, outcome),
      await bare.post(`/v1/jobs/${id}/complete`, { result: { finding: secret } }),
    ];
    const said = answers.map(({ status, body }) => [status, body.error?.code]);
    expect(said).toEqual(answers.map(() => [422, "encryption_required"]));
    expect((await service.reads.jobs().orThrow()).entries).toHaveLength(1);
    expect(await service.engine.query("records", { prefix: "request/", limit: 10 })).toEqual([]);
    // Nothing was spent by that: the worker settles where there are keys.
    expect((await keyed.settle(id, token, outcome)).status).toBe(200);
  });
});

it("fails the tries of jobs whose key the server has not, and of those that were tampered with", async () => {
  const { url, contract, name, keyed, service } = await opened(sqlite);
  const keys = [{ id: "k2", key: generateEncryptionKey() }];
  const elsewhere = await connect(contract, { url, encryption: { keys }, keeper: false });
  onTestFinished(() => elsewhere.stop());
  const strange = await elsewhere.jobs.report.create(payload).orThrow();
  expect(await keyed.claim(name, "report")).toEqual([]);
  expect((await keyed.get(`/v1/jobs/${strange.id}`)).body).toMatchObject({
    state: "dead",
    error: { reason: "encryption", code: "encryption_key_missing" },
  });
  const engine = await openEngine(url);
  onTestFinished(() => engine.close());
  const own = await service.jobs.report.create(payload, { delayMs: 60_000 }).orThrow();
  const [sealed] = await engine.load([own.id], { history: true });
  const [created] = sealed?.events ?? [];
  if (created?.name !== "created") throw new Error("The job has no history.");
  const job = { service: name, type: "report", id: "moved" };
  const event = { ...created, id: "moved-created", jobId: job.id, runAt: created.at };
  await engine.append([{ job, expect: { version: 0 }, event }]);
  expect(await keyed.claim(name, "report")).toEqual([]);
  expect((await keyed.get("/v1/jobs/moved")).body).toMatchObject({
    state: "failed",
    error: { reason: "encryption", code: "encryption_invalid" },
  });
});

it("remembers requests without storing what would tell the payload", async () => {
  const { name, keyed, service } = await opened(sqlite);
  const asked = { service: name, type: "report", payload };
  const headers = { "Idempotency-Key": "once" };
  const made = await keyed.post("/v1/jobs", asked, { headers });
  const again = await keyed.post("/v1/jobs", asked, { headers });
  expect([made.status, again.body.id]).toEqual([201, made.body.id]);
  const records = await service.engine.query("records", { prefix: "request/", limit: 10 });
  expect(records).toHaveLength(1);
  expect(JSON.stringify(records)).not.toContain(canonicalHash(asked));
});

it("checks signatures of what it has decrypted", async () => {
  const { url, name } = await opened(sqlite);
  const { privateKey, publicKey } = generateSigningKeys();
  const signing = { verify: [publicKey] };
  const { api } = await openServer({ url, encryptionKeys, signing, keeper: false });
  const asked = { service: name, type: "report", id: `${name}-1`, payload };
  const createdAt = Date.now();
  const { value } = signJob(privateKey, { ...asked, typeVersion: 1 }, { createdAt });
  const signature = { value, createdAt: new Date(createdAt).toISOString() };
  expect((await api.post("/v1/jobs", { ...asked, signature })).status).toBe(201);
  expect((await api.claimOne(name, "report")).job.payload).toEqual(payload);
});

it("refuses keys that cannot work", async () => {
  const open = (keys: readonly { id: string; key: string }[]) =>
    openServer({ url: "memory:", encryptionKeys: keys });
  await expect(open([])).rejects.toThrow("encryptionKeys: It must be a list of 1 to 20 keys");
  await expect(open([{ id: "k", key: "abc" }])).rejects.toThrow("encryptionKeys[0].key: An");
});

it("hands out the other jobs of a claim when one that cannot be read cannot be settled either", async () => {
  const { url, contract, name, keyed: open } = await opened(sqlite);
  const keys = [{ id: "k2", key: generateEncryptionKey() }];
  const elsewhere = await connect(contract, { url, encryption: { keys }, keeper: false });
  onTestFinished(() => elsewhere.stop());
  const store = await openEngine(url);
  onTestFinished(() => store.close());
  const faulty = around(store, "settle", async () => {
    throw new Error("The disk is gone.");
  });
  const warned: unknown[] = [];
  const logger = {
    info: () => {},
    warn: (fields: { readonly jobId?: unknown }) => void warned.push(fields.jobId),
    error: () => {},
  };
  const { api } = await openServer({ engine: faulty, encryptionKeys, keeper: false, logger });
  const strange = await elsewhere.jobs.report.create(payload, { priority: 9 }).orThrow();
  expect(await api.claim(name, "report")).toEqual([]);
  const other = await elsewhere.jobs.report.create(payload, { priority: 9 }).orThrow();
  const id = await open.create(name, "report", { payload });
  const [claimed, ...more] = await api.claim(name, "report");
  expect([claimed?.job.id, claimed?.job.payload, more]).toEqual([id, payload, []]);
  expect(warned).toEqual([strange.id, other.id]);
  for (const bad of [strange.id, other.id])
    expect((await open.get(`/v1/jobs/${bad}`)).body).toMatchObject({ state: "active" });
});
