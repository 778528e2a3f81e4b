// Caps on JetStream: who may run is counted by the read model, which is asked only where a job waits, and tickets that
// have no place are given back only once.
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import { NatsEngine } from "#millrace/engine/nats/engine.js";
import type { Port } from "#millrace/engine/nats/port.js";
import { ServerClock } from "#millrace/engine/nats/server-clock.js";
import { Subjects } from "#millrace/engine/nats/subjects.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openProjectionOf } from "../simulation/nats/deployment.js";
import { SimulatedServer, simulatedPort } from "../simulation/nats/server.js";

/** An engine on a simulated server, and what it did that others pay for. */
function engineWithCounts() {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const counts = { projections: 0, givenBack: 0 };
  const port: Port = simulatedPort(server, { now: () => clock.now() });
  const { giveBack, publish } = port;
  let whilePlacesAreTaken = () => {};
  port.publish = (stream, message) => {
    if (stream === "records") whilePlacesAreTaken();
    return publish(stream, message);
  };
  port.giveBack = (delivery) => {
    counts.givenBack += 1;
    giveBack(delivery);
  };
  const engine = new NatsEngine({
    url: "nats://simulated",
    port,
    session: "session",
    subjects: new Subjects("millrace"),
    topology: {
      recordsBucket: "MILLRACE_RECORDS",
      atomicBatches: true,
      replicas: 1,
      identity: "one",
    },
    clock: new ServerClock(clock, null),
    openProjection: () => {
      counts.projections += 1;
      return openProjectionOf(new MemoryProjectionStore(clock, new ProjectionMemory()), clock);
    },
  });
  const open = () => Promise.reject(new Error("One engine is enough here."));
  return {
    env: new Environment(engine, clock, open),
    counts,
    clock,
    whilePlacesAreTaken: (call: () => void) => {
      whilePlacesAreTaken = call;
    },
  };
}

const lane = { typeMaxActive: 2 };

describe("a cap", () => {
  it("is not counted while no job waits", async () => {
    const { env, counts } = engineWithCounts();
    // No keeper is there, which would look into the read model, too.
    const ask = { worker: "worker", limit: 10, lanes: [env.lane(lane)] };
    for (let time = 0; time < 3; time++) expect((await env.engine.claim(ask)).jobs).toEqual([]);
    expect(counts.projections).toBe(0);
    await env.create();
    expect((await env.engine.claim(ask)).jobs).toHaveLength(1);
    expect(counts.projections).toBe(1);
    await env.engine.close();
  });

  it("that is full makes nobody give tickets back again and again", async () => {
    const { env, counts } = engineWithCounts();
    await env.createMany(5);
    const first = await env.claim(lane);
    expect(first).toHaveLength(2);
    const before = counts.givenBack;
    for (let time = 0; time < 10; time++) expect(await env.claim(lane)).toEqual([]);
    expect(counts.givenBack).toBe(before);
    for (const job of first) await env.complete(job);
    expect(await env.claim(lane)).toHaveLength(2);
    await env.engine.close();
  });

  it("that takes long to give a place does not let a job start after its deadline", async () => {
    const { env, clock, whilePlacesAreTaken } = engineWithCounts();
    const { id } = await env.create({ deadline: clock.now() + 1_000 });
    const other = await env.create();
    whilePlacesAreTaken(() => clock.advance(1_000));
    const started = await env.claim({ typeMaxActive: 3 });
    expect(started.map((job) => job.id)).toEqual([other.id]);
    const [loaded] = await env.engine.load([id], { history: true });
    expect(loaded?.events?.map(({ name }) => name)).toEqual(["created", "expired"]);
    await env.engine.close();
  });
});
