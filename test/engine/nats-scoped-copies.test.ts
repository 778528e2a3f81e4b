// A process that may see one service only, whose questions a late copy answers: what it does not see yet is not what another
// service has.
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it, onTestFinished } from "vitest";
import { tally } from "#millrace/conformance/environment.js";
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
  const copy = { lateAnswers: 0, isLate: false, rests: 0, tellsNewest: true };
  const open = (session: string, scope?: string) => {
    const wire = {
      ...plainWire,
      request: async <Answer>(what: string, work: () => Answer) => {
        if (what.startsWith("newest ") && !copy.tellsNewest) return null as Answer;
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
      topology: {
        recordsBucket: "MILLRACE_RECORDS",
        atomicBatches: true,
        replicas: 3,
        identity: "one",
      },
      clock: new ServerClock(clock, null),
      openProjection: () =>
        openProjectionOf(new MemoryProjectionStore(clock, new ProjectionMemory()), clock),
      rest: async () => {
        copy.rests += 1;
      },
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

  it("is told at once that another service has the id, with a continuation, too", async () => {
    const { env, scoped, copy } = deployed();
    await env.create({ id: "same", service: "bank" });
    const creation = scoped.creation({ id: "same" });
    const follow = [scoped.creation({ id: "next" })];
    for (const change of [creation, { ...creation, follow }])
      expect(await scoped.append(change)).toEqual({ outcome: "exists" });
    expect(copy.rests).toBe(0);
    expect(await env.historyNames("same")).toEqual(["created"]);
  });

  it("is told so for every job of a batch", async () => {
    const { env, scoped, copy } = deployed();
    const names = Array.from({ length: 30 }, (_, index) => `same-${index}`);
    for (const id of names) await env.create({ id, service: "bank" });
    const outcomes = await scoped.engine.append(names.map((id) => scoped.creation({ id })));
    expect(tally(outcomes)).toEqual({ exists: names.length });
    expect(copy.rests).toBe(0);
  });

  it("takes no job for another's that its own service has stored, where the server does not tell", async () => {
    const { env, scoped, copy } = deployed();
    copy.tellsNewest = false;
    const key = env.key("k", { maxQueued: 0 });
    await env.create({ id: "same", key });
    copy.lateAnswers = lateAnswers;
    expect(await scoped.append(scoped.creation({ id: "same", key }))).toEqual({
      outcome: "exists",
    });
    expect((await env.append(env.creation({ key }))).outcome).toBe("not_admitted");
  });
});
