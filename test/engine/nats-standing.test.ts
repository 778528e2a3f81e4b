// Asks that stand at consumers: a ticket comes to an idle worker by itself, and stays with nobody who cannot run its job.
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import { defaults, ids } from "#millrace/conformance/environment.js";
import type { ClaimAsk } from "#millrace/engine/engine.js";
import { hintText } from "#millrace/engine/nats/news.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { SimulatedServer, type Wire } from "../simulation/nats/server.js";
import { Deployment } from "../support/nats-engine.js";

/** Resolves when everything is done that can be done without time passing. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

interface Worker {
  readonly env: Environment;
  /** What it has asked the server for. */
  readonly asked: string[];
  /** How often it was told to look. */
  rung: number;
  /** Whether hints reach it. */
  hears: boolean;
}

function simulation() {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  const open = (session: string, wire?: Wire) =>
    openSimulated(server, {
      clock,
      session,
      store: () => new MemoryProjectionStore(clock, memory),
      isOld: false,
      ...(wire && { wire }),
    });
  const creator = new Environment(open("creator"), clock, async () => open("another"));
  const worker = (name: string): Worker => {
    const asked: string[] = [];
    const engine = open(name, {
      request: async (what, work) => {
        asked.push(what);
        return work();
      },
      send: (what, work) => {
        asked.push(what);
        work();
      },
      arrival: async () => {},
      hinted: (heard) => {
        if (made.hears) heard();
      },
      behindMs: () => 0,
    });
    const made: Worker = { env: creator.at(engine), asked, rung: 0, hears: true };
    engine.wake("ready", () => {
      made.rung += 1;
    });
    return made;
  };
  return { clock, server, creator, worker };
}

type Lane = Parameters<Environment["lane"]>[0];

async function claim({ env, asked }: Worker, lane: Lane = { type: "mail" }, free = 10) {
  const from = asked.length;
  const ask: ClaimAsk = { worker: "worker-1", limit: free, lanes: [env.lane({ ...lane, free })] };
  const { jobs } = await env.engine.claim(ask);
  return { jobs: ids(jobs.map(({ job }) => job)), asked: asked.slice(from) };
}

/** A worker that has run a job, found nothing after it, and hears no hints of what comes next unless it is to. */
async function idle(deployed: ReturnType<typeof simulation>, name = "idle", lane?: Lane) {
  const worker = deployed.worker(name);
  const job = await deployed.creator.create({ type: "mail" });
  // Another worker may have to give it back first.
  await settled();
  expect((await claim(worker, lane)).jobs).toEqual([job.id]);
  expect((await claim(worker, lane)).jobs).toEqual([]);
  worker.rung = 0;
  return worker;
}

const consumer = "shop~mail~mail~v1-normal";
const pause = { id: "queue/shop/mail", expect: 0, body: { paused: true } } as const;

describe("a worker that found nothing", () => {
  it("is handed the next ticket, and starts its job without asking for anything", async () => {
    const deployed = simulation();
    const worker = await idle(deployed);
    worker.hears = false;
    const claims: ReturnType<typeof claim>[] = [];
    worker.env.engine.wake("ready", () => claims.push(claim(worker)));
    const job = await deployed.creator.create({ type: "mail" });
    await settled();
    expect(claims).toHaveLength(1);
    const { jobs, asked } = (await claims[0]) ?? { jobs: [], asked: [] };
    expect(jobs).toEqual([job.id]);
    expect(asked.map((what) => what.split(" ")[0])).toEqual(["publish"]);
  });

  it("asks whether the queue is paused when it last knew a second ago", async () => {
    const deployed = simulation();
    const worker = await idle(deployed);
    deployed.clock.advance(1_000);
    const claims: ReturnType<typeof claim>[] = [];
    worker.hears = false;
    worker.env.engine.wake("ready", () => claims.push(claim(worker)));
    const job = await deployed.creator.create({ type: "mail" });
    await settled();
    expect((await claims[0])?.jobs).toEqual([job.id]);
    expect((await claims[0])?.asked.filter((what) => what.startsWith("last"))).toHaveLength(1);
  });

  it("leaves no ask where it has had nothing", async () => {
    const deployed = simulation();
    const worker = deployed.worker("new");
    expect((await claim(worker)).asked).not.toContain(`wait for ${consumer}`);
  });

  it("leaves no ask under a cap, whose tickets would come again and again", async () => {
    const deployed = simulation();
    const worker = await idle(deployed, "capped", { type: "mail", typeMaxActive: 5 });
    expect(worker.asked).not.toContain(`wait for ${consumer}`);
  });

  it("looks at what hints told of while it started what came by itself", async () => {
    const deployed = simulation();
    const worker = await idle(deployed);
    const claims: ReturnType<typeof claim>[] = [];
    worker.env.engine.wake("ready", () => claims.push(claim(worker)));
    const jobs = await Promise.all([1, 2].map(() => deployed.creator.create({ type: "mail" })));
    await settled();
    const found = await Promise.all(claims);
    expect(found.flatMap((each) => each.jobs).sort()).toEqual([...ids(jobs)].sort());
  });
});

describe("a hint at what comes by itself", () => {
  /** Two workers with asks at the same consumer, the first of which gets the next ticket. */
  async function twoIdle() {
    const deployed = simulation();
    const second = await idle(deployed, "second");
    const first = await idle(deployed, "first");
    expect((await claim(second)).jobs).toEqual([]);
    first.env.engine.wake("ready", () => void claim(first));
    const created = deployed.creator.create({ type: "mail" });
    second.rung = 0;
    return { ...deployed, second, job: await created };
  }

  it("leads to no look, unless nothing has come after a while", async () => {
    const { second, clock, creator, job } = await twoIdle();
    await settled();
    expect(second.rung).toBe(0);
    clock.advance(50);
    expect(second.rung).toBe(1);
    const { jobs, asked } = await claim(second);
    expect(jobs).toEqual([]);
    expect(asked).toContain(`fetch ${consumer}`);
    expect((await creator.load(job.id)).state).toBe("active");
  });

  it("leads to none the next time either, if the look found nothing", async () => {
    const { second, clock, server } = await twoIdle();
    clock.advance(50);
    const told = () =>
      server.hint("millrace.hints.ready.shop", hintText("somebody", new Set([consumer])));
    second.rung = 0;
    told();
    expect(second.rung).toBe(1);
    await claim(second);
    told();
    expect(second.rung).toBe(1);
  });
});

describe("a ticket that nobody takes", () => {
  it("is given back at once, and others are told", async () => {
    const deployed = simulation();
    const [full, other] = [await idle(deployed, "full"), deployed.worker("other")];
    other.rung = 0;
    full.hears = false;
    const job = await deployed.creator.create({ type: "mail" });
    await settled();
    // When the job was sent and when it was stored, and then because of the ticket.
    expect(other.rung).toBe(3);
    expect((await claim(other)).jobs).toEqual([job.id]);
  });

  it("is given back when the engine is closed", async () => {
    const deployed = simulation();
    const [closed, other] = [await idle(deployed, "closed"), deployed.worker("other")];
    await closed.env.engine.close();
    const job = await deployed.creator.create({ type: "mail" });
    await settled();
    expect((await claim(other)).jobs).toEqual([job.id]);
  });
});

describe("a queue that is paused", () => {
  it("starts nothing that comes by itself, and no ask stands there", async () => {
    const deployed = simulation();
    const worker = await idle(deployed);
    const claims: ReturnType<typeof claim>[] = [];
    await deployed.creator.engine.swap([pause]);
    worker.env.engine.wake("ready", () => claims.push(claim(worker)));
    const job = await deployed.creator.create({ type: "mail" });
    await settled();
    const found = await Promise.all(claims);
    expect(found.flatMap(({ jobs }) => jobs)).toEqual([]);
    expect((await claim(worker)).asked).not.toContain(`wait for ${consumer}`);
    await deployed.creator.engine.swap([{ ...pause, expect: 1, body: { paused: false } }]);
    await settled();
    const started = (await Promise.all(claims)).flatMap(({ jobs }) => jobs);
    expect([...started, ...(await claim(worker)).jobs]).toEqual([job.id]);
  });
});

describe("on a server", () => {
  /** Claims until there is something, each time after the last has ended: a hint may come before what it tells of. */
  async function nextJob(env: Environment): Promise<readonly string[]> {
    for (;;) {
      const { jobs } = await env.engine.claim({ worker: "w", limit: 10, lanes: [env.lane({})] });
      if (jobs.length > 0) return ids(jobs.map(({ job }) => job));
      await settled();
    }
  }

  it("a ticket that was given out to a process that closes goes to another one at once", {
    // Less than the lease after which the server offers a ticket anew.
    timeout: defaults.leaseMs / 2,
  }, async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const closing = await deployment.process((_, go) => go());
    closing.engine.wake("ready", () => {});
    const first = await env.create({});
    expect(ids(await closing.claim())).toEqual([first.id]);
    expect(await closing.claim()).toEqual([]);
    const other = nextJob(env);
    const [job] = await Promise.all([env.create({}), closing.engine.close()]);
    expect(await other).toEqual([job.id]);
  });
});
