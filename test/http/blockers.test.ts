// Blockers over HTTP, on every store: of types that name them and of types that do not, in creates and in continuations.
import { defineJob, defineService } from "millrace";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { type Answer, apiStores, freshService, sharedServers } from "./api.js";

function contractOf(service: string) {
  return defineService(service, {
    invoice: defineJob({ payload: z.object({}), result: z.object({ number: z.number() }) }),
    charge: defineJob({ payload: z.object({}), continuations: ["ship"] }),
    ship: defineJob({ payload: z.object({}) }),
    thank: defineJob({
      payload: z.object({}),
      blockers: { invoice: "invoice", delivery: "charge" },
    }),
    order: defineJob({ payload: z.object({}), continuations: ["thank"] }),
  });
}

function refusal({ status, body }: Answer): readonly unknown[] {
  return [status, body.error?.details.field, body.error?.message];
}

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  async function openShop() {
    const { api } = servers;
    const service = freshService();
    await api.accept(contractOf(service));
    const invoice = await api.create(service, "invoice");
    const chain = await api.post("/v1/chains", { service, type: "charge", payload: {} });
    const delivery: string = chain.body.id;
    const named = [
      { name: "delivery", id: delivery, chain: true },
      { name: "invoice", id: invoice, onBadEnd: "continue" },
    ];
    const stored = [
      { jobId: invoice, name: "invoice", onBadEnd: "continue" },
      { jobId: delivery, name: "delivery", onBadEnd: "unreachable", chain: true },
    ];
    return { api, service, invoice, delivery, named, stored };
  }

  it("a create names what its contract names, and is let go when that has ended", async () => {
    const { api, service, invoice, delivery, named, stored } = await openShop();
    const id = await api.create(service, "thank", { blockers: named });
    const { body: job } = await servers.other.get(`/v1/jobs/${id}`);
    expect(job).toMatchObject({ state: "blocked", blockers: stored });
    await api.post(`/v1/jobs/${invoice}/cancel`);
    const ship = { continueWith: { type: "ship", payload: {} } };
    for (const step of [ship, {}]) await api.post(`/v1/chains/${delivery}/complete`, step);
    const { job: claimed } = await api.claimOne(service, "thank");
    expect(claimed).toMatchObject({ id, blockers: stored });
  });

  it("a create names jobs of the types that its contract names", async () => {
    const { api, service, invoice, delivery } = await openShop();
    const swapped = [
      { name: "invoice", id: delivery, chain: true },
      { name: "delivery", id: invoice },
    ];
    const asked = { service, type: "thank", payload: {}, blockers: swapped };
    const { body } = await api.post("/v1/jobs", asked);
    expect(body.error).toMatchObject({
      code: "dependency_failed",
      details: { reason: "blocker_type", blockerId: delivery },
    });
  });

  it("a create names jobs of its own service", async () => {
    const { api, service, delivery } = await openShop();
    const other = freshService();
    await api.accept(contractOf(other));
    const invoice = await api.create(other, "invoice");
    const blockers = [
      { name: "invoice", id: invoice },
      { name: "delivery", id: delivery, chain: true },
    ];
    const { body } = await api.post("/v1/jobs", { service, type: "thank", payload: {}, blockers });
    expect(body.error).toMatchObject({
      code: "dependency_failed",
      details: { reason: "blocker_type", blockerId: invoice },
    });
    expect(body.error.message).toContain(`a job of the service ${other}`);
  });

  it("names that are missing, strange or wrong are refused with the remedy", async () => {
    const { api, service, invoice, delivery, named } = await openShop();
    const create = async (type: string, blockers?: unknown) =>
      refusal(await api.post("/v1/jobs", { service, type, payload: {}, blockers }));
    const [delivered, invoiced] = named;
    const both = "blockers: thank waits for invoice, delivery";
    const example = '{ "name": "invoice", "id": "…" }';
    const missing = [400, "blockers", `${both}; give invoice by its name, too.`];
    expect(await create("thank")).toEqual(missing);
    expect(await create("thank", [])).toEqual(missing);
    expect(await create("thank", [{ id: invoice }, { id: delivery, chain: true }])).toEqual(
      missing,
    );
    expect(await create("thank", [delivered])).toEqual(missing);
    expect(await create("thank", [delivered, { id: invoice }])).toEqual([
      ...[400, "blockers"],
      `blockers: some have a name and others none; name each, as in ${example}, or none.`,
    ]);
    expect(await create("thank", [delivered, invoiced, { ...invoiced, id: delivery }])).toEqual([
      ...[400, "blockers"],
      "blockers: two have the name invoice; give each a name of its own.",
    ]);
    expect(await create("thank", [...named, { name: "__proto__", id: invoice }])).toEqual([
      ...[400, "blockers", `${both}, not for __proto__.`],
    ]);
    expect(await create("thank", { invoice: { id: invoice } })).toEqual([
      ...[400, "blockers", `blockers: must be a list, such as [${example}]`],
    ]);
    expect(await create("ship", [invoiced])).toEqual([
      ...[400, "blockers"],
      "blockers: the definition of ship names none; give a list, without names.",
    ]);
    const job = { service, type: "thank", payload: {} };
    const jobs = [{ ...job, blockers: named }, job, { ...job, blockers: [invoiced, invoiced] }];
    const { body: batch } = await api.post("/v1/jobs/batch", { jobs });
    expect(batch.entries).toMatchObject([
      { outcome: "accepted" },
      { outcome: "refused", error: { details: { field: "blockers" } } },
      { outcome: "refused", error: { details: { field: "blockers" } } },
    ]);
  });

  it("a job and a chain are continued with a job that waits", async () => {
    const { api, service, named, stored } = await openShop();
    for (const group of ["jobs", "chains"] as const) {
      const order = { service, type: "order", payload: {}, chain: true };
      const { body } = await api.post("/v1/jobs", order);
      const complete = (blockers?: unknown) => {
        const continueWith = { type: "thank", payload: {}, blockers };
        return api.post(`/v1/${group}/${body.id}/complete`, { continueWith });
      };
      expect(refusal(await complete([{ id: named[0]?.id }]))).toEqual([
        ...[400, "blockers"],
        "blockers: thank waits for invoice, delivery; give invoice by its name, too.",
      ]);
      const absent = await complete([named[0], { name: "invoice", id: "nobody" }]);
      expect([absent.status, absent.body.error.details]).toMatchObject([
        ...[422, { reason: "blocker_missing", blockerId: "nobody" }],
      ]);
      expect((await complete(named)).status).toBe(200);
      const chain = await servers.other.get(`/v1/chains/${body.id}`);
      expect(chain.body).toMatchObject({
        ...{ state: "blocked", count: 2, current: { type: "thank", blockers: stored } },
      });
    }
  });

  it("the end of a chain is waited for, through all of its jobs, at any server", async () => {
    const { api, service } = await openShop();
    const { other } = servers;
    const start = { service, type: "charge", payload: {} };
    const { body: chain } = await api.post("/v1/chains", start);
    const path = `/v1/chains/${chain.id}`;
    const early = await api.get(`${path}/wait?timeoutMs=0`);
    expect([early.body.done, early.body.chain.state]).toEqual([false, "pending"]);
    const waiting = other.get(`${path}/wait`);
    await api.post(`${path}/complete`, { continueWith: { type: "ship", payload: {} } });
    const between = await api.get(`${path}/wait?timeoutMs=1`);
    expect(between.body).toMatchObject({ done: false, chain: { current: { type: "ship" } } });
    await api.post(`${path}/complete`, { result: { parcel: 7 } });
    const { status, body } = await waiting;
    expect([status, body.done]).toEqual([200, true]);
    expect(body.chain).toMatchObject({ state: "completed", count: 2, output: { parcel: 7 } });
    expect((await api.get("/v1/chains/nobody/wait?timeoutMs=0")).status).toBe(404);
  });
});
