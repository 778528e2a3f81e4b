// Readers of the feed that are slower than the writers: they miss nothing, hold a bounded part of it, and go on when a server
// has lost patience with their connection.
import { connect } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { inboxPrefix } from "#millrace/engine/nats/permissions.js";
import { openEngine } from "#millrace/engine/open.js";
import { contract, noWork } from "../crash/contract.js";
import { freshPrefix, natsConnection, ownNats } from "../support/nats.js";
import { passingNats } from "../support/nats-proxy.js";

/** A service that creates jobs, and a reader on another connection. */
async function scene(url: string, readerUrl = url) {
  const service = await connect(contract, { url: withView(url) });
  onTestFinished(() => service.stop());
  const reader = await openEngine(withView(readerUrl));
  onTestFinished(() => reader.close());
  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  const feed = reader.tail(null, stop.signal)[Symbol.asyncIterator]();
  const created: string[] = [];
  const create = async (count: number) => {
    const many = Array(count).fill({ payload: noWork });
    const refs = await service.jobs.quick.createMany(many).orThrow();
    for (const ref of refs) created.push(ref.unwrap().id);
  };
  const seen: string[] = [];
  /** Reads until everything that was created has come. */
  const read = async () => {
    while (seen.length < created.length) {
      const { value } = await feed.next();
      seen.push(value?.event.jobId ?? "");
    }
  };
  return { reader, create, created, read, seen };
}

function withView(url: string): string {
  return `${url}${url.includes("?") ? "&" : "?"}projection=memory:`;
}

it("a reader that does not come on has the server wait, and then misses nothing", {
  timeout: 90_000,
}, async () => {
  const { url, prefix, storeUrl } = await freshPrefix();
  const { create, created, read, seen } = await scene(storeUrl);
  await create(1);
  await read();
  // A server that has sent as much as it may tells the reader so when there is nothing else to tell.
  const observer = await natsConnection(url);
  const heard = observer.subscribe(`${inboxPrefix(prefix)}.>`);
  const stalled = (async () => {
    for await (const { headers } of heard) if (headers?.has("Nats-Consumer-Stalled")) return;
  })();
  for (let count = 0; count < 40; count++) await create(1_000);
  await stalled;
  await read();
  expect(seen).toEqual(created);
});

it("a reader whose connection a server has cut for being slow goes on without a gap", {
  timeout: 90_000,
}, async () => {
  const server = await ownNats({ config: 'write_deadline: "1s"' });
  const passing = await passingNats(server.url);
  const { reader, create, created, read, seen } = await scene(server.url, passing.url);
  onTestFinished(reader.wake("ended", () => {}));
  await create(100);
  await read();
  const cuts = async () => Number((await server.monitor("varz"))?.slow_consumers ?? 0);
  const before = await cuts();
  const crier = await natsConnection(server.url);
  passing.hold();
  // Hints are sent to whoever listens, also to who takes nothing. The events between them are lost with the connection.
  while ((await cuts()) === before) {
    for (let count = 0; count < 10; count++)
      crier.publish("millrace.hints.ended.crash", "x".repeat(100_000));
    await crier.flush();
    await create(1);
  }
  passing.letGo();
  await create(1);
  await read();
  expect(seen).toEqual(created);
});
