// What the leading keeper makes of webhooks: in order, again and again, and not for ever.
import type { WebhookDelivery } from "millrace";
import { Webhook } from "standardwebhooks";
import { describe, expect, it } from "vitest";
import { auditPage } from "#millrace/client/audit.js";
import { defineService } from "#millrace/contract/define.js";
import { createKeeper } from "#millrace/keeper/keeper.js";
import { failingMaxMs } from "#millrace/keeper/webhook-runner.js";
import { Receiver, status } from "./receiver.js";
import { patient, Shop } from "./shop.js";

const hourMs = 60 * 60 * 1_000;

/** Lets hours pass, with time for real requests in between. */
async function passHours(shop: Shop, hours: number): Promise<void> {
  const stepMs = hours > 10 ? hourMs : hourMs / 60;
  for (let passedMs = 0; passedMs < hours * hourMs; passedMs += stepMs) {
    await shop.clock.advance(stepMs);
    await shop.settle();
  }
}

describe("a webhook", () => {
  it("tells of every change, with nothing of what the job was given", async () => {
    const shop = new Shop();
    const { receiver, secret } = await shop.subscribe();
    await shop.keeper();
    const id = await shop.workshop.create("mail", { to: "anna" });
    await shop.workshop.complete(id);
    const [first, second] = await shop.until(receiver.count(2));
    expect(receiver.eventsOf(id)).toEqual(["created", "completed"]);
    const [created] = await shop.workshop.events(id);
    expect(first?.event).toEqual({
      specversion: "1.0",
      id: created?.id,
      source: "/millrace/shop",
      type: "millrace.job.created",
      subject: id,
      time: new Date(created?.at ?? 0).toISOString(),
      datacontenttype: "application/json",
      traceparent: created?.context.traceparent,
      data: expect.objectContaining({ event: "created", jobId: id, state: "pending" }) as object,
    });
    expect(first?.body).not.toContain("anna");
    expect(second?.headers["webhook-id"]).toBe(second?.event.id);
    // The library checks the time by the machine's clock, and the test's is another.
    const signed = new Webhook(secret).sign(
      second?.event.id ?? "",
      new Date(Number(second?.headers["webhook-timestamp"]) * 1_000),
      second?.body ?? "",
    );
    expect(second?.headers["webhook-signature"]).toBe(signed);
  });

  it("tells of payloads and results if it is asked to", async () => {
    const shop = new Shop();
    const { receiver } = await shop.subscribe({ includePayloads: true });
    await shop.keeper();
    await shop.workshop.create("mail", { to: "anna" });
    const [first] = await shop.until(receiver.count(1));
    expect(first?.event.data.payload).toEqual({ to: "anna" });
  });

  it("tells of the types and events that it names, from its creation on", async () => {
    const shop = new Shop();
    const before = await shop.workshop.create("mail");
    const { receiver } = await shop.subscribe({
      types: ["mail"],
      events: ["completed", "cancelled"],
    });
    await shop.keeper();
    const mail = await shop.workshop.create("mail");
    const sms = await shop.workshop.create("sms");
    for (const id of [sms, before]) await shop.workshop.complete(id);
    await shop.workshop.cancel(mail);
    await shop.until(receiver.count(2));
    expect(receiver.received.map(({ event }) => [event.subject, event.data.event])).toEqual([
      [before, "completed"],
      [mail, "cancelled"],
    ]);
  });

  it("is sent no more once it is disabled or removed, and goes on from where it was", async () => {
    const shop = new Shop();
    const { receiver, id } = await shop.subscribe({ events: ["created"] });
    await shop.keeper();
    await shop.webhooks.update(id, { enabled: false }).orThrow();
    await shop.clock.advance(2_000);
    await shop.workshop.create("mail");
    await shop.clock.advance(5_000);
    await shop.settle();
    expect(receiver.received).toHaveLength(0);
    const again = await shop.webhooks.update(id, { enabled: true }).orThrow();
    expect(again.disabled).toBeUndefined();
    await shop.until(receiver.count(1));
    await shop.webhooks.delete(id).orThrow();
    await shop.clock.advance(2_000);
    await shop.workshop.create("mail");
    await shop.clock.advance(5_000);
    await shop.settle();
    expect(receiver.received).toHaveLength(1);
  });
});

describe("a receiver that fails", () => {
  it("is tried again after longer and longer, and the events of a job stay in order", async () => {
    const shop = new Shop();
    const { receiver, id: webhookId } = await shop.subscribe();
    await shop.keeper();
    const triedAt: number[] = [];
    receiver.answer = (_received, response) => {
      triedAt.push(shop.clock.now());
      response.writeHead(triedAt.length <= 3 ? 500 : 204).end();
    };
    const id = await shop.workshop.create("mail");
    await shop.workshop.complete(id);
    await shop.until(receiver.count(5));
    expect(receiver.eventsOf(id)).toEqual([
      "created",
      "created",
      "created",
      "created",
      "completed",
    ]);
    const waits = triedAt.slice(1, 4).map((at, index) => at - (triedAt[index] ?? 0));
    for (const [index, waitMs] of [1_000, 5_000, 30_000].entries()) {
      expect(waits[index]).toBeGreaterThanOrEqual(waitMs);
      expect(waits[index]).toBeLessThan(waitMs + 1_000);
    }
    await shop.clock.advance(2_000);
    const deliveries = await shop.webhooks.deliveries(webhookId).orThrow();
    expect(deliveries.map(({ event, tries, outcome }) => [event, tries, outcome])).toEqual([
      ["completed", 1, "delivered"],
      ["created", 4, "delivered"],
    ]);
  });

  it("for one job does not hold up the others, and that event is tried until it is taken", async () => {
    const shop = new Shop();
    const { receiver, id: webhookId } = await shop.subscribe({ events: ["created", "completed"] });
    await shop.keeper("k1", patient);
    const bad = await shop.workshop.create("mail");
    await shop.workshop.complete(bad);
    receiver.answer = (received, response) =>
      void response.writeHead(received.event.subject === bad ? 422 : 200).end();
    const good: string[] = [];
    for (let hour = 0; hour < 6; hour++) {
      good.push(await shop.workshop.create("mail"));
      await shop.until(receiver.count(receiver.received.length + 1));
      await passHours(shop, 1);
    }
    for (const id of good) expect(receiver.eventsOf(id)).toEqual(["created"]);
    const tries = receiver.eventsOf(bad).length;
    expect(tries).toBeGreaterThan(8);
    expect(receiver.eventsOf(bad)).toEqual(Array(tries).fill("created"));
    const ofBad = ({ jobId }: WebhookDelivery) => jobId === bad;
    const deliveries = await shop.webhooks.deliveries(webhookId).orThrow();
    expect(deliveries.find(ofBad)).toMatchObject({ outcome: "failed", status: 422, tries });
    receiver.answer = status(200);
    await passHours(shop, 2);
    expect(receiver.eventsOf(bad).slice(tries)).toEqual(["created", "completed"]);
  }, 60_000);

  it("for one job for days is disabled, whoever leads, and that event comes first if it is enabled again", async () => {
    const shop = new Shop();
    const { receiver, id } = await shop.subscribe({ events: ["created", "completed"] });
    const first = await shop.keeper("k1", patient);
    const bad = await shop.workshop.create("mail");
    receiver.answer = (received, response) =>
      void response.writeHead(received.event.subject === bad ? 422 : 200).end();
    await passHours(shop, 40);
    await first.stop();
    await shop.keeper("k2", patient);
    const good = await shop.workshop.create("mail");
    await passHours(shop, 20);
    expect(receiver.eventsOf(good)).toEqual(["created"]);
    expect(await shop.webhooks.get(id).orThrow()).toMatchObject({ enabled: true });
    await passHours(shop, failingMaxMs / hourMs - 58);
    expect(await shop.webhooks.get(id).orThrow()).toMatchObject({
      enabled: false,
      disabled: { reason: "failing" },
    });
    // Its receiver has days again, and not only one more try.
    await shop.webhooks.update(id, { enabled: true }).orThrow();
    await passHours(shop, 3);
    expect(await shop.webhooks.get(id).orThrow()).toMatchObject({ enabled: true });
    receiver.answer = status(200);
    await passHours(shop, 2);
    expect((await shop.webhooks.deliveries(id).orThrow())[0]).toMatchObject({
      jobId: bad,
      outcome: "delivered",
    });
  }, 60_000);

  it("for days is given up, which the webhook says, and nothing is lost if it is enabled again", async () => {
    const shop = new Shop();
    const { receiver, id } = await shop.subscribe({ events: ["created"] });
    await shop.keeper("k1", patient);
    receiver.answer = status(503);
    for (let job = 0; job < 20; job++) await shop.workshop.create("mail");
    await passHours(shop, failingMaxMs / hourMs + 3);
    const disabled = await shop.webhooks.get(id).orThrow();
    expect(disabled).toMatchObject({ enabled: false, disabled: { reason: "failing" } });
    expect(shop.workshop.logged("A webhook was disabled")).toHaveLength(1);
    const trail = await auditPage(shop.workshop.engine, { action: "webhook.disabled" });
    expect(trail.entries).toMatchObject([
      { actor: "keeper:k1", service: "shop", target: id, details: { reason: "failing" } },
    ]);
    // A receiver that is down is not stormed: one request at a time, an hour apart in the end.
    expect(receiver.received.length).toBeLessThan(100);
    receiver.answer = status(200);
    receiver.received.length = 0;
    await shop.webhooks.update(id, { enabled: true }).orThrow();
    await shop.until(receiver.count(20));
    expect(new Set(receiver.received.map(({ event }) => event.id)).size).toBe(20);
  }, 60_000);

  it("because it is gone is not tried again", async () => {
    const shop = new Shop();
    const { receiver, id } = await shop.subscribe();
    await shop.keeper();
    receiver.answer = status(410);
    await shop.workshop.create("mail");
    await shop.until(receiver.count(1));
    await shop.clock.advance(10_000);
    expect(await shop.webhooks.get(id).orThrow()).toMatchObject({ disabled: { reason: "gone" } });
    expect(receiver.received).toHaveLength(1);
  });

  it("or does not answer holds up no other receiver", async () => {
    const shop = new Shop();
    const slow = await shop.subscribe({ events: ["created"] });
    slow.receiver.answer = () => {};
    const { receiver } = await shop.subscribe({ events: ["created"] });
    await shop.keeper();
    for (let job = 0; job < 50; job++) await shop.workshop.create("mail");
    await receiver.count(50);
    // No time has passed, and the slow one has as many requests under way as it may have.
    await slow.receiver.count(8);
    await shop.settle();
    expect(slow.receiver.received).toHaveLength(8);
  });
});

describe("when the leader changes", () => {
  it("the next goes on where the one before has stopped", async () => {
    const shop = new Shop();
    const { receiver } = await shop.subscribe({ events: ["created"] });
    const first = await shop.keeper("k1");
    await shop.workshop.create("mail");
    await shop.until(receiver.count(1));
    await first.stop();
    await shop.workshop.create("mail");
    await shop.keeper("k2");
    await shop.workshop.create("mail");
    await shop.until(receiver.count(3));
    await shop.clock.advance(5_000);
    await shop.settle();
    expect(receiver.received).toHaveLength(3);
  });

  it("what was not written down is sent again, and nothing is left out", async () => {
    const shop = new Shop();
    const { receiver } = await shop.subscribe({ events: ["created"] });
    await shop.keeper("k1");
    await shop.clock.advance(1_000);
    // From here on the first keeper cannot write, as one that has died.
    shop.workshop.trouble.swap = "refuse";
    const ids = [await shop.workshop.create("mail"), await shop.workshop.create("mail")];
    await receiver.count(2);
    await shop.clock.advance(6_000);
    shop.workshop.trouble.swap = "none";
    await shop.keeper("k2");
    ids.push(await shop.workshop.create("mail"));
    await shop.until(receiver.count(3));
    await shop.clock.advance(10_000);
    await shop.settle();
    for (const id of ids) expect(receiver.eventsOf(id).length).toBeGreaterThanOrEqual(1);
  });
});

describe("the log", () => {
  it("of jobs that are not kept stays until it was read", async () => {
    const shop = new Shop();
    const { receiver } = await shop.subscribe({ types: ["ping"] });
    receiver.answer = status(500);
    await shop.keeper();
    const worker = await shop.workshop.start({ ping: async () => {} });
    const id = await shop.workshop.create("ping");
    await shop.until(receiver.count(2));
    await shop.clock.advance(10 * 60_000);
    expect(await shop.workshop.names(id)).toContain("completed");
    receiver.answer = status(200);
    await shop.until(
      (async () => {
        while (receiver.eventsOf(id).at(-1) !== "completed")
          await receiver.count(receiver.received.length + 1);
      })(),
    );
    await shop.clock.advance(2 * 60_000);
    expect(await shop.workshop.exists(id)).toBe(false);
    await worker.stop();
  });

  it("of jobs that are not kept stays from the moment when a webhook was made", async () => {
    const shop = new Shop();
    const worker = await shop.workshop.start({ ping: async () => {} });
    const before = await shop.workshop.create("ping");
    await shop.workshop.turn();
    expect(await shop.workshop.exists(before)).toBe(false);
    // No time has passed since the worker has seen that there are no webhooks.
    const { receiver } = await shop.subscribe({ types: ["ping"] });
    const after = await shop.workshop.create("ping");
    await shop.workshop.turn();
    expect(await shop.workshop.names(after)).toContain("completed");
    await shop.keeper();
    await shop.until(receiver.count(3));
    expect(receiver.eventsOf(after)).toEqual(["created", "started", "completed"]);
    await worker.stop();
  });

  it("of jobs that are not kept goes at once where nobody reads it", async () => {
    const shop = new Shop();
    const worker = await shop.workshop.start({ ping: async () => {} });
    const id = await shop.workshop.create("ping");
    await shop.workshop.turn();
    await shop.clock.advance(10);
    expect(await shop.workshop.exists(id)).toBe(false);
    await worker.stop();
  });
});

describe("the trace of a removed job", () => {
  /** The keeper of another service on the same store does everything that it does now and then. */
  const pruneElsewhere = (shop: Shop) => {
    const runtime = { ...shop.workshop.runtime("elsewhere"), service: "other" };
    const contract = defineService("other", {});
    return createKeeper({ runtime, contract, tombstoneMs: 60_000 }).tick();
  };
  const namesInFeed = async ({ workshop }: Shop) => {
    const names = [];
    const { signal } = new AbortController();
    for await (const { event } of workshop.engine.tail(null, signal, "stored"))
      names.push(event.name);
    return names;
  };

  it("stays until the webhooks of all services have read it", async () => {
    const shop = new Shop();
    const { id: webhook } = await shop.subscribe();
    const id = await shop.workshop.create("mail");
    await shop.workshop.cancel(id);
    await shop.workshop.remove(id);
    await shop.workshop.create("mail");
    await shop.clock.advance(hourMs);
    await pruneElsewhere(shop);
    expect(await namesInFeed(shop)).toEqual(["deleted", "created"]);
    await shop.webhooks.update(webhook, { enabled: false }).orThrow();
    await pruneElsewhere(shop);
    expect(await namesInFeed(shop)).toEqual(["created"]);
  });

  it("is not kept for a webhook that has read it, and nothing since", async () => {
    const shop = new Shop();
    const { receiver } = await shop.subscribe({ events: ["created"] });
    const keeper = await shop.keeper("k1", { pruneMs: 24 * hourMs });
    const id = await shop.workshop.create("mail");
    await shop.until(receiver.count(1));
    await shop.workshop.cancel(id);
    await shop.workshop.remove(id);
    await passHours(shop, 0.2);
    await keeper.stop();
    await pruneElsewhere(shop);
    expect(await namesInFeed(shop)).toEqual([]);
  });
});

it("one webhook more than are allowed is refused", async () => {
  const shop = new Shop();
  const receiver = await Receiver.open();
  for (let count = 0; count < 20; count++) await shop.subscribe({}, receiver);
  expect(await shop.webhooks.create({ url: receiver.url })).toMatchObject({
    error: { _tag: "InvalidOption" },
  });
});
