// The process that delivers is killed while requests are under way: the next one goes on, loses nothing, and keeps the order.
import { describe, expect, it, onTestFinished } from "vitest";
import { startChild } from "../crash/children.js";
import { everyStore } from "../support/every-store.js";
import { openShop } from "./killed-shop.js";
import { Receiver, status } from "./receiver.js";

const events = ["created", "started", "completed"] as const;

describe.for(everyStore.filter(({ name }) => name !== "memory"))("on $name", (store) => {
  it("every event arrives, in order per job", async () => {
    const url = await store.freshUrl();
    const service = await openShop(url);
    onTestFinished(() => service.stop());
    const receiver = await Receiver.open();
    const { webhook } = await service.webhooks.create({ url: receiver.url, events }).orThrow();
    // Some are taken, then one is left without an answer, and its sender dies.
    const answered = 10;
    receiver.answer = (received, response, request) => {
      if (receiver.received.length <= answered) status(204)(received, response, request);
    };
    const killed = startChild("../webhooks/killed-child.ts", [url]);
    await killed.said("started");
    const ids: string[] = [];
    for (let job = 0; job < 10; job++) ids.push((await service.jobs.mail.create({}).orThrow()).id);
    await receiver.count(answered + 1);
    killed.child.kill("SIGKILL");
    await killed.ended;
    const before = receiver.received.length;
    receiver.answer = status(204);

    await service.start();
    for (let job = 0; job < 5; job++) ids.push((await service.jobs.mail.create({}).orThrow()).id);
    const missing = () => ids.filter((id) => !receiver.eventsOf(id).includes("completed"));
    while (missing().length > 0) await receiver.count(receiver.received.length + 1);
    for (const id of ids) {
      const told = receiver.eventsOf(id);
      // What was under way when the process was killed, or not yet written down, comes again from its first event on.
      const firsts = events.map((event) => told.indexOf(event));
      expect(firsts).not.toContain(-1);
      expect(firsts).toEqual(firsts.toSorted((a, b) => a - b));
    }
    const unanswered = receiver.received[answered];
    const again = receiver.received.slice(before).map(({ event }) => event.id);
    expect(again).toContain(unanswered?.event.id);
    expect((await service.webhooks.get(webhook.id).orThrow()).enabled).toBe(true);
  }, 60_000);
});
