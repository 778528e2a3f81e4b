// Processes that die between any two steps of the JetStream engine: whatever they leave behind is put right by the next
// look of a keeper, no limit is exceeded meanwhile, and nothing stays stuck.
import type { Environment } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import { ids } from "#millrace/conformance/environment.js";
import { continuationId } from "#millrace/core/chains.js";
import type { Job, JobKeyPolicy } from "#millrace/core/job.js";
import {
  Deployment,
  dead,
  diesAfter,
  diesBefore,
  drain,
  heard,
  type Interference,
  outlive,
  type Signal,
  signal,
  stores,
  writes,
} from "../support/nats-engine.js";

const names = (env: Environment, id: string) => env.historyNames(id);

describe("a process that dies", () => {
  /** Begins something and does not wait for it, because it never ends. */
  const begin = (work: Promise<unknown>) => void work.catch(() => {});

  it("between taking a key's place and storing the creation leaves the place to others", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k", { maxQueued: 1 });
    const placed = signal();
    const process = await deployment.process((step, go) => {
      if (stores("created")(step)) placed.give();
      return diesBefore(stores("created"))(step, go);
    });
    begin(process.append(process.creation({ id: "never", key })));
    await placed.given;
    const waiting = await env.create({ key });
    await env.nothingClaimable();
    await outlive(env);
    expect(await env.find("never")).toBeNull();
    expect(await drain(env)).toEqual([waiting.id]);
    expect(await env.keyRow(key)).toMatchObject({ active: [], queued: [] });
    // The id is free for a create that is completed.
    await env.create({ id: "never", key });
    expect(await drain(env)).toEqual(["never"]);
  });

  it("and only slept is refused when it goes on, after its place was given away", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k", { maxQueued: 0 });
    const [placed, woken] = [signal(), signal()];
    const process = await deployment.process(async (step, go) => {
      if (!stores("created")(step)) return go();
      placed.give();
      await woken.given;
      return go();
    });
    const late = process.append(process.creation({ id: "late", key }));
    await placed.given;
    await outlive(env);
    const taken = await env.create({ key });
    const running = await env.claimOne();
    woken.give();
    expect((await late).outcome).toBe("not_admitted");
    expect(running.id).toBe(taken.id);
    expect(await env.find("late")).toBeNull();
    await env.complete(running);
  });

  it.each(["coalesce", "reject"] as const)(
    "before its creation stands for nobody else's, where a full key would %s",
    async (whenFull) => {
      const deployment = await Deployment.make();
      const { env } = deployment;
      for (const maxQueued of [1, 0]) {
        const key = env.key(`k${maxQueued}`, { maxQueued, whenFull });
        const there = maxQueued === 0 ? null : await env.create({ key });
        if (there) expect((await env.claimOne()).id).toBe(there.id);
        const placed = signal();
        const process = await deployment.process((step, go) => {
          if (stores("created")(step)) placed.give();
          return diesBefore(stores("created"))(step, go);
        });
        begin(process.append(process.creation({ id: `never-${maxQueued}`, key })));
        await placed.given;
        const next = await env.append(env.creation({ key }));
        expect(next.outcome).toBe("appended");
        expect(await env.find(`never-${maxQueued}`)).toBeNull();
      }
    },
  );

  it("before it retried a job, with its place, stands for nobody else's", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k", { maxQueued: 0, whenFull: "coalesce" });
    const old = await env.create({ key });
    await env.append(env.change(old, { command: "cancel", reason: "enough", force: true }));
    const ended = await env.load(old.id);
    const placed = signal();
    const process = await deployment.process((step, go) => {
      if (stores("retried")(step)) placed.give();
      return diesBefore(stores("retried"))(step, go);
    });
    begin(process.append(process.change(ended, { command: "retry", runAt: env.now })));
    await placed.given;
    const next = env.creation({ key });
    expect((await env.append(next)).outcome).toBe("appended");
    expect(await drain(env)).toEqual([next.job.id]);
  });

  it("and only slept stands for others as soon as it has gone on", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k", { maxQueued: 0, whenFull: "coalesce" });
    const [placed, looked] = [signal(), signal()];
    const slow = await deployment.process(async (step, go) => {
      if (!stores("created")(step)) return go();
      placed.give();
      await looked.given;
      return go();
    });
    const late = slow.append(slow.creation({ id: "late", key }));
    await placed.given;
    const other = env.append(env.creation({ key }));
    await env.find("late");
    looked.give();
    expect((await late).outcome).toBe("appended");
    expect(await other).toMatchObject({
      outcome: "not_admitted",
      admission: { outcome: "coalesced", existingJobId: "late" },
    });
  });

  it("after it ended a running job leaves the slot to the worker, also if the job comes back", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k");
    const job = await env.create({ key });
    const running = await env.claimOne();
    const stored = signal();
    const isEnd = stores("cancelled");
    const process = await deployment.process(heard(diesAfter(isEnd), isEnd, stored));
    begin(process.command(job.id, { command: "cancel", force: true }));
    await stored.given;
    await env.command(job.id, { command: "retry", runAt: env.now });
    await env.nothingClaimable();
    const late = { command: "complete", token: running.token, completedBy: "worker-1" } as const;
    expect((await env.settle(running, late)).outcome).toBe("conflict");
    await env.nothingClaimable();
    await outlive(env);
    expect(await drain(env)).toEqual([job.id]);
  });

  const lane = { typeMaxActive: 1 };

  it("between taking a cap's place and the start leaves the place to others", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const jobs = await env.createMany(2);
    const placed = signal();
    const process = await deployment.process((step, go) => {
      if (stores("started")(step)) placed.give();
      return diesBefore(stores("started"))(step, go);
    });
    begin(process.claim(lane));
    await placed.given;
    await env.nothingClaimable(lane);
    await outlive(env);
    expect([...(await drain(env, lane))].sort()).toEqual([...ids(jobs)].sort());
    for (const { id } of jobs)
      expect(await names(env, id)).toEqual(["created", "started", "completed"]);
  });

  it("between the start and hearing of it leaves a job that lapses", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const job = await env.create();
    const started = signal();
    const process = await deployment.process(
      heard(diesAfter(stores("started")), stores("started"), started),
    );
    begin(process.claim(lane));
    await started.given;
    await outlive(env);
    expect(await drain(env, lane)).toEqual([job.id]);
    expect(await names(env, job.id)).toEqual([
      "created",
      "started",
      "retry",
      "started",
      "completed",
    ]);
  });

  it.each([
    ["freeing its key", writes("key")],
    ["freeing its cap", writes("cap")],
    ["acknowledging", ({ name }: { readonly name: string }) => name === "acknowledge"],
  ])("between an outcome and %s leaves nothing taken", async (_, isMeant) => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key: JobKeyPolicy = env.key("k");
    const [first, second] = [await env.create({ key }), await env.create({ key })];
    const ended = signal();
    let isSettling = false;
    const dies = diesBefore((step) => isSettling && isMeant(step));
    const process = await deployment.process((step, go) => {
      if (isSettling && isMeant(step)) ended.give();
      return dies(step, go);
    });
    const [held] = await process.claim(lane);
    expect(held?.id).toBe(first.id);
    isSettling = true;
    begin(process.complete(held as Job));
    await ended.given;
    await outlive(env);
    expect(await drain(env, lane)).toEqual([second.id]);
    expect(await names(env, first.id)).toEqual(["created", "started", "completed"]);
    expect(await env.keyRow(key)).toMatchObject({ active: [], queued: [] });
    await env.create({ key });
    expect(await drain(env, lane)).toHaveLength(1);
  });

  it("between the outcome of a plain job and acknowledging has stored the outcome", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const { id } = await env.create();
    const acknowledging = signal();
    const process = await deployment.process((step, go) => {
      if (step.name !== "acknowledge") return go();
      acknowledging.give();
      return dead;
    });
    const [held] = await process.claim();
    begin(process.complete(held as Job));
    await acknowledging.given;
    expect(await names(env, id)).toEqual(["created", "started", "completed"]);
  });

  it("between a retry and its place under the key leaves a job that is tried again", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k");
    const job = await env.create({ key });
    const ended = signal();
    let isSettling = false;
    const dies = diesBefore((step) => isSettling && writes("key")(step));
    const process = await deployment.process((step, go) => {
      if (isSettling && writes("key")(step)) ended.give();
      return dies(step, go);
    });
    const [held] = await process.claim();
    isSettling = true;
    begin(process.fail(held as Job, env.now));
    await ended.given;
    await outlive(env);
    expect(await drain(env)).toEqual([job.id]);
  });

  it("between replacing the oldest and its own creation leaves the key to others", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k", { maxQueued: 0, whenFull: "replace-oldest" });
    const old = await env.create({ key });
    const skipped = signal();
    const process = await deployment.process(
      heard(diesAfter(stores("skipped")), stores("skipped"), skipped),
    );
    begin(process.append(process.creation({ key })));
    await skipped.given;
    await outlive(env);
    expect(await names(env, old.id)).toEqual(["created", "skipped"]);
    const next = await env.create({ key });
    expect(await drain(env)).toEqual([next.id]);
  });
});

describe("a process that dies between an outcome and what follows from it", () => {
  /** A chain of two under one key, whose first is claimed by a process that dies. */
  async function chain(interference: (told: Signal) => Interference) {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k", { maxQueued: 0 });
    const first = await env.create({ id: "first", chainId: "first", key });
    const next = env.creation({ id: continuationId(first), chainId: "first", key });
    const told = signal();
    const process = await deployment.olderProcess(interference(told));
    const [held] = await process.claim();
    const continuation = { jobId: next.job.id, type: "mail" };
    const wish = {
      command: "complete",
      token: 1,
      continuation,
      completedBy: "worker-1",
    } as const;
    void process.settle(held as Job, wish, [next]).catch(() => {});
    await told.given;
    return { env, key, nextId: next.job.id };
  }

  it("leaves the continuation to the keeper, on a server that cannot store both together", async () => {
    const { env, key, nextId } = await chain((told) =>
      heard(diesAfter(stores("completed")), stores("completed"), told),
    );
    expect(await env.find(nextId)).toBeNull();
    await outlive(env);
    expect(await drain(env)).toEqual([nextId]);
    expect(await env.keyRow(key)).toMatchObject({ active: [], queued: [] });
    expect(await env.engine.query("records", { prefix: "follow/" })).toEqual([]);
  });

  it("continues nothing where the outcome was not stored", async () => {
    const { env, nextId } = await chain((told) => (step, go) => {
      if (stores("completed")(step)) told.give();
      return stores("completed")(step) ? dead : go();
    });
    await outlive(env);
    expect(await env.find(nextId)).toBeNull();
    expect((await env.load("first")).state).toBe("stale");
    const next = await env.create({ key: env.key("k", { maxQueued: 0 }) });
    expect(await drain(env)).toEqual([next.id]);
    expect(await env.engine.query("records", { prefix: "follow/" })).toEqual([]);
  });
});

it("lets nobody start a continuation that ends with the chain, on a server that cannot store both together", async () => {
  const deployment = await Deployment.make();
  const { env } = deployment;
  const first = await env.create({ id: "first", chainId: "first" });
  const next = env.creation({ id: continuationId(first), chainId: "first" });
  const claimed: Job[] = [];
  // A worker asks for whatever there is before the end of the continuation is stored.
  const process = await deployment.olderProcess(async (step, go) => {
    const isNext = step.subjects.some((subject) => subject.includes(next.job.id));
    if (isNext && stores("completed")(step)) claimed.push(...(await env.claim()));
    return go();
  });
  const continuation = { jobId: next.job.id, type: "mail" };
  const wish = { command: "complete", continuation, completedBy: null } as const;
  const end = env.change(env.folded(next), { command: "complete", completedBy: null });
  const change = { ...process.change(first, wish), follow: [next, end] };
  expect(await process.append(change)).toEqual({ outcome: "appended" });
  expect(claimed).toEqual([]);
  expect(await names(env, next.job.id)).toEqual(["created", "completed"]);
});

it("lets nobody start what ends at once where a keeper stores it, on a server that cannot store both together", async () => {
  const deployment = await Deployment.make();
  const { env } = deployment;
  const first = await env.create({ id: "first", chainId: "first" });
  const next = env.creation({ id: continuationId(first), chainId: "first" });
  const end = env.change(env.folded(next), { command: "skip", reason: "manual" });
  const told = signal();
  const dies = await deployment.olderProcess(
    heard(diesAfter(stores("completed")), stores("completed"), told),
  );
  const continuation = { jobId: next.job.id, type: "mail" };
  const wish = { command: "complete", continuation, completedBy: null } as const;
  void dies.append({ ...env.change(first, wish), follow: [next, end] });
  await told.given;
  const claimed: Job[] = [];
  const keeper = await deployment.olderProcess(async (step, go) => {
    if (stores("skipped")(step)) {
      // It only asks, and does nothing of what the keeper is about to do.
      const { jobs } = await env.engine.claim({ worker: "w", limit: 10, lanes: [env.lane()] });
      claimed.push(...jobs.map(({ job }) => job));
    }
    return go();
  });
  await outlive(keeper);
  expect(claimed).toEqual([]);
  expect(await names(env, next.job.id)).toEqual(["created", "skipped"]);
  expect(await env.engine.query("records", { prefix: "follow/" })).toEqual([]);
});
