// The races of the JetStream engine: two who want the same job at once, processes that die between any two steps,
// and answers that are lost. Whatever happens, there is one outcome, no limit is exceeded, and nothing stays stuck.
import type { Environment } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import { ids, tally } from "#millrace/conformance/environment.js";
import { continuationId } from "#millrace/core/chains.js";
import type { Job, JobKeyPolicy } from "#millrace/core/job.js";
import {
  Deployment,
  dead,
  diesAfter,
  diesBefore,
  type Interference,
  losesAnswers,
  stores,
  writes,
} from "../support/nats-engine.js";

/** Longer than a place may be ahead of the log, and than the leases of these tests. */
const longMs = 40_000;

/** The keeper of a service looks once. */
async function keep(env: Environment): Promise<void> {
  for (const { id } of await env.engine.due({ kind: "lapsed", service: "shop" }, 100))
    await env.lapse(id);
  await env.engine.tend?.("shop");
}

/** Lets time pass in which others give up what a dead process has left, while a keeper looks. */
async function outlive(env: Environment): Promise<void> {
  for (let passed = 0; passed < longMs; passed += longMs / 4) {
    env.clock.advance(longMs / 4);
    await keep(env);
  }
}

/** Claims and completes until there is nothing more; gives what was carried out, in order. */
async function drain(env: Environment, lane = {}): Promise<readonly string[]> {
  const done: string[] = [];
  for (;;) {
    const jobs = await env.claim(lane);
    if (jobs.length === 0) return done;
    for (const job of jobs) await env.complete(job);
    done.push(...ids(jobs));
  }
}

const names = (env: Environment, id: string) => env.historyNames(id);

describe("a lease that lapses while its worker completes", () => {
  it("gives the job to another, and the first is refused", async () => {
    const { env } = await Deployment.make();
    const job = await env.create();
    const first = await env.claimOne();
    env.clock.advance(30_001);
    await env.lapse(job.id);
    const second = await env.claimOne({}, "worker-2");
    const late = { command: "complete", token: first.token, completedBy: "worker-1" } as const;
    expect((await env.settle(first, late)).outcome).toBe("conflict");
    const [renewal] = await env.engine.renew([{ job: first, token: first.token, leaseMs: 1_000 }]);
    expect(renewal?.outcome).toBe("lost");
    await env.complete(second);
    expect(await names(env, job.id)).toEqual([
      "created",
      "started",
      "retry",
      "started",
      "completed",
    ]);
  });

  it("is one or the other when both come at once", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const keeper = await deployment.process((_, go) => go());
    const jobs = await env.createMany(10);
    const held = await env.claim();
    await env.engine.query("counts", {});
    env.clock.advance(30_001);
    const outcomes = await Promise.all(
      held.flatMap((job) => [
        env.settle(job, { command: "complete", token: job.token, completedBy: "worker-1" }),
        keeper.append(
          keeper.change(job, {
            command: "lapse",
            actor: "keeper:keeper-1",
            token: job.token,
            retryAt: env.now,
          }),
        ),
      ]),
    );
    expect(tally(outcomes)).toEqual({ appended: 10, conflict: 10 });
    await drain(env);
    for (const { id } of jobs) {
      const happened = await names(env, id);
      expect(happened.filter((name) => name === "completed")).toHaveLength(1);
      expect(happened.at(-1)).toBe("completed");
    }
  });
});

describe("a slot that is taken over", () => {
  it("goes to the next when its holder is lost, and never to two", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k");
    const [first, second] = [await env.create({ key }), await env.create({ key })];
    const lost = await env.claimOne();
    expect(lost.id).toBe(first.id);
    await env.nothingClaimable();
    env.clock.advance(30_001);
    const other = await deployment.process((_, go) => go());
    const lapse = (at: Environment) =>
      at.append(
        at.change(lost, {
          command: "lapse",
          actor: "keeper:keeper-1",
          token: lost.token,
          retryAt: env.now,
        }),
      );
    expect(tally(await Promise.all([lapse(env), lapse(other)]))).toEqual({
      appended: 1,
      conflict: 1,
    });
    const [taken, ...more] = [...(await env.claim()), ...(await other.claim())];
    expect(taken?.id).toBe(second.id);
    expect(more).toEqual([]);
    expect((await env.load(first.id)).state).toBe("stale");
    expect(await env.keyRow(key)).toMatchObject({ takeovers: 1 });
    await env.complete(taken as Job);
  });
});

describe("cancelling and completing", () => {
  const cancel = { command: "cancel", reason: "enough", force: true } as const;

  it.each(["cancel first", "complete first", "both at once"])(
    "have one outcome: %s",
    async (order) => {
      const deployment = await Deployment.make();
      const { env } = deployment;
      const other = await deployment.process((_, go) => go());
      for (let round = 0; round < 5; round++) {
        const { id } = await env.create();
        const held = await env.claimOne();
        const complete = () =>
          env.settle(held, { command: "complete", token: held.token, completedBy: "worker-1" });
        const end = () => other.append(other.change(held, cancel));
        const [ended, completed] =
          order === "both at once"
            ? await Promise.all([end(), complete()])
            : order === "cancel first"
              ? [await end(), await complete()]
              : await reversed(end, complete);
        expect(tally([ended, completed])).toEqual({ appended: 1, conflict: 1 });
        const { state } = await env.load(id);
        expect(state).toBe(ended.outcome === "appended" ? "cancelled" : "completed");
        if (order === "cancel first") expect(state).toBe("cancelled");
        if (order === "complete first") expect(state).toBe("completed");
        expect((await other.load(id)).state).toBe(state);
      }
      await env.nothingClaimable();
    },
  );
});

async function reversed<A, B>(a: () => Promise<A>, b: () => Promise<B>): Promise<[A, B]> {
  const second = await b();
  return [await a(), second];
}

describe("replacing the oldest while it is claimed", () => {
  it("replaces a job that never started, or none", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const other = await deployment.process((_, go) => go());
    for (let round = 0; round < 8; round++) {
      const key = env.key(`k${round}`, { maxQueued: 0, whenFull: "replace-oldest" });
      const old = await env.create({ key });
      const [claimed, outcome] = await Promise.all([
        env.claim(),
        other.append(other.creation({ id: `new-${round}`, key })),
      ]);
      const happened = await names(env, old.id);
      if (claimed.length > 0 && claimed[0]?.id === old.id) {
        expect(outcome.outcome).toBe("not_admitted");
        expect(happened).toEqual(["created", "started"]);
        await env.complete(claimed[0] as Job);
      } else {
        expect(outcome.outcome).toBe("appended");
        expect(happened).toEqual(["created", "skipped"]);
        for (const job of claimed) await env.complete(job);
      }
      await drain(env);
      expect(await env.keyRow(key)).toMatchObject({ active: [], queued: [] });
    }
  });
});

describe("two keepers at once", () => {
  it("offer, lapse and promote each job once", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const other = await deployment.process((_, go) => go());
    const delayed = await env.createMany(20, { runAt: env.now + 1_000 });
    const held = await Promise.all((await env.createMany(5)).map(() => env.claimOne()));
    const keyed = await env.createMany(3, { key: env.key("k"), runAt: env.now + 1_000 });
    env.clock.advance(30_001);
    const lapses = (at: Environment) =>
      held.map((job) =>
        at.append(
          at.change(job, {
            command: "lapse",
            actor: "keeper:keeper-1",
            token: job.token,
            retryAt: env.now,
          }),
        ),
      );
    const lapsed = await Promise.all([...lapses(env), ...lapses(other)]);
    expect(tally(lapsed)).toEqual({ appended: 5, conflict: 5 });
    await Promise.all([env.engine.tend?.("shop"), other.engine.tend?.("shop")]);
    const claimed = (await Promise.all([env.claim(), other.claim()])).flat();
    expect(ids(claimed).length).toBe(new Set(ids(claimed)).size);
    expect(claimed).toHaveLength(delayed.length + held.length + 1);
    for (const job of claimed) await env.complete(job);
    expect(await drain(env)).toHaveLength(keyed.length - 1);
  });
});

describe("a replay that is asked for twice", () => {
  it("opens one run, and keeps its place under the key", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const other = await deployment.process((_, go) => go());
    for (let round = 0; round < 5; round++) {
      const key = env.key(`k${round}`);
      const job = await env.create({ key });
      await env.settle(await env.claimOne(), {
        command: "terminate",
        token: 1,
        error: { message: "no luck", reason: "error" },
      });
      const failed = await env.load(job.id);
      const replay = (at: Environment) =>
        at.append(at.change(failed, { command: "retry", runAt: env.now, force: false }));
      expect(tally(await Promise.all([replay(env), replay(other)]))).toEqual({
        appended: 1,
        conflict: 1,
      });
      const next = await env.create({ key });
      const claimed = await env.claim();
      expect(ids(claimed)).toEqual([job.id]);
      await outlive(env);
      // It has lapsed meanwhile, and the next one has its turn.
      expect(await drain(env)).toEqual([next.id]);
    }
  });
});

describe("an answer that is lost", () => {
  const cases: readonly [string, Interference][] = [
    ["a creation", losesAnswers(stores("created"), 2)],
    ["a start", losesAnswers(stores("started"), 2)],
    ["an outcome", losesAnswers(stores("completed"), 2)],
  ];

  it.each(cases)("to %s is looked up, and nothing is stored twice", async (_, interference) => {
    const deployment = await Deployment.make();
    const process = await deployment.process(interference);
    const changes = [process.creation(), process.creation(), process.creation()];
    const created = await process.engine.append(changes);
    expect(tally(created)).toEqual({ appended: 3 });
    const claimed = await process.claim();
    expect(claimed).toHaveLength(3);
    for (const job of claimed) await process.complete(job);
    for (const { job } of changes)
      expect(await names(process, job.id)).toEqual(["created", "started", "completed"]);
    await deployment.env.nothingClaimable();
  });

  it("to a place under a key does no harm to the next create", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const process = await deployment.process(losesAnswers(writes("key"), 1));
    const key = env.key("k", { maxQueued: 0 });
    const [outcome] = await process.engine.append([process.creation({ key })]);
    expect(outcome?.outcome).toBe("faulted");
    await outlive(env);
    const job = await env.create({ key });
    expect(await drain(env)).toEqual([job.id]);
  });
});

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

interface Signal {
  readonly given: Promise<void>;
  give(): void;
}

function signal(): Signal {
  let give: () => void = () => {};
  const given = new Promise<void>((resolve) => {
    give = resolve;
  });
  return { given, give };
}

/** Tells when a step that is meant has been carried out. */
function heard(
  interference: Interference,
  isMeant: (step: Parameters<Interference>[0]) => boolean,
  told: Signal,
): Interference {
  return (step, go) =>
    interference(step, async () => {
      const answer = await go();
      if (isMeant(step)) told.give();
      return answer;
    });
}
