// A process that may see one service only, whose questions a late copy answers: what it does not see yet is not what another
// service has.
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it, onTestFinished } from "vitest";
import { NatsEngine } from "#millrace/engine/nats/engine.js";
import { ServerClock } from "#millrace/engine/nats/server-clock.js";
import { Subjects } from "#millrace/engine/nats/subjects.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openProjectionOf } from "../simulation/nats/deployment.js";
import { plainWire, SimulatedServer, simulatedPort } from "../simulation/nats/server.js";

/** More than a refused event is looked for, and less than a second takes. */
const lateAnswers = 20;

/** A process that may see everything, and one of the service "shop" that sees the jobs of a moment ago for a while. */
function deployed() {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const copy = { lateAnswers: 0, isLate: false };
  const open = (session: string, scope?: string) => {
    const wire = {
      ...plainWire,
      request: async <Answer>(what: string, work: () => Answer) => {
        const isReading = what.startsWith("read ") || what === "last of each";
        copy.isLate = scope !== undefined && isReading && copy.lateAnswers > 0;
        if (copy.isLate) copy.lateAnswers -= 1;
        const answer = work();
        copy.isLate = false;
        return answer;
      },
      behindMs: () => (copy.isLate ? 1_000 : 0),
    };
    const engine = new NatsEngine({
      url: "nats://simulated",
      port: simulatedPort(server, { wire, now: () => clock.now() }),
      session,
      subjects: new Subjects("millrace", scope),
      topology: { recordsBucket: "MILLRACE_RECORDS", atomicBatches: true, replicas: 3 },
      clock: new ServerClock(clock, null),
      openProjection: () =>
        openProjectionOf(new MemoryProjectionStore(clock, new ProjectionMemory()), clock),
      rest: async () => {},
    });
    onTestFinished(() => engine.close());
    return engine;
  };
  const env = new Environment(open("all"), clock, async () => open("another"));
  return { env, scoped: env.at(open("scoped", "shop")), copy };
}

describe("a create of a process that may see one service only", () => {
  it("keeps the place of the same job that another process has stored a moment ago", async () => {
    const { env, scoped, copy } = deployed();
    const key = env.key("k", { maxQueued: 0 });
    await env.create({ id: "same", key });
    copy.lateAnswers = lateAnswers;
    expect(await scoped.append(scoped.creation({ id: "same", key }))).toEqual({
      outcome: "exists",
    });
    expect(copy.lateAnswers).toBe(0);
    expect((await env.append(env.creation({ key }))).outcome).toBe("not_admitted");
  });

  it("leaves no place where another service has the id", async () => {
    const { env, scoped } = deployed();
    const key = env.key("k", { maxQueued: 0 });
    await env.create({ id: "same", service: "bank" });
    expect(await scoped.append(scoped.creation({ id: "same", key }))).toEqual({
      outcome: "exists",
    });
    expect((await env.append(env.creation({ key }))).outcome).toBe("appended");
  });
});
