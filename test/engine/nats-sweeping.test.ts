// The sweeper: a job whose ticket was acknowledged while it could still be claimed is offered again.
import { createInbox, type NatsConnection } from "@nats-io/transport-node";
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it, onTestFinished } from "vitest";
import { ids } from "#millrace/conformance/environment.js";
import type { Job } from "#millrace/core/job.js";
import { thrownFault } from "#millrace/engine/nats/faults.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { plainWire, SimulatedServer } from "../simulation/nats/server.js";
import { natsConnection } from "../support/nats.js";
import { Deployment } from "../support/nats-engine.js";

/** How many jobs one look of the sweeper goes through, how often it looks, and how long a job has stood that it looks at. */
const lookMax = 500;
const sweepMs = 30_000;
const standingMs = 60_000;

/** A job whose ticket somebody takes and acknowledges who does not run it. */
async function withoutTicket(deployment: Deployment, connection: NatsConnection): Promise<string> {
  const { env, prefix } = deployment;
  await env.engine.prepareClaims?.([env.lane()]);
  const { id } = await env.create();
  const stream = `${prefix.toUpperCase()}_JOBS`;
  const inbox = createInbox();
  const taken = connection.subscribe(inbox, { max: 1 });
  const next = `$JS.API.CONSUMER.MSG.NEXT.${stream}.shop~mail~mail~v1-normal`;
  connection.publish(next, JSON.stringify({ batch: 1 }), { reply: inbox });
  for await (const { reply = "", subject } of taken) {
    expect(subject).toContain(id);
    await connection.request(reply, "+ACK");
  }
  return id;
}

/** The keeper looks some times, as often as it sweeps. */
async function sweep(env: Environment, times: number): Promise<void> {
  for (let time = 0; time < times; time++) {
    env.clock.advance(sweepMs);
    await env.engine.tend?.("shop");
  }
}

it("a job whose ticket is gone gets a new one when it has stood for long", async () => {
  const deployment = await Deployment.make();
  const { env } = deployment;
  const id = await withoutTicket(deployment, await natsConnection(deployment.url));
  await sweep(env, 1);
  expect(ids(await env.claim())).toEqual([]);
  await sweep(env, standingMs / sweepMs);
  expect(ids(await env.claim())).toEqual([id]);
});

it("jobs that stand for good reason do not keep it from being found, and get no tickets", async () => {
  const deployment = await Deployment.make();
  const { env } = deployment;
  await env.engine.swap([{ id: "queue/shop/print", expect: 0, body: { paused: true } }]);
  await env.engine.prepareClaims?.([env.lane({ type: "print" })]);
  const standing = Array.from({ length: lookMax + 1 }, () => env.creation({ type: "print" }));
  await env.engine.append(standing);
  const id = await withoutTicket(deployment, await natsConnection(deployment.url));
  env.clock.advance(standingMs);
  await sweep(env, 2);
  const claimed = await env.claim([{}, { type: "print" }]);
  expect(ids(claimed)).toEqual([id]);
  for (const job of claimed) await env.complete(job);
  // It begins again with the first ones.
  const second = await withoutTicket(deployment, await natsConnection(deployment.url));
  env.clock.advance(standingMs);
  await sweep(env, 4);
  expect(ids(await env.claim())).toEqual([second]);
  expect(await env.historyNames(standing[0]?.job.id ?? "")).toEqual(["created"]);
});

/** A keeper on a server of its own, and the consumer of a lane, from which a test can take tickets as a worker that dies does. */
async function simulation() {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  const store = () => new MemoryProjectionStore(clock, memory);
  const engine = openSimulated(server, { clock, session: "keeper", store, isOld: false });
  onTestFinished(() => engine.close());
  const env = new Environment(engine, clock, async () => engine);
  await engine.prepareClaims?.([env.lane()]);
  const lose = () => {
    const consumer = server.consumer("shop~mail~mail~v1-normal");
    for (const { seq } of consumer?.fetch(10) ?? []) consumer?.acknowledge(seq);
  };
  /** Time passes in which a job is held, and the keeper looks. */
  const pass = async (ms: number, held: Job) => {
    for (let passed = 0; passed < ms; passed += renewMs) {
      clock.advance(renewMs);
      await engine.renew([{ job: held, token: held.token, leaseMs: 30_000 }]);
      await engine.tend?.("shop");
    }
  };
  const tickets = (id: string) => server.streams.jobs.read(`millrace.jobs.*.*.${id}.ready.>`);
  return { env, lose, pass, tickets };
}

/** How often a held job is renewed, and twice its lease and what a ticket may be on its way beyond that. */
const renewMs = 10_000;
const givenOutMs = 2 * (30_000 + 10_000);

describe("beside a job that is held for long, whose ticket keeps the consumer from telling what was acknowledged", () => {
  it("a job whose ticket is gone gets a new one, and the one that is held gets none", async () => {
    const { env, lose, pass, tickets } = await simulation();
    await env.create();
    const held = await env.claimOne();
    const { id } = await env.create();
    lose();
    await pass(standingMs + givenOutMs + sweepMs, held);
    expect(ids(await env.claim())).toEqual([id]);
    expect(tickets(held.id)).toEqual([]);
    await env.complete(held);
  });

  it("a job with a slot of its key whose ticket is gone gets a new one", async () => {
    const { env, lose, pass, tickets } = await simulation();
    await env.create();
    const held = await env.claimOne();
    const { id } = await env.create({ key: env.key("k") });
    lose();
    await pass(givenOutMs, held);
    expect(ids(await env.claim())).toEqual([id]);
    expect(tickets(held.id)).toEqual([]);
  });

  it("a ticket that was given out a moment ago, or not at all, is not written again", async () => {
    const { env, lose, pass, tickets } = await simulation();
    await env.create();
    const held = await env.claimOne();
    const { id } = await env.create({ key: env.key("k") });
    await pass(standingMs + givenOutMs, held);
    expect(tickets(id)).toEqual([]);
    lose();
    await pass(30_000, held);
    expect(tickets(id)).toEqual([]);
  });
});

it("a lane that nobody answers for leaves the others theirs, and is told of", async () => {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  const engine = openSimulated(server, {
    clock,
    session: "keeper",
    store: () => new MemoryProjectionStore(clock, memory),
    isOld: false,
    wire: {
      ...plainWire,
      request: async (what, work) => {
        if (!what.startsWith("info of shop~bad")) return work();
        throw thrownFault(Object.assign(new Error(what), { name: "TimeoutError" }), "nats:");
      },
    },
  });
  const env = new Environment(engine, clock, async () => engine);
  const lanes = [env.lane({ type: "bad" }), env.lane({ type: "good" })];
  await engine.prepareClaims?.(lanes);
  await env.create({ type: "bad" });
  const { id } = await env.create({ type: "good" });
  for (const type of ["bad", "good"]) {
    const consumer = server.consumer(`shop~${type}~${type}~v1-normal`);
    for (const { seq } of consumer?.fetch(10) ?? []) consumer?.acknowledge(seq);
  }
  clock.advance(standingMs + 1);
  await expect(engine.tend?.("shop")).rejects.toThrow("did not answer in time");
  const { jobs } = await engine.claim({ worker: "worker-1", limit: 10, lanes });
  expect(ids(jobs.map(({ job }) => job))).toEqual([id]);
  await engine.close();
});
