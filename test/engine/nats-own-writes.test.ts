// Reading what this process has stored on JetStream, where the copy that answers is behind.
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it, onTestFinished } from "vitest";
import { StoreUnavailable } from "#millrace/engine/errors.js";
import { OwnWrites } from "#millrace/engine/nats/own-writes.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { plainWire, SimulatedServer, type Wire } from "../simulation/nats/server.js";

/** An engine whose questions are answered by a copy that is behind until it has been asked a few times. */
function engineOnLateCopy(request: Wire["request"] = plainWire.request) {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  const copy = { lateAnswers: 0, rests: 0 };
  const engine = openSimulated(server, {
    clock,
    session: "session",
    isOld: false,
    store: () => new MemoryProjectionStore(clock, memory),
    wire: {
      ...plainWire,
      request,
      behindMs: () => {
        if (copy.lateAnswers === 0) return 0;
        copy.lateAnswers -= 1;
        return 1_000;
      },
    },
    rest: async () => {
      copy.rests += 1;
    },
  });
  onTestFinished(() => engine.close());
  const open = () => Promise.reject(new Error("One engine is enough here."));
  return { env: new Environment(engine, clock, open), copy };
}

describe("a process whose questions a late copy answers", () => {
  it("finds the job that it has just created, with its log and without", async () => {
    const { env, copy } = engineOnLateCopy();
    const { id } = await env.create();
    for (const history of [false, true]) {
      copy.lateAnswers = 3;
      const [loaded] = await env.engine.load([id], { history });
      expect(loaded?.job).toMatchObject({ id, state: "pending" });
    }
    expect(copy.rests).toBeGreaterThan(0);
  });

  it("may let a job wait for one that it has just created", async () => {
    const { env, copy } = engineOnLateCopy();
    const { id: jobId } = await env.create();
    copy.lateAnswers = 4;
    const waiting = await env.create({ blockers: [{ jobId, onBadEnd: "continue" }] });
    expect(waiting.state).toBe("blocked");
  });

  it("lists the job that it has just created", async () => {
    const { env, copy } = engineOnLateCopy();
    const { id } = await env.create();
    copy.lateAnswers = 1;
    const { entries } = await env.engine.query("jobs", { filter: {}, limit: 10 });
    expect(entries.map((entry) => entry.id)).toEqual([id]);
  });

  it("is shown the record that it has just written", async () => {
    const { env, copy } = engineOnLateCopy();
    await env.engine.swap([{ id: "queue/shop/mail", expect: 0, body: { paused: true } }]);
    copy.lateAnswers = 2;
    const [record] = await env.engine.records(["queue/shop/mail"]);
    expect(record).toMatchObject({ version: 1, body: { paused: true } });
  });
});

describe("a process that lost an answer, and whose questions a late copy answers", () => {
  /** Loses the answer to the next publish that fits a pattern. */
  function losing() {
    const lost = { pattern: /^$/ };
    const { env, copy } = engineOnLateCopy(async (what, work) => {
      const answer = work();
      if (!lost.pattern.test(what)) return answer;
      lost.pattern = /^$/;
      throw new StoreUnavailable({ url: "nats:", message: "The answer was lost." });
    });
    return { env, copy, lost };
  }

  it("is told that its job was created, however often the copy shows nothing", async () => {
    for (let lateAnswers = 1; lateAnswers <= 30; lateAnswers++) {
      const { env, copy, lost } = losing();
      copy.lateAnswers = lateAnswers;
      lost.pattern = /^publish .*created/;
      expect(await env.append(env.creation())).toEqual({ outcome: "appended" });
    }
  });

  it("is shown the job and what followed from it, which it had to read back", async () => {
    const { env, copy, lost } = losing();
    const follow = env.creation({ id: "follower" });
    lost.pattern = /^publish .*created/;
    const outcome = await env.append({ ...env.creation({ id: "first" }), follow: [follow] });
    expect(outcome).toMatchObject({ outcome: "appended" });
    for (const id of ["first", "follower"]) {
      copy.lateAnswers = 3;
      expect((await env.find(id))?.id).toBe(id);
    }
  });
});

describe("what a process has stored", () => {
  it("is behind for who read less, and only for a while", () => {
    const clock = new MovableClock();
    const own = new OwnWrites(() => clock.monotonic());
    own.stored("job", 7);
    expect([own.isBehind("job", 6), own.isBehind("job", 7)]).toEqual([true, false]);
    expect(own.isBehind("another", 0)).toBe(false);
    clock.advance(4_000);
    expect(own.isBehind("job", 6)).toBe(true);
    expect(own.head).toBe(7);
    clock.advance(11_000);
    expect(own.isBehind("job", 6)).toBe(false);
    // The stream may have been made anew, and then nothing ever lies there.
    expect(own.head).toBe(0);
  });

  it("is the newest of it, in whatever order the answers come", () => {
    const clock = new MovableClock();
    const own = new OwnWrites(() => clock.monotonic());
    own.stored("job", 7);
    own.stored("job", 5);
    expect(own.isBehind("job", 6)).toBe(true);
    clock.advance(6_000);
    own.stored("job", 4);
    expect([own.isBehind("job", 6), own.head]).toEqual([true, 7]);
  });

  it("is a position without a name where nobody asks for it by name", () => {
    const own = new OwnWrites(() => 0);
    own.reached(9);
    expect([own.head, own.isBehind("job", 0)]).toEqual([9, false]);
  });

  it("is let go of when there is much of it", () => {
    const own = new OwnWrites(() => 0);
    own.stored("first", 1);
    for (let seq = 2; seq < 60_000; seq++) own.stored(`job-${seq}`, seq);
    expect(own.isBehind("first", 0)).toBe(false);
    expect(own.isBehind("job-59000", 0)).toBe(true);
  });
});
