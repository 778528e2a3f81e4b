// Fetches from a consumer that does not answer: it is waited for once, not by every claim, and what it gives out when nobody
// waits any more is given back.
import { createInbox, type Msg } from "@nats-io/transport-node";
import { MovableClock } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import { Fetches } from "#millrace/engine/nats/fetching.js";
import { Receiver } from "#millrace/engine/nats/receiving.js";
import { Requests } from "#millrace/engine/nats/requests.js";
import { Sender } from "#millrace/engine/nats/sending.js";
import { freshPrefix, natsConnection } from "../support/nats.js";

/** How long a consumer is waited for, and one that did not answer the last time. */
const longMs = 5_000;
const shortMs = 250;

/** A process that fetches, and a consumer that the test answers for. */
async function simulation() {
  const { url, prefix } = await freshPrefix();
  const [connection, other] = [await natsConnection(url), await natsConnection(url)];
  const clock = new MovableClock();
  const sender = new Sender(connection);
  const receiver = new Receiver(connection);
  const requests = new Requests({ connection, sender, receiver, inbox: createInbox() });
  const newInbox = () => createInbox();
  const after = clock.after.bind(clock);
  const fetches = new Fetches({ receiver, sender, requests, newInbox, after });
  const consumer = `${prefix}.next`;
  const asks = other.subscribe(consumer)[Symbol.asyncIterator]();
  const acks = other.subscribe(`ack.${prefix}.>`)[Symbol.asyncIterator]();
  await other.flush();
  const next = async (messages: AsyncIterator<Msg>) => (await messages.next()).value as Msg;
  // A server lets nobody else name where it hears of its own.
  const ticket = (place: number) => `ack.${prefix}.s.c.1.${place}.${place}.1700000000000000000.0`;
  return {
    clock,
    fetch: (limit = 1) => fetches.take(consumer, limit, 0),
    /** The next fetch that has come to the consumer. */
    asked: () => next(asks),
    /** The next word on a ticket. */
    said: async () => {
      const { subject, data } = await next(acks);
      return { subject, word: new TextDecoder().decode(data) };
    },
    give: async ({ reply = "" }: Msg, place: number) => {
      other.publish(reply, "{}", { reply: ticket(place) });
      await other.flush();
      return ticket(place);
    },
  };
}

describe("a consumer that does not answer", () => {
  it("is waited for shortly the next time, until it answers", async () => {
    const { clock, fetch, asked, give } = await simulation();
    const first = fetch();
    await asked();
    clock.advance(longMs);
    expect(await first).toEqual([]);
    const second = fetch();
    await asked();
    clock.advance(shortMs);
    expect(await second).toEqual([]);
    const third = fetch();
    await give(await asked(), 1);
    expect(await third).toMatchObject([{ seq: 1 }]);
    // It has answered, and so it is waited for again.
    const fourth = fetch();
    const ask = await asked();
    clock.advance(shortMs);
    await give(ask, 2);
    expect(await fourth).toMatchObject([{ seq: 2 }]);
  });

  it("has what it gives out too late given back, and is heard again", async () => {
    const { clock, fetch, asked, said, give } = await simulation();
    const first = fetch(2);
    const late = await asked();
    clock.advance(longMs);
    expect(await first).toEqual([]);
    const ticket = await give(late, 1);
    expect(await said()).toEqual({ subject: ticket, word: "-NAK" });
    const second = fetch();
    const ask = await asked();
    clock.advance(shortMs);
    await give(ask, 2);
    expect(await second).toMatchObject([{ seq: 2 }]);
  });

  it("keeps what came in time, and gives back the rest", async () => {
    const { clock, fetch, asked, said, give } = await simulation();
    const taking = fetch(2);
    const ask = await asked();
    await give(ask, 1);
    // The second fetch is heard of after what came for the first one.
    const other = fetch();
    await give(await asked(), 3);
    expect(await other).toMatchObject([{ seq: 3 }]);
    clock.advance(longMs);
    expect(await taking).toMatchObject([{ seq: 1 }]);
    const ticket = await give(ask, 2);
    expect(await said()).toEqual({ subject: ticket, word: "-NAK" });
  });
});
