// The simulated server keeps every case of the conformance suite that a real one keeps.
import { type ConformanceTarget, runConformance } from "millrace/conformance";
import { describe, it } from "vitest";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "./deployment.js";
import { SimulatedServer } from "./server.js";

const ways = [
  { name: "many at once", isOld: false },
  { name: "one by one", isOld: true },
] as const;

for (const { name, isOld } of ways) {
  const simulated: ConformanceTarget = {
    name: `JetStream, simulated, ${name}`,
    open: async (clock) => {
      const server = new SimulatedServer({ time: () => clock.monotonic() });
      const memory = new ProjectionMemory();
      let sessions = 0;
      const open = async () =>
        openSimulated(server, {
          clock,
          session: `session-${++sessions}`,
          store: () => new MemoryProjectionStore(clock, memory),
          isOld,
        });
      return { engine: await open(), open };
    },
  };
  describe(simulated.name, () => {
    runConformance(simulated, (name, run) => {
      it.concurrent(name, async (context) => {
        const result = await run();
        if (result.outcome === "skipped") context.skip(result.reason);
      });
    });
  });
}
