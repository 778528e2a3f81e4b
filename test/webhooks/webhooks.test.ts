// Webhooks as users have them: made, looked at, changed, tried out and removed; and on every engine to the last event.
import { connect, defineJob, defineService, eventNames } from "millrace";
import { Webhook } from "standardwebhooks";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshUrl } from "../support/fresh-url.js";
import { freshStoreUrl } from "../support/nats.js";
import { freshSchema } from "../support/postgres.js";
import { type Received, Receiver, status } from "./receiver.js";
import { Shop } from "./shop.js";

describe("a webhook", () => {
  it("is listed, read, changed and removed, and keeps its secret to itself", async () => {
    const { webhooks, clock } = new Shop();
    const { webhook, secret } = await webhooks
      .create({ url: "https://example.com/hooks", types: ["mail"], description: "the ledger" })
      .orThrow();
    expect(webhook).toEqual({
      service: "shop",
      id: webhook.id,
      url: "https://example.com/hooks",
      description: "the ledger",
      types: ["mail"],
      events: expect.arrayContaining(["created", "completed", "dead"]) as string[],
      includePayloads: false,
      enabled: true,
      createdAt: clock.now(),
    });
    expect(webhook.events).not.toContain("progress");
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(await webhooks.list().orThrow()).toEqual([webhook]);
    expect(JSON.stringify(await webhooks.get(webhook.id).orThrow())).not.toContain("whsec_");
    const changed = await webhooks
      .update(webhook.id, { events: ["dead"], enabled: false })
      .orThrow();
    expect(changed).toMatchObject({
      events: ["dead"],
      types: ["mail"],
      disabled: { reason: "caller", at: clock.now() },
    });
    const ofAll = await webhooks.update(webhook.id, { types: null }).orThrow();
    expect(ofAll).not.toHaveProperty("types");
    expect(ofAll).toMatchObject({ events: ["dead"], enabled: false, description: "the ledger" });
    expect(await webhooks.get(webhook.id).orThrow()).toEqual(ofAll);
    await webhooks.delete(webhook.id).orThrow();
    expect(await webhooks.list().orThrow()).toEqual([]);
    for (const call of ["get", "delete", "rotateSecret", "deliveries", "test"] as const)
      expect(await webhooks[call](webhook.id)).toMatchObject({
        error: { _tag: "WebhookNotFound", id: webhook.id },
      });
  });

  it.each([
    ["url", {}],
    ["url", { url: "no url" }],
    ["url", { url: "ftp://example.com/" }],
    ["url", { url: "https://user:word@example.com/" }],
    ["url", { url: "http://169.254.169.254/" }],
    ["url", { url: "http://[::1]:8080/" }],
    ["types", { types: [] }],
    ["types", { types: ["a b"] }],
    ["events", { events: ["finished"] }],
    ["events", { events: ["ready"] }],
    ["events", { events: [] }],
    ["includePayloads", { includePayloads: 1 }],
    ["enabled", { enabled: "yes" }],
    ["secret", { secret: "whsec_short" }],
    ["description", { description: "x".repeat(501) }],
    ["callback", { callback: "https://example.com/" }],
  ])("is refused with the field that is wrong: %s", async (field, wrong) => {
    const { webhooks } = new Shop();
    const url = field === "url" ? {} : { url: "https://example.com/" };
    expect(await webhooks.create({ ...url, ...wrong } as never)).toMatchObject({
      error: { _tag: "InvalidOption", field },
    });
    expect(eventNames).not.toContain("ready");
  });

  it("is signed with its old secret, too, until the overlap is over", async () => {
    const shop = new Shop();
    const { receiver, id, secret } = await shop.subscribe();
    expect(await shop.webhooks.rotateSecret(id, null as never)).toMatchObject({
      error: { _tag: "InvalidOption", field: "options" },
    });
    const rotated = await shop.webhooks.rotateSecret(id, { overlapMs: 60_000 }).orThrow();
    expect(rotated.secret).not.toBe(secret);
    expect(rotated.webhook.previousSecretUntil).toBe(shop.clock.now() + 60_000);
    const signers = async () => {
      await shop.webhooks.test(id).orThrow();
      const { headers, body, event } = receiver.received.at(-1) as Received;
      const at = new Date(Number(headers["webhook-timestamp"]) * 1_000);
      const signatures = headers["webhook-signature"]?.split(" ") ?? [];
      return [rotated.secret, secret].map((each) =>
        signatures.includes(new Webhook(each).sign(event.id, at, body)),
      );
    };
    expect(await signers()).toEqual([true, true]);
    await shop.clock.advance(60_000);
    expect(await signers()).toEqual([true, false]);
    expect((await shop.webhooks.get(id).orThrow()).previousSecretUntil).toBeUndefined();
  });

  it("is tried out with an event of its own", async () => {
    const shop = new Shop();
    const { receiver, id } = await shop.subscribe();
    expect(await shop.webhooks.test(id).orThrow()).toMatchObject({ delivered: true, status: 204 });
    expect(receiver.received[0]?.event).toMatchObject({
      type: "millrace.webhook.test",
      data: { service: "shop", webhookId: id },
    });
    receiver.answer = status(500);
    expect(await shop.webhooks.test(id).orThrow()).toMatchObject({ delivered: false, status: 500 });
  });

  it("is sent an event of its history again, as long as the job is there", async () => {
    const shop = new Shop();
    const { receiver, id } = await shop.subscribe({ events: ["created"] });
    const keeper = await shop.keeper();
    const job = await shop.workshop.create("mail");
    await shop.until(receiver.count(1));
    await keeper.stop();
    const [delivery] = await shop.webhooks.deliveries(id).orThrow();
    expect(delivery).toMatchObject({
      jobId: job,
      event: "created",
      outcome: "delivered",
      status: 204,
    });
    const eventId = delivery?.eventId ?? "";
    expect((await shop.webhooks.redeliver(id, eventId).orThrow()).delivered).toBe(true);
    expect(receiver.received[1]?.body).toBe(receiver.received[0]?.body);
    expect(receiver.received[1]?.headers["webhook-id"]).toBe(eventId);
    await shop.workshop.remove(job);
    for (const unknown of [eventId, "nothing"])
      expect(await shop.webhooks.redeliver(id, unknown)).toMatchObject({
        error: { _tag: "DeliveryNotFound", eventId: unknown },
      });
  });
});

it("networks that webhooks may be sent to are checked by connect", async () => {
  const contract = defineService("shop", { mail: defineJob({ payload: z.object({}) }) });
  const webhooks = { allowAddresses: ["10.0.0.0/33"] };
  await expect(connect(contract, { url: "memory:", webhooks })).rejects.toMatchObject({
    field: "webhooks",
  });
});

const engines: { readonly [name: string]: () => Promise<string> } = {
  sqlite: freshUrl,
  postgres: async () => (await freshSchema()).url,
  nats: freshStoreUrl,
};

describe.each(Object.keys(engines))("on %s", (name) => {
  it("every event arrives, in order per job, also when the leader changes", async () => {
    const contract = defineService("shop", { mail: defineJob({ payload: z.object({}) }) });
    const url = await (engines[name] as () => Promise<string>)();
    const open = async () => {
      const keeper = { ttlMs: 2_000, renewMs: 500, tickMs: 100 };
      const webhooks = { allowAddresses: ["127.0.0.0/8"] };
      const service = await connect(contract, { url, keeper, webhooks });
      onTestFinished(() => service.stop());
      service.jobs.mail.handle(async () => {});
      return service;
    };
    const [first, second] = [await open(), await open()];
    const receiver = await Receiver.open();
    let failures = 0;
    receiver.answer = (_received, response) => {
      failures += 1;
      response.writeHead(failures % 10 === 0 ? 500 : 204).end();
    };
    const events = ["created", "started", "completed"] as const;
    await first.webhooks.create({ url: receiver.url, events }).orThrow();
    await first.start();
    await second.start();
    const ids: string[] = [];
    for (let job = 0; job < 10; job++) ids.push((await second.jobs.mail.create({}).orThrow()).id);
    await receiver.count(5);
    await first.stop();
    for (let job = 0; job < 10; job++) ids.push((await second.jobs.mail.create({}).orThrow()).id);
    const isComplete = (id: string) => receiver.eventsOf(id).includes("completed");
    while (!ids.every(isComplete)) await receiver.count(receiver.received.length + 1);
    for (const id of ids) {
      // What was under way when the leader changed comes twice, from its first event on.
      const told = receiver.eventsOf(id);
      const firsts = events.map((event) => told.indexOf(event));
      expect(firsts).toEqual(firsts.toSorted((a, b) => a - b));
      expect(firsts).not.toContain(-1);
    }
  }, 60_000);
});
