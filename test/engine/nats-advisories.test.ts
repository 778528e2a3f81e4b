// What the server says of tickets that it gave up, and what somebody else had put there: neither keeps a keeper from its work.
import { jetstreamManager } from "@nats-io/jetstream";
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import { ids, type NewJob } from "#millrace/conformance/environment.js";
import { StoreFailed } from "#millrace/engine/errors.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { SimulatedServer } from "../simulation/nats/server.js";
import { natsConnection } from "../support/nats.js";
import { Deployment } from "../support/nats-engine.js";

/** How many advisories one look reads, and how many it acts on. */
const readMax = 1_000;
const actMax = 500;

const laneOf = (service: string) => `${service}~mail~mail~v1-normal`;

/** A deployment with the words that are published where the server says what it gave up. */
async function deployed() {
  const deployment = await Deployment.make();
  const { env, prefix, url } = deployment;
  const connection = await natsConnection(url);
  const manager = await jetstreamManager(connection);
  const upper = prefix.toUpperCase();
  const say = async (consumer: string, body: string) => {
    const subject = `$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.${upper}_JOBS.${consumer}`;
    await connection.request(subject, body);
  };
  return {
    env,
    say,
    /** Says as the server does that the ticket of a new job was offered too often. */
    giveUp: async (service: string, job: NewJob = {}) => {
      const { id } = await env.create({ ...job, service });
      const { state } = await manager.streams.info(`${upper}_JOBS`);
      await say(laneOf(service), advisory({ consumer: laneOf(service), seq: state.last_seq }));
      return id;
    },
    /** Takes the next ticket of a lane and acknowledges it, as older servers do with one that they give up. */
    acknowledge: async (service: string) => {
      const next = `$JS.API.CONSUMER.MSG.NEXT.${upper}_JOBS.${laneOf(service)}`;
      const options = { noMux: true, timeout: 5_000 };
      const delivery = await connection.request(next, JSON.stringify({ batch: 1 }), options);
      await connection.request(delivery.reply ?? "", "+ACK");
    },
    left: async () => (await manager.streams.info(`${upper}_ADVISORIES`)).state.messages,
  };
}

function advisory({ consumer, seq }: { readonly consumer: string; readonly seq: number }): string {
  const type = "io.nats.jetstream.advisory.v1.max_deliver";
  return JSON.stringify({ type, consumer, stream_seq: seq, deliveries: 1_000 });
}

describe("what is no advisory", () => {
  const words = [
    "",
    "no json",
    "null",
    "[]",
    "{}",
    JSON.stringify({ type: "io.nats.jetstream.api.v1.stream_info_response", error: {} }),
    advisory({ consumer: laneOf("shop"), seq: -1 }),
    advisory({ consumer: laneOf("bank"), seq: 1 }),
  ];

  it("is passed over and removed, and those that are one are acted on", async () => {
    const { env, say, giveUp, left } = await deployed();
    for (const word of words) await say(laneOf("shop"), word);
    const id = await giveUp("shop");
    expect(await left()).toBe(words.length + 1);
    env.clock.advance(31_000);
    await env.engine.tend?.("shop");
    expect(await env.load(id)).toMatchObject({ state: "dead", error: { reason: "deliveries" } });
    expect(await left()).toBe(0);
  });
});

describe("a ticket that a server has given up and acknowledged", () => {
  it("is not offered anew by whoever tends the key of its job", async () => {
    const { env, giveUp, acknowledge } = await deployed();
    await env.engine.prepareClaims?.([env.lane()]);
    const id = await giveUp("shop", { key: env.key("k") });
    await acknowledge("shop");
    env.clock.advance(31_000);
    await env.engine.tend?.("shop");
    expect(await env.load(id)).toMatchObject({ state: "dead", error: { reason: "deliveries" } });
  });
});

describe("advisories of other services", () => {
  it("keep nobody from those behind them, and stay for their own keeper", async () => {
    const { env, say, giveUp, left } = await deployed();
    const others = Array.from({ length: actMax + 1 }, (_, place) =>
      say(laneOf("bank"), advisory({ consumer: laneOf("bank"), seq: place + 1 })),
    );
    await Promise.all(others);
    const id = await giveUp("shop");
    env.clock.advance(31_000);
    await env.engine.tend?.("shop");
    expect(await env.load(id)).toMatchObject({ state: "dead" });
    expect(await left()).toBe(others.length);
  });

  it("are acted on by whoever removes what is old, because a keeper of one service may not read them", async () => {
    const { env, giveUp, left } = await deployed();
    const dead = [await giveUp("shop"), await giveUp("bank")];
    await env.engine.prune(0);
    for (const id of dead) expect(await env.load(id)).toMatchObject({ state: "dead" });
    expect(await left()).toBe(0);
  });
});

describe("more advisories than one look reads", () => {
  it("are gone through look by look, each from where the last one ended", async () => {
    const clock = new MovableClock();
    const server = new SimulatedServer({ time: () => clock.monotonic() });
    const memory = new ProjectionMemory();
    const store = () => new MemoryProjectionStore(clock, memory);
    const engine = openSimulated(server, { clock, session: "keeper", store, isOld: false });
    const env = new Environment(engine, clock, async () => engine);
    const { advisories } = server.streams;
    const say = (consumer: string, seq: number) =>
      advisories.publish({
        subject: `advisory.${consumer}`,
        body: advisory({ consumer, seq }),
        headers: {},
      });
    for (let seq = 1; seq <= 2 * readMax; seq++) say(laneOf("bank"), seq);
    const { id } = await env.create();
    say(laneOf("shop"), server.streams.jobs.lastSeq);
    const states: string[] = [];
    for (let look = 0; look < 3; look++) {
      clock.advance(31_000);
      await engine.tend?.("shop");
      states.push((await env.load(id)).state);
    }
    expect(states).toEqual(["pending", "pending", "dead"]);
    expect(advisories.read(">")).toHaveLength(2 * readMax);
    // It begins again with the first ones.
    say(laneOf("shop"), server.streams.jobs.lastSeq);
    for (let look = 0; look < 3; look++) {
      clock.advance(31_000);
      await engine.tend?.("shop");
    }
    expect(advisories.read(">")).toHaveLength(2 * readMax);
    await engine.close();
  });
});

describe("a keeper that cannot do one thing", () => {
  /** A keeper that is refused what a pattern fits. */
  function simulation(pattern: RegExp) {
    const clock = new MovableClock();
    const server = new SimulatedServer({ time: () => clock.monotonic() });
    const memory = new ProjectionMemory();
    const place = { clock, store: () => new MemoryProjectionStore(clock, memory), isOld: false };
    const open = (session: string) => openSimulated(server, { ...place, session });
    const creator = new Environment(open("creator"), clock, async () => open("another"));
    const engine = openSimulated(server, {
      ...place,
      session: "keeper",
      wire: {
        request: async (what, work) => {
          if (pattern.test(what)) throw new StoreFailed({ url: "nats:", message: what });
          return work();
        },
        send: (_, work) => work(),
        arrival: async () => {},
        hinted: (heard) => heard(),
        behindMs: () => 0,
      },
    });
    return { creator, keeper: creator.at(engine), server };
  }

  /** A job whose ticket is acknowledged by somebody who does not run it. */
  async function withoutTicket(env: Environment, server: SimulatedServer): Promise<string> {
    await env.engine.prepareClaims?.([env.lane()]);
    const { id } = await env.create();
    const consumer = server.consumer(laneOf("shop"));
    for (const { seq } of consumer?.fetch(10) ?? []) consumer?.acknowledge(seq);
    return id;
  }

  it("does the rest, and tells of it: the advisories cannot be read", async () => {
    const { creator, keeper, server } = simulation(/^read >$/);
    const id = await withoutTicket(creator, server);
    creator.clock.advance(61_000);
    await expect(keeper.engine.tend?.("shop")).rejects.toThrow("read >");
    const { jobs } = await creator.engine.claim({
      worker: "worker-1",
      limit: 1,
      lanes: [creator.lane()],
    });
    expect(jobs.map(({ job }) => job.id)).toEqual([id]);
  });

  it("does the rest, and tells of it: one job cannot be offered", async () => {
    const { creator, keeper, server } = simulation(/^publish .*first.*ready/);
    const lost = await withoutTicket(creator, server);
    const runAt = creator.now + 60_000;
    await creator.create({ id: "first", runAt });
    await creator.create({ id: "second", runAt });
    creator.clock.advance(61_000);
    await expect(keeper.engine.tend?.("shop")).rejects.toThrow("first");
    const ask = { worker: "worker-1", limit: 10, lanes: [creator.lane()] };
    const { jobs } = await creator.engine.claim(ask);
    expect([...ids(jobs.map(({ job }) => job))].sort()).toEqual([lost, "second"].sort());
  });
});
