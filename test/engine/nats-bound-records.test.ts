// A record that was written for a creation which is still on its way: whoever finds it waits for the job before it takes it for
// one that never comes.
import { Environment, MovableClock } from "millrace/conformance";
import { expect, it, onTestFinished } from "vitest";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { plainWire, SimulatedServer } from "../simulation/nats/server.js";
import { signal } from "../support/nats-engine.js";

/** Resolves when everything is done that can be done without time passing. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

it("a creation that is slow is waited for by who finds its record", async () => {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  const store = () => new MemoryProjectionStore(clock, memory);
  const [sent, rested] = [signal(), signal()];
  const slow = openSimulated(server, {
    clock,
    session: "slow",
    store,
    isOld: false,
    wire: {
      ...plainWire,
      request: async (what, work) => {
        if (/^publish .*created/.test(what)) {
          sent.give();
          await rested.given;
        }
        return work();
      },
    },
  });
  const quick = openSimulated(server, {
    clock,
    session: "quick",
    store,
    isOld: false,
    rest: async () => {
      rested.give();
      await settled();
    },
  });
  onTestFinished(async () => {
    await slow.close();
    await quick.close();
  });
  const env = new Environment(quick, clock, async () => quick);
  const record = (jobId: string) => [{ id: "idempotency/shop/k", expect: 0, body: { jobId } }];
  const first = env.at(slow).append(env.creation({ id: "first" }, record("first")));
  await sent.given;
  const second = await env.append(env.creation({ id: "second" }, record("second")));
  expect(second).toMatchObject({
    outcome: "record_conflict",
    current: { body: { jobId: "first" } },
  });
  expect(await first).toEqual({ outcome: "appended" });
});
