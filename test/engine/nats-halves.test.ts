// What one turn asks of JetStream goes as two halves: who waits for the first does not wait for the second.
import { Environment, MovableClock } from "millrace/conformance";
import { expect, it } from "vitest";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { SimulatedServer, type Wire } from "../simulation/nats/server.js";

it("lets callers go on whose creates are stored while those of others are under way", async () => {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  let sent = 0;
  let letGo = () => {};
  const secondHalf = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const wire: Wire = {
    request: async (what, work) => {
      if (!what.startsWith("publish ")) return work();
      sent += 1;
      if (sent > 2) await secondHalf;
      return work();
    },
    send: (_what, work) => work(),
    arrival: async () => {},
    hinted: (heard) => heard(),
    behindMs: () => 0,
  };
  const store = () => new MemoryProjectionStore(clock, new ProjectionMemory());
  const engine = openSimulated(server, { clock, session: "creator", store, isOld: false, wire });
  const creator = new Environment(engine, clock, async () => engine);
  const [first, second, ...others] = Array.from({ length: 4 }, () =>
    creator.create({ type: "mail" }),
  );
  await Promise.all([first, second]);
  expect(sent).toBe(4);
  letGo();
  expect(await Promise.all(others)).toHaveLength(2);
});
