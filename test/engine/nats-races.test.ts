// The races of the JetStream engine: two who want the same job at once, and answers that are lost. Whatever happens,
// there is one outcome and no limit is exceeded.
import type { Environment } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import { ids, tally } from "#millrace/conformance/environment.js";
import type { Job } from "#millrace/core/job.js";
import { StoreUnavailable } from "#millrace/engine/errors.js";
import { apiFault } from "#millrace/engine/nats/faults.js";
import {
  Deployment,
  drain,
  type Interference,
  losesAnswers,
  losesRequests,
  outlive,
  signal,
  stores,
  writes,
} from "../support/nats-engine.js";

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

describe("asking a job to stop and completing it", () => {
  const ask = { command: "cancel", reason: "enough" } as const;

  it.each(["ask first", "complete first", "both at once"])(
    "have one outcome, the handler's own: %s",
    async (order) => {
      const deployment = await Deployment.make();
      const { env } = deployment;
      const other = await deployment.process((_, go) => go());
      for (let round = 0; round < 5; round++) {
        const { id } = await env.create();
        const held = await env.claimOne();
        const done = { command: "complete", token: held.token, completedBy: "worker-1" } as const;
        const complete = () => env.settle(held, done);
        const request = () => other.append(other.change(held, ask));
        const [asked, completed] =
          order === "both at once"
            ? await Promise.all([request(), complete()])
            : order === "ask first"
              ? [await request(), await complete()]
              : await reversed(request, complete);
        expect(tally([asked, completed])).toEqual({ appended: 1, conflict: 1 });
        if (order === "ask first") expect(asked.outcome).toBe("appended");
        if (order === "complete first") expect(completed.outcome).toBe("appended");
        const wasAsked = asked.outcome === "appended";
        const [renewal] = await env.engine.renew([
          { job: held, token: held.token, leaseMs: 30_000 },
        ]);
        expect(renewal).toMatchObject(
          wasAsked ? { outcome: "held", cancelRequested: true } : { outcome: "ended" },
        );
        // Whoever was refused decides again on the job as it is, and its handler has finished all the same.
        if (wasAsked) expect((await env.settle(await env.load(id), done)).outcome).toBe("appended");
        const end = ["created", "started", ...(wasAsked ? ["cancelRequested"] : []), "completed"];
        expect(await names(env, id)).toEqual(end);
        expect((await other.load(id)).state).toBe("completed");
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

  it("to a creation is looked up when its job has run and is deleted by then", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const isCreation = stores("created");
    let isDone = false;
    const process = await deployment.process(async (step, go) => {
      const answer = await go();
      if (isDone || !isCreation(step)) return answer;
      isDone = true;
      const job = await env.claimOne();
      await env.complete(job);
      env.clock.advance(1);
      await env.command(job.id, { command: "delete", reason: "over" });
      throw new StoreUnavailable({ url: "nats:", message: "The answer was lost." });
    });
    const creation = process.creation();
    expect((await process.append(creation)).outcome).toBe("appended");
    expect((await process.append(process.creation({ id: creation.job.id }))).outcome).toBe(
      "appended",
    );
    expect(await drain(env)).toEqual([creation.job.id]);
  });

  const notesLost: readonly [string, Interference][] = [
    ["was stored", losesAnswers(stores("progress"), 2)],
    ["never came", losesRequests(stores("progress"), 2)],
  ];

  it.each(notesLost)("to a note that %s is looked up, and it is stored once", async (_, lose) => {
    const deployment = await Deployment.make();
    const process = await deployment.process(lose);
    const { id } = await process.create();
    const job = await process.claimOne();
    const notes = [1, 2, 3].map((current) =>
      process.event(job, { command: "progress", token: 1, progress: { current } }),
    );
    expect(await process.engine.note(notes)).toEqual([true, true, true]);
    const stored = (await process.history(id)).slice(2).map((event) => event.id);
    expect(stored.sort()).toEqual(notes.map((note) => note.id).sort());
  });

  it("to a note that never comes is told as lost, and not as refused", async () => {
    const deployment = await Deployment.make();
    const process = await deployment.process(losesRequests(stores("heartbeat"), 100));
    await process.create();
    const job = await process.claimOne();
    const note = process.event(job, { command: "heartbeat", token: 1 });
    await expect(process.engine.note([note])).rejects.toThrow("The request was lost.");
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

describe("a create under a key that is refused for lack of room", () => {
  const full = () =>
    apiFault({ code: 400, err_code: 10077, description: "maximum messages exceeded" }, "nats:");

  it("keeps its place where an earlier try may still come", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k", { maxQueued: 0, whenFull: "coalesce" });
    const underWay: (() => Promise<unknown>)[] = [];
    const process = await deployment.process(async (step, go) => {
      if (!stores("created")(step)) return go();
      if (underWay.push(go) > 1) throw full();
      throw new StoreUnavailable({ url: "nats:", message: "The answer was lost." });
    });
    const refused = await process.engine.append([process.creation({ id: "late", key })]);
    expect(refused).toMatchObject([{ outcome: "faulted", error: { _tag: "StoreFull" } }]);
    await underWay[0]?.();
    expect(await env.append(env.creation({ key }))).toMatchObject({
      outcome: "not_admitted",
      admission: { outcome: "coalesced", existingJobId: "late" },
    });
    expect(await drain(env)).toEqual(["late"]);
  });

  it("leaves the place to another create of the same id", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k", { maxQueued: 0 });
    const [first, second, over] = [signal(), signal(), signal()];
    const refused = await deployment.process(async (step, go) => {
      if (!stores("created")(step)) return go();
      first.give();
      await second.given;
      throw full();
    });
    const other = await deployment.process(async (step, go) => {
      if (!stores("created")(step)) return go();
      second.give();
      await over.given;
      return go();
    });
    const one = refused.engine.append([refused.creation({ id: "same", key })]);
    await first.given;
    const two = other.append(other.creation({ id: "same", key }));
    expect(await one).toMatchObject([{ outcome: "faulted", error: { _tag: "StoreFull" } }]);
    over.give();
    expect((await two).outcome).toBe("appended");
    expect((await env.append(env.creation({ key }))).outcome).toBe("not_admitted");
    expect(await drain(env)).toEqual(["same"]);
  });
});
