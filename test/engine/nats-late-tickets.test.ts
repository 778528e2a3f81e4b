// A worker whose questions a late copy answers: it neither leaves a ticket lying until its lease has passed, nor drops one
// whose job has a slot.
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it, onTestFinished } from "vitest";
import { ids } from "#millrace/conformance/environment.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { plainWire, SimulatedServer } from "../simulation/nats/server.js";

/** How far behind the copy is, and how often it answers so before it has caught up. */
const behindMs = 1_000;
const lateAnswers = 5;

/** Processes that nobody keeps from anything, and a worker to whom a copy that is behind answers questions of a kind. */
function deployed() {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  const copy = { late: /^$/, left: 0, isLate: false, rests: 0 };
  const open = (session: string, isBehind: boolean) => {
    const engine = openSimulated(server, {
      clock,
      session,
      isOld: false,
      store: () => new MemoryProjectionStore(clock, memory),
      rest: async () => {
        copy.rests += 1;
      },
      wire: {
        ...plainWire,
        request: async (what, work) => {
          copy.isLate = isBehind && copy.left > 0 && copy.late.test(what);
          if (copy.isLate) copy.left -= 1;
          const answer = work();
          copy.isLate = false;
          return answer;
        },
        behindMs: () => (copy.isLate ? behindMs : 0),
      },
    });
    onTestFinished(() => engine.close());
    return engine;
  };
  const env = new Environment(open("others", false), clock, async () => open("another", false));
  const worker = env.at(open("worker", true));
  const isBehindWith = (late: RegExp) => Object.assign(copy, { late, left: lateAnswers, rests: 0 });
  return { env, worker, copy, isBehindWith, server };
}

const jobReadings = /^(last of each|read .*jobs)/;
const keyReadings = /^last .*\.key\./;

describe("a ticket that the copy does not show yet", () => {
  it("is waited for, where the job was delayed", async () => {
    const { env, worker, copy, isBehindWith } = deployed();
    const { id } = await env.create({ runAt: env.now + 5_000 });
    env.clock.advance(5_000);
    await env.engine.tend?.("shop");
    isBehindWith(jobReadings);
    expect(ids(await worker.claim())).toEqual([id]);
    expect(copy).toMatchObject({ left: 0, rests: lateAnswers });
  });

  it("is waited for, where the job is tried again", async () => {
    const { env, worker, isBehindWith } = deployed();
    const { id } = await env.create();
    const held = await env.claimOne();
    env.clock.advance(2 * behindMs);
    await env.fail(held, env.now);
    isBehindWith(jobReadings);
    expect(ids(await worker.claim())).toEqual([id]);
  });

  it("is not waited for without end: its job may have been removed", async () => {
    const { env, worker, server } = deployed();
    await worker.nothingClaimable();
    const { id } = await env.create({ runAt: env.now + 5_000 });
    env.clock.advance(5_000);
    await env.engine.tend?.("shop");
    // The consumer has the ticket ready, and the log has nothing of the job.
    const all = server.streams.jobs.read(`millrace.jobs.*.*.${id}.>`);
    const find = server.streams.jobs.lastOfEach.bind(server.streams.jobs);
    server.streams.jobs.lastOfEach = (filters, agoMs) =>
      find(filters, agoMs).filter(({ seq }) => !all.some((message) => message.seq === seq));
    await worker.nothingClaimable();
  });
});

describe("a slot that the copy does not show yet", () => {
  it("is its job's all the same: the ticket is not dropped", async () => {
    const { env, worker, copy, isBehindWith } = deployed();
    const key = env.key("k");
    const [first, second] = [await env.create({ key }), await env.create({ key })];
    const held = await env.claimOne();
    expect(held.id).toBe(first.id);
    env.clock.advance(2 * behindMs);
    await env.complete(held);
    isBehindWith(keyReadings);
    expect(ids(await worker.claim())).toEqual([second.id]);
    expect(copy).toMatchObject({ left: 0, rests: lateAnswers - 1 });
  });

  it("is its job's all the same where it comes with the creation", async () => {
    const { env, worker, isBehindWith } = deployed();
    const { id } = await env.create({ key: env.key("k") });
    isBehindWith(keyReadings);
    expect(ids(await worker.claim())).toEqual([id]);
  });
});
