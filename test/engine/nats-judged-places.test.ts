// Places under keys and caps on JetStream that somebody judges while somebody else renews them: only what was judged is taken
// away, so that no limit is exceeded, and what could not be done is tried again.
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it, onTestFinished } from "vitest";
import { ids } from "#millrace/conformance/environment.js";
import { StoreFailed } from "#millrace/engine/errors.js";
import { apiFault } from "#millrace/engine/nats/faults.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { plainWire, SimulatedServer } from "../simulation/nats/server.js";
import { drain, signal } from "../support/nats-engine.js";

/** Stands between a process and the server. `go` carries out what is asked. */
type Between = (what: string, go: () => unknown) => unknown;

/** Longer than a place may be ahead of the log. */
const longMs = 11_000;

/** A deployment on a simulated server, where time passes only by the test's clock. */
function deployed() {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  let count = 0;
  const open = (between: Between = (_, go) => go()) => {
    count += 1;
    const engine = openSimulated(server, {
      clock,
      session: `process-${count}`,
      store: () => new MemoryProjectionStore(clock, memory),
      isOld: false,
      rest: async () => {},
      wire: {
        ...plainWire,
        request: async <Answer>(what: string, work: () => Answer) =>
          (await between(what, work)) as Answer,
      },
    });
    onTestFinished(() => engine.close());
    return engine;
  };
  const env = new Environment(open(), clock, async () => open());
  return { env, process: (between: Between) => env.at(open(between)) };
}

const stores = (event: string) => (what: string) =>
  what.startsWith("publish millrace.jobs.") && what.includes(`.${event}`);

/** Somebody who has a place under a key and sleeps before its job is stored, and somebody who gives it up meanwhile. */
function sleeperAndJudge() {
  const { env, process } = deployed();
  const [placed, woken] = [signal(), signal()];
  const isStart = stores("late.created");
  let isAwake = false;
  const sleeper = process(async (what, go) => {
    if (isStart(what) && !isAwake) {
      isAwake = true;
      placed.give();
      await woken.given;
    }
    return go();
  });
  let late: Promise<unknown> = Promise.resolve();
  const judge = process(async (what, go) => {
    const answer = go();
    // The sleeper is refused, comes back to its place, and is stored before the place is taken away.
    if (stores("late.deleted")(what)) {
      woken.give();
      await late;
    }
    return answer;
  });
  const sleep = async (key: ReturnType<Environment["key"]>) => {
    const change = sleeper.append(sleeper.creation({ id: "late", key }));
    late = change;
    await placed.given;
    return { stored: change };
  };
  return { env, judge, sleep };
}

describe("a place under a key that is renewed after it was given up", () => {
  it("stays where another create gave it up", async () => {
    const { env, judge, sleep } = sleeperAndJudge();
    const key = env.key("k", { maxQueued: 0, whenFull: "coalesce" });
    const { stored } = await sleep(key);
    const outcome = await judge.append(judge.creation({ key }));
    expect((await stored).outcome).toBe("appended");
    expect(outcome).toMatchObject({
      outcome: "not_admitted",
      admission: { outcome: "coalesced", existingJobId: "late" },
    });
    expect(await drain(env)).toEqual(["late"]);
  });

  it("stays until its job is replaced, where another create replaces it", async () => {
    const { env, judge, sleep } = sleeperAndJudge();
    const key = env.key("k", { maxQueued: 0, whenFull: "replace-oldest" });
    const { stored } = await sleep(key);
    const next = judge.creation({ key });
    expect((await judge.append(next)).outcome).toBe("appended");
    expect((await stored).outcome).toBe("appended");
    expect(await env.historyNames("late")).toEqual(["created", "skipped"]);
    expect(await drain(env)).toEqual([next.job.id]);
  });

  it("stays where a keeper gave it up", async () => {
    const { env, judge, sleep } = sleeperAndJudge();
    const key = env.key("k", { maxQueued: 0 });
    const { stored } = await sleep(key);
    env.clock.advance(longMs);
    await judge.engine.tend?.("shop");
    expect((await stored).outcome).toBe("appended");
    expect((await env.append(env.creation({ key }))).outcome).toBe("not_admitted");
    expect(await drain(env)).toEqual(["late"]);
  });
});

describe("a place under a cap that is given up", () => {
  it("takes no place of another claim with it", async () => {
    const { env, process } = deployed();
    const lane = { typeMaxActive: 2 };
    await env.engine.prepareClaims?.([env.lane(lane)]);
    const { id } = await env.create();
    const [placed, woken] = [signal(), signal()];
    const sleeper = process(async (what, go) => {
      if (stores(`${id}.started`)(what)) {
        placed.give();
        await woken.given;
      }
      return go();
    });
    const ask = { worker: "worker-1", limit: 1, lanes: [env.lane(lane)] };
    const late = sleeper.engine.claim(ask);
    await placed.given;
    env.clock.advance(longMs);
    const keeper = process(async (what, go) => {
      const answer = go();
      if (stores(`${id}.ready`)(what))
        expect((await env.engine.claim(ask)).jobs.map(({ job }) => job.id)).toEqual([id]);
      return answer;
    });
    await keeper.engine.tend?.("shop");
    woken.give();
    expect((await late).jobs).toEqual([]);
    const [cap] = await env.engine.records(["cap/shop/type/mail"]);
    expect(cap?.body).toMatchObject([{ id, token: 1 }]);
  });
});

describe("a place under a key that two creates of one id share", () => {
  it("stays where the second is refused and the first is stored", async () => {
    const { env, process } = deployed();
    const key = env.key("k", { maxQueued: 0 });
    const [placed, shared] = [signal(), signal()];
    const first = process(async (what, go) => {
      if (stores("same.created")(what)) {
        placed.give();
        await shared.given;
      }
      return go();
    });
    const one = first.append(first.creation({ id: "same", key }));
    await placed.given;
    const second = process(async (what, go) => {
      if (!stores("same.created")(what)) return go();
      shared.give();
      await one;
      const said = { code: 400, err_code: 10077, description: "maximum messages exceeded" };
      throw apiFault(said, "nats:");
    });
    const two = await second.append(second.creation({ id: "same", key }));
    expect(two).toMatchObject({ outcome: "faulted", error: { _tag: "StoreFull" } });
    expect((await one).outcome).toBe("appended");
    expect((await env.append(env.creation({ key }))).outcome).toBe("not_admitted");
    expect(await drain(env)).toEqual(["same"]);
  });
});

describe("a job under a key whose time has come", () => {
  it("is offered again by a keeper that could not give it a slot", async () => {
    const { env, process } = deployed();
    const { id } = await env.create({ key: env.key("k"), runAt: env.now + 1_000 });
    let isRefused = true;
    const keeper = process((what, go) => {
      if (!isRefused || !/^publish \$KV\..*\.key\./.test(what)) return go();
      isRefused = false;
      throw new StoreFailed({ url: "nats:", message: "It was refused." });
    });
    env.clock.advance(1_000);
    await expect(keeper.engine.tend?.("shop")).rejects.toThrow("It was refused.");
    await keeper.engine.tend?.("shop");
    const ask = { worker: "worker-1", limit: 1, lanes: [env.lane()] };
    const { jobs } = await env.engine.claim(ask);
    expect(ids(jobs.map(({ job }) => job))).toEqual([id]);
  });
});

describe("a claim that looks at a job again while others are stored", () => {
  it("leaves no fault that nobody waits for", async () => {
    const { env, process } = deployed();
    const lane = { typeMaxActive: 3 };
    await env.engine.prepareClaims?.([env.lane(lane)]);
    const { id } = await env.create({ deadline: env.now + 1_000 });
    const other = await env.create();
    const unhandled: unknown[] = [];
    const noted = (error: unknown) => void unhandled.push(error);
    globalThis.process.on("unhandledRejection", noted);
    onTestFinished(() => void globalThis.process.off("unhandledRejection", noted));
    const worker = process(async (what, go) => {
      // Places take so long that the deadline comes, and the job that is looked at again cannot be read.
      if (/^publish \$KV\..*\.cap\./.test(what)) env.clock.advance(1_000);
      if (what.startsWith("read ") && what.includes(id))
        throw new StoreFailed({ url: "nats:", message: "It cannot be read." });
      if (stores(`${other.id}.started`)(what))
        await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
      return go();
    });
    const ask = { worker: "worker-1", limit: 10, lanes: [env.lane(lane)] };
    const { jobs } = await worker.engine.claim(ask);
    expect(ids(jobs.map(({ job }) => job))).toEqual([other.id]);
    expect(unhandled).toEqual([]);
  });
});

describe("a job whose lease has lapsed and that is ended from outside", () => {
  const lane = { typeMaxActive: 1 };

  /** Ends a running job, while its worker renews its lease just before a step of that. */
  async function endedWhileRenewed(isMeant: (what: string) => boolean) {
    const { env, process } = deployed();
    const [running] = await env.createMany(2);
    const job = await env.claimOne(lane);
    expect(job.id).toBe(running?.id);
    env.clock.advance(30_001);
    const renewals: unknown[] = [];
    const other = process(async (what, go) => {
      if (renewals.length === 0 && isMeant(what))
        renewals.push(...(await env.engine.renew([{ job, token: job.token, leaseMs: 30_000 }])));
      return go();
    });
    await other.command(job.id, { command: "cancel", force: true });
    const ask = { worker: "worker-2", limit: 1, lanes: [env.lane(lane)] };
    const { jobs } = await env.engine.claim(ask);
    return { renewal: renewals[0], claimed: jobs.length };
  }

  it("keeps its place where its worker has renewed it before it is struck out", async () => {
    const ended = await endedWhileRenewed((what) => /^publish \$KV\..*\.leases\./.test(what));
    expect(ended).toMatchObject({ renewal: { outcome: "held" }, claimed: 0 });
  });

  it("leaves its place where its worker comes too late, and is told so", async () => {
    const ended = await endedWhileRenewed(stores("cancelled"));
    expect(ended).toMatchObject({ renewal: { outcome: "lost" }, claimed: 1 });
  });
});

it("a lease that was struck out is found again by the next keeper, also while its worker asks to renew it", async () => {
  const { env, process } = deployed();
  const { id } = await env.create();
  const job = await env.claimOne();
  const lapsed = () => env.engine.due({ kind: "lapsed", service: job.service }, 10);
  expect(await lapsed()).toEqual([]);
  env.clock.advance(30_001);
  const fault = apiFault({ code: 503, err_code: 10_077, description: "full" }, "nats:");
  const keeper = process((what, go) => {
    if (stores("retry")(what)) throw fault;
    return go();
  });
  await expect(keeper.lapse(id)).rejects.toThrow("faulted");
  const [renewal] = await env.engine.renew([{ job, token: job.token, leaseMs: 30_000 }]);
  expect(renewal).toEqual({ outcome: "lost", state: "active" });
  expect(ids(await lapsed())).toEqual([id]);
});

it("a place that another process has renewed is looked at when that runs out, though the view was not told", async () => {
  const { env, process } = deployed();
  const other = process((_, go) => go());
  const leaseMs = 30_000;
  const key = env.key("k");
  const { id } = await env.create({ key });
  const job = await env.claimOne();
  await env.create({ key });
  await env.command(id, { command: "cancel", force: true });
  env.clock.advance(leaseMs - 1);
  await other.engine.renew([{ job, token: job.token, leaseMs }]);
  const until = env.now + leaseMs;
  env.clock.advance(1);
  expect(await env.engine.tend?.(job.service)).toBe(until);
});
