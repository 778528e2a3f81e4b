// One lane whose tickets cannot be taken: the others' jobs are claimed, and nothing is started that nobody runs.
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import { ids } from "#millrace/conformance/environment.js";
import { StoreFailed } from "#millrace/engine/errors.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { SimulatedServer } from "../simulation/nats/server.js";

/** Resolves when everything is done that can be done without time passing. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A worker that is refused what a pattern fits, which it hears before any other answer. */
function simulation() {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  const store = () => new MemoryProjectionStore(clock, memory);
  const creator = new Environment(
    openSimulated(server, { clock, session: "creator", store, isOld: false }),
    clock,
    async () => openSimulated(server, { clock, session: "another", store, isOld: false }),
  );
  const refused = { pattern: /^$/ };
  const engine = openSimulated(server, {
    clock,
    session: "worker",
    store,
    isOld: false,
    wire: {
      request: async (what, work) => {
        if (refused.pattern.test(what)) throw new StoreFailed({ url: "nats:", message: what });
        await settled();
        return work();
      },
      send: (_, work) => work(),
      arrival: async () => {},
      hinted: (heard) => heard(),
      behindMs: () => 0,
    },
  });
  return { creator, worker: creator.at(engine), refused };
}

const lanes = [{ type: "bad" }, { type: "good" }];

describe("a lane whose tickets cannot be taken", () => {
  const refusals = [
    ["its consumers cannot be made", /^ensure consumer shop~bad/],
    ["nothing can be fetched from its consumers", /^fetch shop~bad/],
    ["one of its consumers cannot be made", /^ensure consumer shop~bad~bad~v1-high/],
  ] as const;

  for (const [name, pattern] of refusals)
    it(`leaves the others theirs: ${name}`, async () => {
      const { creator, worker, refused } = simulation();
      refused.pattern = pattern;
      const high = await creator.create({ type: "good", priority: 1 });
      const normal = await creator.create({ type: "good" });
      expect([...ids(await worker.claim(lanes))].sort()).toEqual([high.id, normal.id].sort());
      await expect(worker.claim(lanes)).rejects.toThrow(/shop~bad/);
      const next = await creator.create({ type: "good" });
      expect(ids(await worker.claim(lanes))).toEqual([next.id]);
    });

  it("gives its own jobs of another priority", async () => {
    const { creator, worker, refused } = simulation();
    refused.pattern = /^ensure consumer shop~bad~bad~v1-high/;
    const job = await creator.create({ type: "bad" });
    expect(ids(await worker.claim(lanes))).toEqual([job.id]);
  });

  it("leaves the others theirs when nothing waited the last time", async () => {
    const { creator, worker, refused } = simulation();
    expect(await worker.claim(lanes)).toEqual([]);
    refused.pattern = /^fetch shop~bad/;
    const job = await creator.create({ type: "good" });
    expect(ids(await worker.claim(lanes))).toEqual([job.id]);
  });

  it("leaves the others theirs under caps", async () => {
    const { creator, worker, refused } = simulation();
    const capped = lanes.map((lane) => ({ ...lane, typeMaxActive: 5 }));
    refused.pattern = /^fetch shop~bad/;
    const job = await creator.create({ type: "good" });
    expect(ids(await worker.claim(capped))).toEqual([job.id]);
  });

  it("leaves the others theirs when its jobs cannot be started", async () => {
    const { creator, worker, refused } = simulation();
    expect(await worker.claim(lanes)).toEqual([]);
    refused.pattern = /^publish .*bad.*started/;
    await creator.create({ type: "bad" });
    const job = await creator.create({ type: "good" });
    expect(ids(await worker.claim(lanes))).toEqual([job.id]);
  });
});

describe("a claim that fails", () => {
  it("gives back what it took, so that others can start it at once", async () => {
    const { creator, worker, refused } = simulation();
    expect(await worker.claim(lanes)).toEqual([]);
    refused.pattern = /^last \$KV.*queue/;
    const job = await creator.create({ type: "good" });
    await expect(worker.claim(lanes)).rejects.toThrow(/queue/);
    await settled();
    expect(ids(await creator.claim(lanes))).toEqual([job.id]);
  });
});
