// Renewals on JetStream hold whatever becomes of the view, which only shows them.
import { Environment, MovableClock } from "millrace/conformance";
import { expect, it, onTestFinished } from "vitest";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import type { Writes } from "#millrace/engine/projection/writes.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { SimulatedServer } from "../simulation/nats/server.js";
import { gate } from "../worker/workshop.js";

/** The database of a view that fails to store what was renewed, when it is told to. */
class FaultyStore extends MemoryProjectionStore {
  readonly fails = gate();

  override async write<Kind extends keyof Writes>(
    kind: Kind,
    ask: Writes[Kind]["ask"],
  ): Promise<Writes[Kind]["answer"]> {
    if (kind !== "renew") return super.write(kind, ask);
    await this.fails.opened;
    throw new Error("The view is away.");
  }
}

it.each([
  { name: "fails", failsAtOnce: true },
  { name: "does not answer", failsAtOnce: false },
])("a lease is renewed while the database of the view $name", async ({ failsAtOnce }) => {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const store = new FaultyStore(clock, new ProjectionMemory());
  const engine = openSimulated(server, {
    clock,
    session: "worker",
    store: () => store,
    isOld: false,
  });
  onTestFinished(() => {
    store.fails.open();
    return engine.close();
  });
  if (failsAtOnce) store.fails.open();
  const env = new Environment(engine, clock, async () => engine);
  await env.create();
  const job = await env.claimOne();
  expect(await env.row(job.id)).toMatchObject({ state: "active" });
  const [renewed] = await engine.renew([{ job, token: job.token, leaseMs: 60_000 }]);
  expect(renewed).toMatchObject({ outcome: "held", leaseUntil: env.now + 60_000 });
});
