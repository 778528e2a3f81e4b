// Atomic batches go to servers that handle them well: who leads the stream and whom one is connected to may change while a
// cluster is upgraded, and what is not taken as a batch is stored nevertheless.
import { jetstreamManager } from "@nats-io/jetstream";
import { Environment, MovableClock } from "millrace/conformance";
import { expect, it, onTestFinished } from "vitest";
import { StoreUnavailable } from "#millrace/engine/errors.js";
import { openNats } from "#millrace/engine/nats/open.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { plainWire, SimulatedServer } from "../simulation/nats/server.js";
import { freshPrefix, natsConnection } from "../support/nats.js";
import { ledBy, ofVersion, passingNats } from "../support/nats-proxy.js";

const ledByAnOlder = (said: string) => ledBy(said, "2.14.0");

/** An engine behind a way on which words can be changed at any time, and how many batches went over it. */
async function openBetween() {
  const { url, prefix } = await freshPrefix();
  const words = { said: (said: string) => said, asked: (asked: string) => asked };
  let batches = 0;
  const between = await passingNats(url, {
    said: (said) => words.said(said),
    asked: (asked) => {
      batches += asked.split("Nats-Batch-Commit").length - 1;
      return words.asked(asked);
    },
  });
  const clock = new MovableClock();
  const open = () => openNats(`${between.url}?prefix=${prefix}&projection=memory:`, { clock });
  const openEnvironment = async () => {
    const engine = await open();
    onTestFinished(() => engine.close());
    return new Environment(engine, clock, open);
  };
  /** Stores a job together with what follows from it; gives how many batches that took. */
  const follow = async (env: Environment, id: string): Promise<number> => {
    const before = batches;
    const then = [env.creation({ id: `${id}-then` })];
    const outcome = await env.append({ ...env.creation({ id }), follow: then });
    expect(outcome).toEqual({ outcome: "appended" });
    for (const each of [id, `${id}-then`]) {
      const { events } = (await env.engine.load([each], { history: true }))[0] ?? {};
      expect(events?.map(({ name }) => name)).toEqual(["created"]);
    }
    return batches - before;
  };
  return { url, prefix, words, between, openEnvironment, follow };
}

/** Whether the server of this run takes batches at all; on an older one everything goes alone in any case. */
async function batchesHere(url: string): Promise<0 | 1> {
  const [major = 0, minor = 0, patch = 0] = ((await natsConnection(url)).info?.version ?? "")
    .split(".")
    .map(Number.parseFloat);
  return major * 1e6 + minor * 1e3 + patch >= 2_014_004 ? 1 : 0;
}

/** Asks until the connection is back, and the process has heard who leads. */
async function reconnected(follow: (id: string) => Promise<number>, batches: number) {
  for (let round = 0; ; round++) {
    const sent = await follow(`back-${round}`);
    if (sent === batches) return;
    if (round === 2_000) throw new Error("The process still sends as many batches as before.");
  }
}

it("are sent to no server that mishandles them after a reconnect, and again to one that does not", async () => {
  const { url, words, between, openEnvironment, follow } = await openBetween();
  const one = await batchesHere(url);
  const env = await openEnvironment();
  expect(await follow(env, "first")).toBe(one);
  words.said = (said) => ofVersion(said, "2.14.3");
  between.cut();
  expect(await follow(env, "second")).toBe(0);
  expect(await follow(env, "third")).toBe(0);
  words.said = (said) => said;
  between.cut();
  await reconnected((id) => follow(env, id), one);
});

it("are sent to nobody while an older server leads the stream", async () => {
  const { url, words, between, openEnvironment, follow } = await openBetween();
  const one = await batchesHere(url);
  words.said = ledByAnOlder;
  const early = await openEnvironment();
  expect(await follow(early, "first")).toBe(0);
  words.said = (said) => said;
  const env = await openEnvironment();
  expect(await follow(env, "second")).toBe(one);
  words.said = ledByAnOlder;
  between.cut();
  await reconnected((id) => follow(env, id), 0);
  expect(await follow(env, "third")).toBe(0);
});

it("are followed by their messages alone where a server answers as if it knew none", async () => {
  const { url, words, openEnvironment, follow } = await openBetween();
  const one = await batchesHere(url);
  const env = await openEnvironment();
  words.said = (said) =>
    ledByAnOlder(said).replace(/"batch":("[^"]*"),"count":/g, '"botch":$1,"cuont":');
  expect(await follow(env, "first")).toBe(one);
  expect(await follow(env, "second")).toBe(0);
});

it("are followed by their messages alone where a batch has lost its beginning", async () => {
  const { url, words, openEnvironment, follow } = await openBetween();
  const one = await batchesHere(url);
  const env = await openEnvironment();
  words.asked = (asked) =>
    asked.replaceAll("Nats-Batch-Sequence: 1\r\n", "Nats-Batch-Sequence: 9\r\n");
  expect(await follow(env, "first")).toBe(one);
  words.asked = (asked) => asked;
  expect(await follow(env, "second")).toBe(one);
});

it("are followed by their messages alone where the stream takes none any more", async () => {
  const { url, prefix, openEnvironment, follow } = await openBetween();
  const one = await batchesHere(url);
  const env = await openEnvironment();
  const { streams } = await jetstreamManager(await natsConnection(url));
  if (one === 1) await streams.update(`${prefix.toUpperCase()}_JOBS`, { allow_atomic: false });
  expect(await follow(env, "first")).toBe(one);
  expect(await follow(env, "second")).toBe(0);
});

it("are not sent again to a server that leads meanwhile and takes none", async () => {
  const clock = new MovableClock();
  let takesBatches = true;
  let batches = 0;
  const engine = openSimulated(new SimulatedServer({ time: () => clock.monotonic() }), {
    clock,
    session: "session",
    isOld: false,
    store: () => new MemoryProjectionStore(clock, new ProjectionMemory()),
    takesBatches: () => takesBatches,
    wire: {
      ...plainWire,
      request: async (what, work) => {
        if (!/^publish .*, /.test(what)) return work();
        batches += 1;
        takesBatches = false;
        throw new StoreUnavailable({ url: "nats:", message: "The request was lost." });
      },
    },
    rest: async () => {},
  });
  onTestFinished(() => engine.close());
  const env = new Environment(engine, clock, async () => engine);
  const follow = [env.creation({ id: "then" })];
  const outcome = await env.append({ ...env.creation({ id: "first" }), follow });
  expect(outcome).toEqual({ outcome: "appended" });
  expect(batches).toBe(1);
  for (const id of ["first", "then"]) expect(await env.historyNames(id)).toEqual(["created"]);
  expect(await engine.query("records", { prefix: "follow/" })).toEqual([]);
});
