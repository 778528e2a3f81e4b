// Removing what is left of deleted jobs: what a server refuses to remove is not taken for removed.
import { jetstreamManager } from "@nats-io/jetstream";
import { Environment, MovableClock } from "millrace/conformance";
import { expect, it, onTestFinished } from "vitest";
import { StoreUnavailable } from "#millrace/engine/errors.js";
import { addressOf } from "#millrace/engine/nats/address.js";
import { openConnection } from "#millrace/engine/nats/connection.js";
import { JetStreamPort } from "#millrace/engine/nats/jetstream.js";
import { loadNats } from "#millrace/engine/nats/libraries.js";
import { openNats } from "#millrace/engine/nats/open.js";
import { provision } from "#millrace/engine/nats/provision.js";
import { Subjects } from "#millrace/engine/nats/subjects.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { plainWire, SimulatedServer } from "../simulation/nats/server.js";
import { freshPrefix, natsConnection } from "../support/nats.js";
import { passingNats } from "../support/nats-proxy.js";

/** Longer than whoever deletes a job may take to remove its log. */
const longMs = 120_000;

const remove = { command: "delete", reason: "manual", force: true } as const;

/** A way to a server that refuses to remove messages of some streams. */
async function refusingNats() {
  const { url, prefix } = await freshPrefix();
  const refused = { streams: /^$/ };
  const between = await passingNats(url, {
    // There is no stream of such a name, which is as long.
    asked: (asked) =>
      asked.replace(/(STREAM\.MSG\.DELETE\.)(\S+)/g, (words, what: string, stream: string) =>
        refused.streams.test(stream) ? `${what}${"X".repeat(stream.length)}` : words,
      ),
  });
  return { url, prefix, refused, at: `${between.url}?prefix=${prefix}&projection=memory:` };
}

it("forgets no deletion while the server refuses to remove what is left of its job", async () => {
  const { url, prefix, refused, at } = await refusingNats();
  const clock = new MovableClock();
  const engine = await openNats(at, { clock });
  onTestFinished(() => engine.close());
  const env = new Environment(engine, clock, async () => engine);
  const { streams } = await jetstreamManager(await natsConnection(url));
  const left = async () => {
    const filter = `${prefix}.jobs.*.*.gone.>`;
    const { state } = await streams.info(`${prefix.toUpperCase()}_JOBS`, {
      subjects_filter: filter,
    });
    return Object.keys(state.subjects ?? {}).map((subject) => subject.split(".")[5]);
  };
  await env.create({ id: "gone" });
  refused.streams = /./;
  // The deletion is stored, and hides what is left.
  await env.command("gone", remove);
  expect(await left()).toEqual(expect.arrayContaining(["created", "deleted"]));
  await env.create({ id: "newest" });
  clock.advance(longMs);
  await expect(engine.prune(env.now)).rejects.toThrow(StoreUnavailable);
  expect(await left()).toHaveLength(2);
  refused.streams = /^$/;
  expect(await engine.prune(env.now)).toBe(1);
  expect(await left()).toEqual([]);
  expect(await env.find("gone")).toBeNull();
});

it("looks into the log of a job again before its deletion is forgotten", async () => {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  let isRemoved = false;
  const engine = openSimulated(server, {
    clock,
    session: "session",
    isOld: false,
    store: () => new MemoryProjectionStore(clock, new ProjectionMemory()),
    wire: {
      ...plainWire,
      // The server says that it has removed what comes back.
      request: async (what, work) =>
        what.startsWith("remove ") && !isRemoved ? (undefined as ReturnType<typeof work>) : work(),
    },
  });
  onTestFinished(() => engine.close());
  const env = new Environment(engine, clock, async () => engine);
  await env.create({ id: "gone" });
  await env.command("gone", remove);
  await env.create({ id: "newest" });
  clock.advance(longMs);
  expect(await engine.prune(0)).toBe(0);
  isRemoved = true;
  expect(await engine.prune(env.now)).toBe(1);
  expect(await env.find("gone")).toBeNull();
  expect(server.streams.jobs.read("millrace.jobs.*.*.gone.>")).toEqual([]);
});

it("tells of each message by itself whether it could be removed", async () => {
  const { refused, at } = await refusingNats();
  const address = addressOf(at);
  const nats = await loadNats(address.where);
  const connection = await openConnection(nats, address, { name: "test" });
  onTestFinished(() => connection.close());
  const topology = await provision(connection, address);
  const subjects = new Subjects(topology.prefix);
  const port = new JetStreamPort({
    nats,
    connection,
    topology,
    url: address.where,
    readsEverything: true,
    clockFilter: subjects.clockFilter(),
  });
  const subject = `${topology.prefix}.jobs.shop.mail.1.dismissed`;
  for (let event = 0; event < 4; event++)
    await port.publish("jobs", { subject, body: "{}", headers: {} });
  refused.streams = /ADVISORIES/;
  const removed = await Promise.allSettled([
    port.remove("jobs", [2]),
    port.remove("advisories", [1]),
    port.remove("jobs", [3]),
  ]);
  expect(removed.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
  // The server tells in two ways that a message is gone already: one way in the middle, one at both ends.
  await port.remove("jobs", [2, 1]);
  await port.remove("jobs", [1, 2, 3, 4]);
  await port.remove("jobs", [4]);
  expect(await port.read("jobs", subject)).toEqual([]);
});
