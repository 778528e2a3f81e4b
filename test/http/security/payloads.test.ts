// Payloads and results are for callers that may read, by whatever way they would come out.

import { FakeClock } from "millrace/testing";
import { describe, expect, it } from "vitest";
import type { Capability } from "#millrace/server/http/caller.js";
import { Tokens } from "#millrace/server/http/tokens.js";
import { Receiver } from "../../webhooks/receiver.js";
import { openServer } from "../api.js";

const card = "the card of anna";
const job = { service: "shop", type: "mail", payload: { card } };

async function scene() {
  const webhooks = { allowAddresses: ["127.0.0.0/8"] };
  const { api, engine } = await openServer({ url: "memory:", auth: "token", webhooks });
  const tokenFor = async (...capabilities: Capability[]) => {
    const wish = { name: "anna", capabilities, createdBy: "test" };
    return (await new Tokens(engine, new FakeClock()).create(wish)).secret;
  };
  const mutator = await tokenFor("admin.mutate");
  const owner = await tokenFor("admin.mutate", "admin.read");
  return { api, mutator, owner };
}

describe("a caller with admin.mutate alone", () => {
  it("sees no payload and no result in what its changes answer", async () => {
    const { api, mutator, owner } = await scene();
    const create = async (id: string, more: object = {}) => {
      await api.post("/v1/jobs", { ...job, id, ...more }, { token: owner });
      return `/v1/jobs/${id}`;
    };
    const [retried, completed, chain] = [await create("j1"), await create("j2"), "/v1/chains/c1"];
    await create("c1", { chain: true });
    await api.post(`${retried}/cancel`, {}, { token: owner });
    const everyDay = { ...job, name: "daily", everyMs: 86_400_000 };
    await api.post("/v1/schedules", everyDay, { token: owner });
    const changes = [
      ...[
        ["POST", `${retried}/retry`, {}],
        ["POST", `${completed}/complete`, { result: { card } }],
      ],
      ["POST", `${chain}/complete`, { result: { card } }],
      ["POST", "/v1/schedules/shop/daily/pause", undefined],
      ["DELETE", `${completed}?force=true`, undefined],
    ] as const;
    expect((await api.get(retried, { token: mutator })).status).toBe(403);
    for (const [method, path, body] of changes) {
      const answer = await api.call(method, path, { body, token: mutator });
      expect([path, answer.status]).toEqual([path, 200]);
      expect([path, JSON.stringify(answer.body).includes(card)]).toEqual([path, false]);
    }
    const seen = await api.call("DELETE", `${retried}?force=true`, { token: owner });
    expect(seen.body.payload).toEqual({ card });
  });

  it("makes, changes and sends no webhook that includes payloads", async () => {
    const { api, mutator, owner } = await scene();
    const receiver = await Receiver.open();
    const events = ["created"];
    const wish = { service: "shop", url: receiver.url, events, includePayloads: true };
    const refused = await api.post("/v1/webhooks", wish, { token: mutator });
    expect([refused.status, refused.body.error.details.capability]).toEqual([403, "admin.read"]);
    const { body } = await api.post("/v1/webhooks", wish, { token: owner });
    await api.post("/v1/jobs", job, { token: owner });
    const [{ event }] = (await receiver.count(1)) as [(typeof receiver.received)[0]];
    const path = `/v1/webhooks/shop/${body.webhook.id}`;
    const statuses = async (token: string) => {
      const url = "https://elsewhere.example/";
      const { body: plain } = await api.post(
        "/v1/webhooks",
        { ...wish, includePayloads: false },
        { token },
      );
      const own = `/v1/webhooks/shop/${plain.webhook.id}`;
      const asks = [
        ...[
          ["PATCH", own, { includePayloads: true }],
          ["PATCH", path, { url }],
        ],
        ...[
          ["POST", `${path}/test`],
          ["POST", `${path}/deliveries/${event.id}/redeliver`],
        ],
      ] as const;
      const seen: number[] = [];
      for (const [method, to, sent] of asks)
        seen.push((await api.call(method as string, to as string, { body: sent, token })).status);
      return seen;
    };
    expect(await statuses(mutator)).toEqual([403, 403, 403, 403]);
    const safe = { body: { includePayloads: false }, token: mutator };
    expect((await api.call("PATCH", path, safe)).status).toBe(200);
    expect((await api.post(`${path}/test`, {}, { token: mutator })).status).toBe(200);
  });
});
