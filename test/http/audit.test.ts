// The audit trail over HTTP, on every store: each change of a setting leaves one event with its actor.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { defineJob, defineService } from "millrace";
import { FakeClock } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { auditRetentionDefaultMs } from "#millrace/client/audit.js";
import { manifest as manifestOf } from "#millrace/contract/manifest.js";
import { routes } from "#millrace/server/http/routes/all.js";
import { Tokens } from "#millrace/server/http/tokens.js";
import {
  type Answer,
  type Api,
  type ApiStore,
  apiStores,
  freshPlace,
  freshService,
  openServer,
} from "./api.js";
import { operationOf } from "./documented.js";

const memory: ApiStore = {
  name: "memory",
  place: async () => ({ url: "memory:", remove: async () => {} }),
};

/** A receiver of webhooks that takes everything. */
async function openReceiver(): Promise<string> {
  const server = createServer((request, response) =>
    request.resume().on("end", () => response.end()),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook?key=hidden`;
}

/** A server that asks for tokens, and anna, who may do everything but work. */
async function scene(store: ApiStore) {
  const webhooks = { allowAddresses: ["127.0.0.0/8"] };
  const url = await freshPlace(store);
  const { api, engine } = await openServer({ url, auth: "token", webhooks });
  const capabilities = ["admin.read", "admin.mutate"] as const;
  const wish = { name: "anna", capabilities, createdBy: "test" };
  const { secret: token } = await new Tokens(engine, new FakeClock()).create(wish);
  return { api, token };
}

/** Asks as anna, remembers which operations were asked for, and shows what they left in the trail. */
class Trail {
  readonly asked = new Set<string>();
  readonly #api: Api;
  readonly #token: string;
  #seen = 0;

  constructor(api: Api, token: string) {
    this.#api = api;
    this.#token = token;
  }

  async ask(method: string, path: string, body?: object): Promise<Answer["body"]> {
    const answer = await this.#api.call(method, path, {
      ...(body && { body }),
      token: this.#token,
    });
    expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300);
    return answer.body;
  }

  /** Makes a change, which must leave exactly one event more, with this in it. */
  async change(method: string, path: string, body: object | undefined, left: object) {
    const { pathname } = new URL(path, this.#api.url);
    this.asked.add(operationOf(method, pathname)?.operation.operationId ?? "");
    const requestId = `r-${this.#seen}`;
    const headers = { "X-Request-Id": requestId };
    const ask = { ...(body && { body }), token: this.#token, headers };
    const answer = await this.#api.call(method, path, ask);
    expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300);
    const { entries } = await this.ask("GET", "/v1/audit?limit=100");
    expect(entries).toHaveLength(this.#seen + 1);
    const ofRequest = entries.filter(
      (event: { requestId?: string }) => event.requestId === requestId,
    );
    expect(ofRequest).toMatchObject([{ actor: "admin:anna", ...left }]);
    this.#seen++;
    return answer.body;
  }
}

describe.each([memory, ...apiStores])("the audit trail on $name", (store) => {
  it("has one event of every change, with its actor and without secrets", async () => {
    const { api, token } = await scene(store);
    const trail = new Trail(api, token);
    const service = freshService();

    const queue = `/v1/queues/${service}/slow`;
    const ofQueue = { service, target: "slow" };
    const made = { service, queue: "slow", maxActive: 2 };
    await trail.change("POST", "/v1/queues", made, {
      ...{ action: "queue.create", ...ofQueue, details: { paused: false, maxActive: 2 } },
    });
    await trail.change("PATCH", queue, { maxActive: null }, { action: "queue.change", ...ofQueue });
    await trail.change("POST", `${queue}/pause`, {}, { action: "queue.pause", ...ofQueue });
    await trail.change("POST", `${queue}/resume`, {}, { action: "queue.resume", ...ofQueue });
    await trail.ask("POST", "/v1/jobs", { service, type: "mail", queue: "slow", payload: {} });
    await trail.ask("POST", `${queue}/purge`, { preview: true });
    const purged = { action: "queue.purge", ...ofQueue, details: { removed: 1 } };
    await trail.change("POST", `${queue}/purge`, {}, purged);
    await trail.change("DELETE", queue, undefined, { action: "queue.delete", ...ofQueue });

    const schedule = `/v1/schedules/${service}/nightly`;
    const ofSchedule = { service, target: "nightly" };
    const payload = { code: "hidden" };
    const nightly = { service, name: "nightly", type: "report", payload, cron: "30 2 * * *" };
    await trail.change("POST", "/v1/schedules", nightly, {
      ...{ action: "schedule.create", ...ofSchedule },
    });
    for (const what of ["pause", "resume"])
      await trail.change(
        "POST",
        `${schedule}/${what}`,
        {},
        {
          ...{ action: `schedule.${what}`, ...ofSchedule },
        },
      );
    await trail.change(
      "POST",
      `${schedule}/run`,
      {},
      {
        ...{ action: "schedule.run", ...ofSchedule, details: { jobId: expect.any(String) } },
      },
    );
    await trail.change("DELETE", schedule, undefined, { action: "schedule.delete", ...ofSchedule });

    const contract = defineService(service, { mail: defineJob({ payload: z.object({}) }) });
    const manifest = manifestOf(contract);
    await trail.change(
      "POST",
      `/v1/contracts/${service}/accept`,
      { manifest },
      {
        ...{ action: "contract.accept", service, target: service },
        details: { standing: "first", signature: manifest.signature },
      },
    );

    const hook = { service, url: await openReceiver(), events: ["created"] };
    const { webhook, secret } = await trail.change("POST", "/v1/webhooks", hook, {
      ...{ action: "webhook.create", service },
    });
    const path = `/v1/webhooks/${service}/${webhook.id}`;
    const ofHook = { service, target: webhook.id };
    const { id: jobId } = await trail.ask("POST", "/v1/jobs", {
      service,
      type: "mail",
      payload: {},
    });
    const deliveries = async () => (await trail.ask("GET", `${path}/deliveries`)).entries;
    // Polled with pauses, because who asks without any meets the limit of requests.
    await expect.poll(deliveries, { timeout: 20_000, interval: 100 }).toMatchObject([{ jobId }]);
    const [{ eventId }] = await deliveries();
    const again = `${path}/deliveries/${eventId}/redeliver`;
    const sent = { details: { delivered: true } };
    await trail.change("POST", again, {}, { action: "webhook.redeliver", ...ofHook, ...sent });
    await trail.change("POST", `${path}/test`, {}, { action: "webhook.test", ...ofHook, ...sent });
    await trail.change(
      "PATCH",
      path,
      { description: "x", enabled: true },
      {
        ...{ action: "webhook.update", ...ofHook, details: { fields: ["description", "enabled"] } },
      },
    );
    await trail.change(
      "PATCH",
      path,
      { enabled: false },
      {
        ...{ action: "webhook.disabled", ...ofHook, details: { reason: "caller" } },
      },
    );
    await trail.change("PATCH", path, { enabled: true }, { action: "webhook.enabled", ...ofHook });
    const rotated = await trail.change(
      "POST",
      `${path}/rotate-secret`,
      {},
      {
        ...{ action: "webhook.rotateSecret", ...ofHook },
      },
    );
    await trail.change("DELETE", path, undefined, { action: "webhook.delete", ...ofHook });

    const wish = { name: "deploy", capabilities: ["admin.read"] };
    const given = await trail.change("POST", "/v1/tokens", wish, {
      ...{ action: "token.create", details: wish },
    });
    await trail.change("DELETE", `/v1/tokens/${given.id}`, undefined, {
      ...{ action: "token.revoke", target: given.id },
    });

    const text = JSON.stringify((await trail.ask("GET", "/v1/audit?limit=100")).entries);
    for (const hidden of ["hidden", secret, rotated.secret, given.secret])
      expect(text).not.toContain(hidden);
    // Keys are released in the test of operating, which has one that is blocked.
    const groups = ["Queues", "Schedules", "Webhooks", "Contracts", "Tokens"];
    const changing = routes.filter(
      ({ needs, group }) => needs === "admin.mutate" && groups.includes(group),
    );
    const operations = changing
      .filter(({ method }) => method !== "get")
      .map((each) => each.operation);
    expect([...trail.asked].sort()).toEqual(operations.sort());
  }, 60_000);

  it("has nothing of a change that was refused", async () => {
    const { api, token } = await scene(store);
    const service = freshService();
    const refused = [
      await api.delete(`/v1/queues/${service}/none`, { token }),
      await api.post(`/v1/schedules/${service}/none/pause`, {}, { token }),
      await api.delete(`/v1/webhooks/${service}/0123456789`, { token }),
      await api.delete(`/v1/tokens/${"0".repeat(16)}`, { token }),
    ];
    expect(refused.map(({ status }) => status)).toEqual([404, 404, 404, 404]);
    expect((await api.get("/v1/audit", { token })).body).toEqual({ entries: [] });
  });

  it("is read newest first, over all services, page after page and through filters", async () => {
    const url = await freshPlace(store);
    const { api, engine } = await openServer({ url, keeper: false });
    const services = [freshService(), freshService()];
    const millisecond = () => Math.floor(engine.now());
    const times: number[] = [];
    for (let index = 0; index < 6; index++) {
      times.push(millisecond());
      const what = index % 3 === 0 ? "pause" : "resume";
      await api.post(`/v1/queues/${services[index % 2]}/q${index}/${what}`);
      // Each change has a time of its own, by the clock of the store.
      const changedBy = millisecond();
      while (millisecond() <= changedBy) await api.get("/healthz");
    }
    const targets = async (query: string) =>
      (await api.get(`/v1/audit?${query}`)).body.entries.map(
        ({ target }: { readonly target: string }) => target,
      );
    expect(await targets("")).toEqual(["q5", "q4", "q3", "q2", "q1", "q0"]);
    expect(await targets(`service=${services[1]}`)).toEqual(["q5", "q3", "q1"]);
    expect(await targets("action=queue.pause")).toEqual(["q3", "q0"]);
    expect(await targets("actor=admin:local&target=q4")).toEqual(["q4"]);
    expect(await targets("actor=admin:anna")).toEqual([]);
    const at = (index: number) => new Date(times[index] ?? 0).toISOString();
    expect(await targets(`since=${at(4)}`)).toEqual(["q5", "q4"]);
    expect(await targets(`until=${at(2)}`)).toEqual(["q1", "q0"]);
    expect(await targets(`since=${at(1)}&until=${at(3)}`)).toEqual(["q2", "q1"]);
    for (const filter of ["limit=2", "limit=2&action=queue.resume", `limit=1&until=${at(5)}`]) {
      const paged: string[] = [];
      let next: string | undefined = `/v1/audit?${filter}`;
      while (next !== undefined) {
        const { headers, body }: Answer = await api.get(next);
        paged.push(...body.entries.map(({ target }: { readonly target: string }) => target));
        next = headers.get("link")?.match(/^<(.+)>; rel="next"$/)?.[1];
      }
      expect(paged).toEqual(await targets(filter.replace(/limit=\d/, "limit=100")));
    }
    const wrong = ["action=other", "cursor=7", "limit=0", "limit=101", "since=now", "offset=1"];
    for (const query of wrong) expect((await api.get(`/v1/audit?${query}`)).status).toBe(400);
  });
});

describe("an audit event", () => {
  it.for([
    { says: "90 days", options: {}, keptMs: auditRetentionDefaultMs },
    { says: "as long as was said", options: { auditRetentionMs: 5_000 }, keptMs: 5_000 },
  ])("is kept for $says", async ({ options, keptMs }) => {
    const clock = new FakeClock();
    const { api } = await openServer({ url: "memory:", clock, keeper: false, ...options });
    await api.post("/v1/queues/shop/mail/pause");
    await clock.leap(keptMs - 1);
    expect((await api.get("/v1/audit")).body.entries).toHaveLength(1);
    await clock.leap(1);
    expect((await api.get("/v1/audit")).body.entries).toEqual([]);
  });
});
