// What one turn asks of JetStream goes in parts: who waits for the first does not wait for the others.
import { Environment, MovableClock } from "millrace/conformance";
import { expect, it } from "vitest";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { SimulatedServer, type Wire } from "../simulation/nats/server.js";

/** A process on a server, and what comes between its publishes and the server. */
function creatorOver(publish: (what: string) => Promise<void>, clock = new MovableClock()) {
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const wire: Wire = {
    request: async (what, work) => {
      if (what.startsWith("publish ")) await publish(what);
      return work();
    },
    send: (_what, work) => work(),
    arrival: async () => {},
    hinted: (heard) => heard(),
    behindMs: () => 0,
  };
  const store = () => new MemoryProjectionStore(clock, new ProjectionMemory());
  const engine = openSimulated(server, { clock, session: "creator", store, isOld: false, wire });
  return new Environment(engine, clock, async () => engine);
}

it("lets callers go on whose creates are stored while those of others are under way", async () => {
  let sent = 0;
  let letGo = () => {};
  const secondHalf = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const creator = creatorOver(async () => {
    sent += 1;
    if (sent > 2) await secondHalf;
  });
  const [first, second, ...others] = Array.from({ length: 4 }, () =>
    creator.create({ type: "mail" }),
  );
  await Promise.all([first, second]);
  expect(sent).toBe(4);
  letGo();
  expect(await Promise.all(others)).toHaveLength(2);
});

it("sends what many have asked for while others of the same turn get theirs ready", async () => {
  let sent = 0;
  const creator = creatorOver(async () => {
    sent += 1;
  });
  const sentAfter: number[] = [];
  const creates = Array.from({ length: 20 }, () => {
    const create = creator.create({ type: "mail" });
    sentAfter.push(sent);
    return create;
  });
  expect(sentAfter.slice(6, 9)).toEqual([0, 8, 8]);
  expect(sentAfter.at(-1)).toBe(16);
  expect(await Promise.all(creates)).toHaveLength(20);
  expect(sent).toBe(20);
});

/** Creates on a server that takes a millisecond for whatever it is sent, and how many messages each of that had. */
function slowCreator() {
  const clock = new MovableClock();
  const batches: number[] = [];
  const creator = creatorOver(async (what) => {
    batches.push(what.split(", ").length);
    clock.advance(1);
  }, clock);
  return { creator, batches };
}

it("lets many wait for each other where a server takes long for each message", async () => {
  const { creator, batches } = slowCreator();
  const createAll = () =>
    Promise.all(Array.from({ length: 20 }, () => creator.create({ type: "mail" })));
  for (let round = 0; round < 5; round++) await createAll();
  batches.length = 0;
  await createAll();
  expect(batches).toEqual([20]);
});

it("cuts what one call asks for into batches of a thousand, and of a few megabytes", async () => {
  const { creator, batches } = slowCreator();
  const createAll = async (count: number, payload: string) => {
    batches.length = 0;
    const creations = Array.from({ length: count }, () => creator.creation({ payload }));
    const outcomes = await creator.engine.append(creations);
    expect(outcomes.filter(({ outcome }) => outcome === "appended")).toHaveLength(count);
    return [...batches];
  };
  // It is measured first what messages alone take.
  for (let round = 0; round < 5; round++) await createAll(20, "");
  expect(await createAll(2_500, "")).toEqual([1_000, 1_000, 500]);
  const large = await createAll(100, "x".repeat(100_000));
  expect(large.reduce((sum, size) => sum + size)).toBe(100);
  expect(Math.max(...large)).toBeLessThanOrEqual(40);
  expect(large).toHaveLength(3);
});
