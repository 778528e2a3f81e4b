// Hints of the JetStream engine: they tell a worker where to look, and are believed no further than that.
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import { ids } from "#millrace/conformance/environment.js";
import { FoundEmpty } from "#millrace/engine/nats/found-empty.js";
import { hintText, holds, joined, News, readHint, Told } from "#millrace/engine/nats/news.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { SimulatedServer, type Wire } from "../simulation/nats/server.js";

const lanes = [{ type: "mail" }, { type: "report" }] as const;

/** A worker on a simulated server, what it has asked the server, and a process that creates jobs for it. */
async function deployment() {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  const asked: string[] = [];
  const state = { hears: true, knowsPauses: true };
  const wire: Wire = {
    request: async (what, work) => {
      asked.push(what);
      if (!state.knowsPauses && what.includes("queue")) throw new Error("The record is away.");
      return work();
    },
    send: (_what, work) => work(),
    arrival: async () => {},
    hinted: (heard) => state.hears && heard(),
    behindMs: () => 0,
  };
  const open = (session: string, own?: Wire) =>
    openSimulated(server, {
      clock,
      session,
      store: () => new MemoryProjectionStore(clock, memory),
      isOld: false,
      ...(own && { wire: own }),
    });
  const engine = open("worker", wire);
  const worker = new Environment(engine, clock, async () => engine);
  const creator = worker.at(open("creator"));
  engine.wake("ready", () => {});
  return { clock, worker, creator, state, asked };
}

type Deployed = Awaited<ReturnType<typeof deployment>>;

/** Claims as a worker does, and gives what was claimed and which consumers were asked. */
async function look({ worker, asked }: Deployed, name = "worker-1", limit = 100) {
  asked.length = 0;
  const ask = { worker: name, limit, lanes: lanes.map((lane) => worker.lane(lane)) };
  const { jobs } = await worker.engine.claim(ask);
  const fetched = asked.filter((what) => what.startsWith("fetch ")).map((what) => what.slice(6));
  return { jobs: ids(jobs.map(({ job }) => job)), fetched, asked: [...asked] };
}

describe("a worker that found nothing the last time", () => {
  it("asks the consumer alone that a hint names, and whether its queue is paused", async () => {
    const deployed = await deployment();
    expect((await look(deployed)).fetched).toHaveLength(6);
    const job = await deployed.creator.create({ type: "mail" });
    const { jobs, fetched, asked } = await look(deployed);
    expect(jobs).toEqual([job.id]);
    expect(fetched).toEqual(["shop~mail~mail~v1-normal"]);
    expect(asked.filter((what) => what.includes("queue"))).toHaveLength(1);
  });

  it("asks nobody when a hint names a lane that is not its own", async () => {
    const deployed = await deployment();
    await look(deployed);
    await deployed.creator.create({ type: "other" });
    expect((await look(deployed)).asked).toEqual([]);
  });

  it("looks at everything without a hint", async () => {
    const deployed = await deployment();
    await look(deployed);
    expect((await look(deployed)).fetched).toHaveLength(6);
  });

  it("finds a job whose hint was lost within a second, however many others are told of", async () => {
    const deployed = await deployment();
    await look(deployed);
    deployed.state.hears = false;
    const lost = await deployed.creator.create({ type: "report" });
    deployed.state.hears = true;
    await deployed.creator.create({ type: "mail" });
    expect((await look(deployed)).jobs).not.toContain(lost.id);
    deployed.clock.advance(1_000);
    await deployed.creator.create({ type: "mail" });
    expect((await look(deployed)).jobs).toContain(lost.id);
  });

  it("knows what was found for another worker of its process", async () => {
    const deployed = await deployment();
    await look(deployed);
    const job = await deployed.creator.create({ type: "mail" });
    const { jobs, fetched } = await look(deployed, "worker-2");
    expect(jobs).toEqual([job.id]);
    expect(fetched).toEqual(["shop~mail~mail~v1-normal"]);
  });

  it("starts nothing of a queue that is paused", async () => {
    const deployed = await deployment();
    await look(deployed);
    const id = "queue/shop/mail";
    await deployed.creator.engine.swap([{ id, expect: 0, body: { paused: true } }]);
    await look(deployed);
    await deployed.creator.create({ type: "mail" });
    expect((await look(deployed)).jobs).toEqual([]);
  });
});

describe("a worker that has more to do than it has places", () => {
  /** A worker that knows that only mail waits, more than it takes at once. */
  async function busy() {
    const deployed = await deployment();
    for (let count = 0; count < 6; count++) await deployed.creator.create({ type: "mail" });
    expect((await look(deployed, "worker-1", 2)).jobs).toHaveLength(2);
    return deployed;
  }

  it("asks no consumer that was found empty, and finds the rest", async () => {
    const deployed = await busy();
    const { jobs, fetched } = await look(deployed, "worker-1", 2);
    expect(jobs).toHaveLength(2);
    expect(new Set(fetched)).toEqual(new Set(["shop~mail~mail~v1-normal"]));
  });

  it("asks one again that a hint tells of", async () => {
    const deployed = await busy();
    const urgent = await deployed.creator.create({ type: "report", priority: 100 });
    const { jobs, fetched } = await look(deployed, "worker-1", 2);
    expect(jobs).toContain(urgent.id);
    expect(fetched[0]).toBe("shop~report~report~v1-high");
  });

  it("asks all again after a second, since hints may be lost", async () => {
    const deployed = await busy();
    deployed.state.hears = false;
    const lost = await deployed.creator.create({ type: "report", priority: 100 });
    expect((await look(deployed, "worker-1", 2)).jobs).not.toContain(lost.id);
    deployed.clock.advance(1_000);
    expect((await look(deployed, "worker-1", 2)).jobs).toContain(lost.id);
  });

  it("starts nothing of a queue that was paused while tickets were on their way", async () => {
    const deployed = await busy();
    await deployed.creator.engine.swap([
      { id: "queue/shop/mail", expect: 0, body: { paused: true } },
    ]);
    expect((await look(deployed, "worker-1", 2)).jobs).toEqual([]);
    await deployed.creator.engine.swap([
      { id: "queue/shop/mail", expect: 1, body: { paused: false } },
    ]);
    expect((await look(deployed, "worker-1", 2)).jobs).toHaveLength(2);
  });
});

describe("a worker that cannot tell whether a queue is paused", () => {
  it("starts nothing of it, and gives back at once what it took", async () => {
    const deployed = await deployment();
    const jobs = await Promise.all([1, 2, 3].map(() => deployed.creator.create({ type: "mail" })));
    expect((await look(deployed, "worker-1", 1)).jobs).toHaveLength(1);
    deployed.state.knowsPauses = false;
    await expect(look(deployed, "worker-1", 1)).rejects.toThrow("The record is away.");
    deployed.state.knowsPauses = true;
    expect((await look(deployed)).jobs).toHaveLength(jobs.length - 1);
  });
});

describe("consumers that were found empty", () => {
  const now = { at: 1_000 };
  const found = (isHeard = true) =>
    new FoundEmpty(
      () => now.at,
      () => isHeard,
    );

  it("are believed to be empty until a hint tells of them", () => {
    const empty = found();
    empty.ask("a")();
    empty.ask("b")();
    empty.told(new Set(["a"]));
    expect([empty.has("a"), empty.has("b")]).toEqual([false, true]);
    empty.told(null);
    expect(empty.has("b")).toBe(false);
  });

  it("are not, if the hint came while they were asked", () => {
    const empty = found();
    const [first, second] = [empty.ask("a"), empty.ask("b")];
    empty.told(new Set(["a"]));
    first();
    second();
    expect([empty.has("a"), empty.has("b")]).toEqual([false, true]);
    const third = empty.ask("b");
    empty.told(null);
    third();
    expect(empty.has("b")).toBe(false);
  });

  it("are not where nobody hears hints", () => {
    const empty = found(false);
    empty.ask("a")();
    expect(empty.has("a")).toBe(false);
  });

  it("are believed for less than a second, also when the clock goes back", () => {
    const empty = found();
    empty.ask("a")();
    now.at += 999;
    expect(empty.has("a")).toBe(true);
    now.at += 1;
    expect(empty.has("a")).toBe(false);
    empty.ask("a")();
    now.at -= 5;
    expect(empty.has("a")).toBe(false);
  });
});

describe("a keeper", () => {
  it("does not look because of jobs that workers can claim at once, but for a second", async () => {
    const deployed = await deployment();
    const { worker, creator, asked, clock } = deployed;
    await worker.engine.tend?.("shop");
    asked.length = 0;
    await creator.create({ type: "mail" });
    await worker.engine.tend?.("shop");
    // Whoever brings the view up to date looks at this by itself.
    const byKeeper = () => asked.filter((question) => !question.endsWith(".forgotten"));
    expect(byKeeper()).toEqual([]);
    clock.advance(1_000);
    await creator.create({ type: "mail" });
    await worker.engine.tend?.("shop");
    expect(byKeeper()).not.toEqual([]);
  });

  it("looks because of a job that waits for its time, and tells when that comes", async () => {
    const { worker, creator, clock } = await deployment();
    expect(await worker.engine.tend?.("shop")).toBeNull();
    const runAt = clock.now() + 500;
    await creator.create({ type: "mail", runAt });
    await creator.create({ type: "mail" });
    expect(await worker.engine.tend?.("shop")).toBe(runAt);
    clock.advance(500);
    await creator.create({ type: "mail" });
    expect(await worker.engine.tend?.("shop")).toBeNull();
  });
});

describe("the text of a hint", () => {
  it("names its sender and the consumers", () => {
    const text = hintText("me", new Set(["a", "b"]));
    expect(readHint(text)).toEqual({ from: "me", where: new Set(["a", "b"]) });
  });

  it("may be about anything, as that of earlier versions always is", () => {
    expect(readHint(hintText("me", null))).toEqual({ from: "me", where: null });
    expect(hintText("me", null)).toBe("me");
  });

  it("names no consumers where there are many", () => {
    const many = new Set(Array.from({ length: 17 }, (_, index) => `consumer-${index}`));
    expect(hintText("me", many)).toBe("me");
  });
});

describe("what hints have told", () => {
  it("is new to each of those who share them, once", () => {
    const told = new Told();
    expect(told.isNewTo("shop")).toBe(false);
    told.note(new Set(["a"]));
    expect(told.isNewTo("shop")).toBe(false);
    told.note(null);
    expect([told.isNewTo("shop"), told.isNewTo("bank")]).toEqual([true, true]);
    expect([told.isNewTo("shop"), told.isNewTo("bank")]).toEqual([false, false]);
  });
});

describe("news", () => {
  it("are of anything at first, and of what came since then", () => {
    const news = new News();
    expect(news.take()).toBeNull();
    expect(news.take()).toEqual(new Set());
    news.add(new Set(["a"]));
    news.add(new Set(["b"]));
    expect(news.take()).toEqual(new Set(["a", "b"]));
    news.add(new Set(["a"]));
    news.add(null);
    news.add(new Set(["b"]));
    expect(news.take()).toBeNull();
  });

  it("are of anything when there are too many to remember", () => {
    const news = new News();
    news.take();
    for (let index = 0; index < 300; index++) news.add(new Set([`consumer-${index}`]));
    expect(news.take()).toBeNull();
  });

  it("hold what whoever looks there sees anyway", () => {
    expect(holds(new Set(["a", "b"]), new Set(["a"]))).toBe(true);
    expect(holds(new Set(["a"]), new Set(["a", "b"]))).toBe(false);
    expect(holds(null, new Set(["a"]))).toBe(true);
    expect(holds(new Set(["a"]), null)).toBe(false);
  });

  it("join", () => {
    expect(joined(new Set(["a"]), new Set(["b"]))).toEqual(new Set(["a", "b"]));
    expect(joined(null, new Set(["b"]))).toBeNull();
  });
});
