// Thousands of jobs that wait for their time, for a key or for a paused queue, beside some that can run: those run, and what
// a keeper asks for in one look does not grow with the others.
import { Environment, MovableClock } from "millrace/conformance";
import { expect, it, onTestFinished } from "vitest";
import { ids, type NewJob } from "#millrace/conformance/environment.js";
import type { JobKeyPolicy } from "#millrace/core/job.js";
import type { KeyState } from "#millrace/engine/nats/key-state.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { plainWire, SimulatedServer } from "../simulation/nats/server.js";

/** The most that one look may ask the server, for how many jobs, and how many rows of the view. */
const requestsMax = 600;
const jobsMax = 1_200;
const rowsMax = 1_000;

/** The most jobs that one look may ask for where there is one key. */
const jobsOfKeyMax = 120;

/** A deployment, and what its keeper has asked for. */
function deployed() {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  const asked = { requests: 0, jobs: 0, rows: 0 };
  let isKeepers = false;
  const { jobs } = server.streams;
  const lastOfEach = jobs.lastOfEach.bind(jobs);
  jobs.lastOfEach = (filters, agoMs) => {
    if (isKeepers) asked.jobs += filters.length;
    return lastOfEach(filters, agoMs);
  };
  const open = (session: string, isKeeper: boolean) => {
    const engine = openSimulated(server, {
      clock,
      session,
      isOld: false,
      store: () => {
        const store = new MemoryProjectionStore(clock, memory);
        const read: typeof store.read = (kind, ask) => {
          if (isKeeper && kind === "tickets") asked.rows += (ask as { limit: number }).limit;
          return MemoryProjectionStore.prototype.read.call(store, kind, ask) as never;
        };
        return Object.assign(store, { read });
      },
      wire: {
        ...plainWire,
        request: async (_what, work) => {
          if (isKeeper) asked.requests += 1;
          isKeepers = isKeeper;
          const answer = work();
          isKeepers = false;
          return answer;
        },
      },
    });
    onTestFinished(() => engine.close());
    return engine;
  };
  const env = new Environment(open("workers", false), clock, async () => open("another", false));
  const keeper = env.at(open("keeper", true));
  /** The keeper looks once; gives what it has asked for. */
  const look = async () => {
    Object.assign(asked, { requests: 0, jobs: 0, rows: 0 });
    await keeper.engine.tend?.("shop");
    return { ...asked };
  };
  const createAll = async (count: number, job: (place: number) => NewJob) => {
    const creations = Array.from({ length: count }, (_, place) => env.creation(job(place)));
    const outcomes = await env.engine.append(creations);
    expect(outcomes.every(({ outcome }) => outcome === "appended")).toBe(true);
    return creations.map((creation) => creation.job.id);
  };
  return { env, look, createAll };
}

const lanes = [{}, { type: "print" }];

it("thousands of jobs that wait keep neither workers nor keepers from their work", {
  timeout: 120_000,
}, async () => {
  const { env, look, createAll } = deployed();
  const hourMs = 3_600_000;
  await env.engine.swap([{ id: "queue/shop/print", expect: 0, body: { paused: true } }]);
  await env.engine.prepareClaims?.(lanes.map((lane) => env.lane(lane)));
  const keys = Array.from({ length: 30 }, (_, place) => env.key(`k${place}`));
  await createAll(2_000, () => ({ runAt: env.now + hourMs }));
  await createAll(2_000, () => ({ type: "print" }));
  await createAll(3_000, (place) => ({ key: keys[place % keys.length] as JobKeyPolicy }));
  // Each key is busy with one job.
  const busy = await env.claim(lanes);
  expect(busy).toHaveLength(keys.length);
  const runnable = await createAll(20, () => ({}));
  for (let turn = 0; turn < 20; turn++) {
    env.clock.advance(5_000);
    await env.engine.renew(busy.map((job) => ({ job, token: job.token, leaseMs: 30_000 })));
    const { requests, jobs, rows } = await look();
    expect(requests).toBeLessThan(requestsMax);
    expect(jobs).toBeLessThan(jobsMax);
    expect(rows).toBeLessThanOrEqual(rowsMax);
  }
  expect([...ids(await env.claim(lanes))].sort()).toEqual([...runnable].sort());
  // What each key frees is the next job's.
  for (const job of busy) await env.complete(job);
  expect(await env.claim(lanes)).toHaveLength(keys.length);
});

it("a job whose time comes is offered at once, however many keyed ones compete since theirs came", {
  timeout: 120_000,
}, async () => {
  const { env, look, createAll } = deployed();
  await env.engine.prepareClaims?.([env.lane()]);
  const key = env.key("k", { maxQueued: 2_000 });
  await createAll(1, () => ({ key }));
  const [busy] = await env.claim();
  await createAll(1_600, () => ({ key, runAt: env.now + 1_000 }));
  env.clock.advance(1_000);
  for (let turn = 0; turn < 10; turn++) {
    const { rows } = await look();
    expect(rows).toBeLessThanOrEqual(rowsMax);
  }
  const { id } = await env.create({ runAt: env.now + 1_000 });
  env.clock.advance(1_000);
  await look();
  expect(ids(await env.claim())).toEqual([id]);
  expect(busy?.state).toBe("active");
});

it("a place that its process left behind is found among many that are in order", {
  timeout: 120_000,
}, async () => {
  const { env, look, createAll } = deployed();
  const key = env.key("k", { maxQueued: 500 });
  await createAll(300, () => ({ key }));
  const [busy] = await env.claim();
  // It ends in the log alone, as where a process dies before it gives its place back.
  const last = (await createAll(1, () => ({ key })))[0] as string;
  const recordId = `key/shop/${key.hash}`;
  const [before] = await env.engine.records([recordId]);
  await env.command(last, { command: "cancel", reason: "enough", force: true });
  const [after] = await env.engine.records([recordId]);
  await env.engine.swap([
    { id: recordId, expect: after?.version ?? 0, body: before?.body ?? null },
  ]);
  expect(await isMember(env, recordId, last)).toBe(true);
  for (let turn = 0; turn < 10; turn++) {
    env.clock.advance(5_000);
    if (busy) await env.engine.renew([{ job: busy, token: busy.token, leaseMs: 30_000 }]);
    expect((await look()).jobs).toBeLessThan(jobsOfKeyMax);
  }
  expect(await isMember(env, recordId, last)).toBe(false);
});

async function isMember(env: Environment, recordId: string, id: string): Promise<boolean> {
  const [record] = await env.engine.records([recordId]);
  const state = record?.body as unknown as KeyState | undefined;
  return state?.members.some((member) => member.id === id) === true;
}
