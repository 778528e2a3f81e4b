// What the API shows of secrets, and what it takes of signatures, on every store.
import { connect, defineJob, defineService, generateSigningKeys, signJob } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { apiStores, freshService, sharedServers } from "./api.js";

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  it("hides what a definition marks, from all but the worker", async () => {
    const name = freshService();
    const contract = defineService(name, {
      pay: defineJob({
        payload: z.object({ card: z.string(), cents: z.number() }),
        result: z.object({ token: z.string() }),
        secret: { payload: ["/card"], result: ["/token"] },
      }),
    });
    const service = await connect(contract, { url: servers.url, keeper: false });
    onTestFinished(() => service.stop());
    const { id } = await service.jobs.pay.create({ card: "no-4242", cents: 5 }).orThrow();
    const hidden = { card: "[redacted]", cents: 5 };
    expect((await servers.api.get(`/v1/jobs/${id}`)).body.payload).toEqual(hidden);
    const { job, token } = await servers.api.claimOne(name, "pay");
    expect(job.payload).toEqual({ card: "no-4242", cents: 5 });
    const outcome = { token, outcome: "completed", result: { token: "t-no-4242" } };
    const settled = await servers.api.post(`/v1/work/jobs/${id}/settle`, outcome);
    expect(settled.body).toMatchObject({ payload: hidden, result: { token: "[redacted]" } });
    const { body } = await servers.api.get(`/v1/jobs/${id}/events`);
    expect(JSON.stringify(body)).not.toContain("no-4242");
    expect(await service.ref(id).wait().orThrow()).toEqual({ token: "t-no-4242" });
  });

  it("takes the signature of a caller, for a worker to check", async () => {
    const name = freshService();
    const contract = defineService(name, {
      pay: defineJob({ payload: z.object({ cents: z.number() }) }),
    });
    const { privateKey, publicKey } = generateSigningKeys();
    const signing = { verify: [publicKey] };
    const service = await connect(contract, { url: servers.url, signing, keeper: false });
    onTestFinished(() => service.stop());
    service.jobs.pay.handle(({ payload }) => payload.cents);
    await service.start();
    const times = { createdAt: Date.now(), expiresAt: Date.now() + 60_000 };
    const asked = { service: name, type: "pay", id: `${name}-1`, payload: { cents: 5 } };
    const { value } = signJob(privateKey, { ...asked, typeVersion: 1 }, times);
    const signature = {
      value,
      createdAt: new Date(times.createdAt).toISOString(),
      expiresAt: new Date(times.expiresAt).toISOString(),
    };
    const created = await servers.api.post("/v1/jobs", { ...asked, signature });
    expect(created.status).toBe(201);
    expect(await service.ref(asked.id).wait().orThrow()).toBe(5);
    expect((await servers.api.get(`/v1/jobs/${asked.id}`)).body.signature).toEqual(signature);
    const unsigned = await servers.api.post("/v1/jobs", { ...asked, id: `${name}-2` });
    await service.ref(unsigned.body.id).wait();
    const { body } = await servers.api.get(`/v1/jobs/${unsigned.body.id}`);
    expect(body).toMatchObject({ state: "failed", error: { code: "signature_required" } });
    const nameless = await servers.api.post("/v1/jobs", { ...asked, id: undefined, signature });
    expect([nameless.status, nameless.body.error.details.field]).toEqual([400, "id"]);
  });
});
