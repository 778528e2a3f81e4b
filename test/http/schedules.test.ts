// Schedules and webhooks over HTTP, on every store, fired and delivered by the server itself.
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { Webhook } from "standardwebhooks";
import { describe, expect, it, onTestFinished } from "vitest";
import { apiStores, freshPlace, freshService, openServer, sharedServers } from "./api.js";

describe.each(apiStores)("schedules on $name", (store) => {
  const servers = sharedServers(store);

  it("are made, shown, paused, resumed, run and removed", async () => {
    const { api, other } = servers;
    const service = freshService();
    const path = `/v1/schedules/${service}/nightly`;
    const asked = { service, name: "nightly", type: "report", payload: { kind: "sales" } };
    const made = await api.post("/v1/schedules", { ...asked, cron: "30 2 * * *" });
    expect([made.status, made.headers.get("location")]).toEqual([201, path]);
    expect(made.body).toMatchObject({ timeZone: "UTC", origin: "caller", enabled: true });
    const twice = await api.post("/v1/schedules", { ...asked, everyMs: 1_000 });
    expect([twice.status, twice.body.error.details.reason]).toEqual([409, "schedule_exists"]);
    for (const wrong of [{ cron: "61 * * * *" }, { cron: "0 4 * * *", timeZone: "Mars" }, {}]) {
      const refused = await api.post("/v1/schedules", { ...asked, name: "odd", ...wrong });
      expect([refused.status, refused.body.error.code]).toEqual([400, "invalid_argument"]);
      expect(Object.keys({ cron: "", ...wrong })).toContain(refused.body.error.details.field);
    }
    expect((await other.get(`/v1/schedules/${service}`)).body.entries).toMatchObject([
      { name: "nightly", payload: { kind: "sales" } },
    ]);
    const { body: next } = await api.get(`${path}/next?count=2`);
    expect(next.entries.map((at: string) => at.slice(10))).toEqual(Array(2).fill("T02:30:00.000Z"));
    expect((await api.post(`${path}/pause`)).body).toMatchObject({ enabled: false, nextAt: null });
    expect((await other.post(`${path}/resume`)).body.enabled).toBe(true);
    const ran = await api.post(`${path}/run`);
    expect(ran.status).toBe(201);
    expect((await api.get(`/v1/jobs/${ran.body.id}`)).body.tags).toContain("schedule:nightly");
    expect((await api.delete(path)).status).toBe(204);
    for (const gone of [await api.get(path), await api.post(`${path}/run`)])
      expect([gone.status, gone.body.error.details.reason]).toEqual([404, "schedule_not_found"]);
  });

  it("fire without any other process", async () => {
    const { api, other } = servers;
    const service = freshService();
    const asked = { service, name: "tick", type: "tick", payload: null, everyMs: 500 };
    expect((await api.post("/v1/schedules", asked)).status).toBe(201);
    const { job } = await other.claimOne(service, "tick");
    expect(job).toMatchObject({ payload: null, tags: ["schedule:tick"] });
    await api.delete(`/v1/schedules/${service}/tick`);
  });
});

/** A receiver of webhooks, and what it has received. */
async function openReceiver() {
  const received: { readonly headers: IncomingMessage["headers"]; readonly text: string }[] = [];
  let tell = () => {};
  const server = createServer(async (request, response) => {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part);
    received.push({ headers: request.headers, text: Buffer.concat(parts).toString() });
    response.end();
    tell();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const next = async () => {
    while (received.length === 0)
      await new Promise<void>((resolve) => {
        tell = resolve;
      });
    return received.shift();
  };
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/hook`, next };
}

describe.each(apiStores)("webhooks on $name", (store) => {
  it("are told of events, signed, and remembered", async () => {
    const webhooks = { allowAddresses: ["127.0.0.0/8"] };
    const { api } = await openServer({ url: await freshPlace(store), webhooks });
    const receiver = await openReceiver();
    const service = freshService();
    const made = await api.post("/v1/webhooks", {
      ...{ service, url: receiver.url, events: ["created"] },
    });
    expect(made.status).toBe(201);
    const { webhook, secret } = made.body;
    const path = `/v1/webhooks/${service}/${webhook.id}`;
    expect(JSON.stringify((await api.get(`/v1/webhooks/${service}`)).body)).not.toContain(secret);
    const id = await api.create(service, "mail");
    const { headers, text } = (await receiver.next()) ?? { headers: {}, text: "" };
    const told = new Webhook(secret).verify(text, headers as Record<string, string>);
    expect(told).toMatchObject({ specversion: "1.0", type: "millrace.job.created", subject: id });
    expect((await api.post(`${path}/test`)).body).toMatchObject({ delivered: true, status: 200 });
    const tested = JSON.parse((await receiver.next())?.text ?? "");
    expect(tested.type).toBe("millrace.webhook.test");
    const changed = await api.call("PATCH", path, { body: { enabled: false } });
    expect(changed.body).toMatchObject({ enabled: false, disabled: { reason: "caller" } });
    await api.call("PATCH", path, { body: { types: ["post"] } });
    expect((await api.get(path)).body.types).toEqual(["post"]);
    await api.call("PATCH", path, { body: { types: null } });
    expect((await api.get(path)).body).not.toHaveProperty("types");
    const rotated = await api.post(`${path}/rotate-secret`);
    expect(rotated.body.secret).not.toBe(secret);
    const lost = await api.post(`${path}/deliveries/none-such/redeliver`);
    expect([lost.status, lost.body.error.details.reason]).toEqual([404, "delivery_not_found"]);
    expect((await api.delete(path)).status).toBe(204);
    expect((await api.get(path)).status).toBe(404);
  });

  it("are refused where they lead inside", async () => {
    const { api } = await openServer({ url: await freshPlace(store), keeper: false });
    const refused = await api.post("/v1/webhooks", {
      ...{ service: freshService(), url: "http://169.254.169.254/latest" },
    });
    expect([refused.status, refused.body.error.details.field]).toEqual([400, "url"]);
    expect(refused.body.error.message).toContain("--webhook-addresses 169.254.169.254/32");
  });
});
