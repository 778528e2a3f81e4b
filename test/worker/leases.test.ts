// Leases: renewed while handlers run, fenced when they cannot be, and decided by the token.
import { expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { gate, untilAborted, Workshop } from "./workshop.js";

function shop() {
  return new Workshop(
    defineService("shop", {
      mail: defineJob({ payload: z.object({}) }),
      short: defineJob({ payload: z.object({}), leaseMs: 3_000 }),
      tight: defineJob({
        payload: z.object({}),
        keyConcurrency: { key: ["one"], heartbeatIntervalMs: 2_900, heartbeatTtlMs: 3_000 },
      }),
    }),
  );
}

it.each([
  ["mail", 200_000],
  ["short", 20_000],
  ["tight", 20_000],
])("holds a long job of type %s for as long as its handler runs", async (type, lengthMs) => {
  const workshop = shop();
  const id = await workshop.create(type);
  const work = gate();
  await workshop.start({ [type]: () => work.opened });
  const keeper = workshop.keeper();
  await keeper.start();
  await workshop.clock.advance(lengthMs);
  work.open();
  await workshop.turn();
  expect(await workshop.job(id)).toMatchObject({ state: "completed", tries: 1 });
  await keeper.stop();
});

it("renews all leases in one call, and none of jobs that are young", async () => {
  const workshop = shop();
  const work = gate();
  for (let index = 0; index < 10; index++) await workshop.create("mail");
  await workshop.start({ mail: () => work.opened });
  await workshop.clock.advance(10_000);
  expect(workshop.count("renew")).toBe(1);
  work.open();
  await workshop.clock.advance(6_000);
  await workshop.create("mail");
  const late = gate();
  await workshop.turn();
  expect(workshop.count("renew")).toBe(1);
  late.open();
});

it("asks nothing of the store while nothing is held", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.start({ mail: () => "done" });
  expect((await workshop.job(id)).state).toBe("completed");
  await workshop.clock.advance(60_000);
  expect(workshop.count("renew")).toBe(0);
});

it("gives the outcome to the worker that holds the token, and records the other's as ignored", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const first = gate<string>();
  const second = gate<string>();
  const reasons: string[] = [];
  await workshop.start(
    {
      mail: (job) => {
        job.signal.addEventListener("abort", () => reasons.push(job.signal.reason.reason));
        return first.opened;
      },
    },
    { instance: "w1", concurrency: 1, graceMs: 60_000 },
  );
  workshop.trouble.renew = "refuse";
  const keeper = workshop.keeper();
  await keeper.start();
  await workshop.clock.advance(31_000);
  workshop.trouble.renew = "none";
  expect(await workshop.job(id)).toMatchObject({ state: "retry", error: { reason: "orphaned" } });

  await workshop.start({ mail: () => second.opened }, { instance: "w2" });
  expect(await workshop.job(id)).toMatchObject({ state: "active", token: 2, worker: "w2" });
  first.open("from w1");
  await workshop.turn();
  expect(await workshop.job(id)).toMatchObject({ state: "active", token: 2, worker: "w2" });
  second.open("from w2");
  await workshop.turn();
  expect(await workshop.job(id)).toMatchObject({ state: "completed", result: "from w2" });

  expect(reasons).toEqual(["error"]);
  const ignored = (await workshop.events(id)).filter(
    ({ name }) => name === "staleCompletionIgnored",
  );
  expect(ignored).toHaveLength(1);
  expect(ignored[0]).toMatchObject({ token: 1, outcome: "completed", actor: "worker:w1" });
  expect(workshop.logged("An outcome was ignored")).toHaveLength(1);
  await keeper.stop();
});

it("fences itself at two thirds of the lease when the store is away", async () => {
  const workshop = shop();
  await workshop.create("mail");
  const reasons: string[] = [];
  await workshop.start({
    mail: (job) => {
      job.signal.addEventListener("abort", () => reasons.push(job.signal.reason.reason));
      return untilAborted(job.signal);
    },
  });
  workshop.trouble.renew = "refuse";
  await workshop.clock.advance(19_999);
  expect(reasons).toEqual([]);
  await workshop.clock.advance(1);
  expect(reasons).toEqual(["error"]);
  expect(workshop.logged("could not be renewed in time")).toHaveLength(1);
});

it("tries a failed renewal again soon enough to keep the job", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const work = gate();
  await workshop.start({ mail: () => work.opened });
  workshop.trouble.renew = "refuse";
  await workshop.clock.advance(18_000);
  workshop.trouble.renew = "none";
  await workshop.clock.advance(30_000);
  work.open();
  await workshop.turn();
  expect(await workshop.job(id)).toMatchObject({ state: "completed", tries: 1 });
});

it("still records the outcome of a fenced handler if nobody has taken the job", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.start({ mail: (job) => untilAborted(job.signal).catch(() => "done after all") });
  workshop.trouble.renew = "refuse";
  await workshop.clock.advance(20_000);
  expect(await workshop.job(id)).toMatchObject({ state: "completed", result: "done after all" });
});

it("tells the handler when somebody else completes its job", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const reasons: string[] = [];
  await workshop.start({
    mail: (job) => {
      job.signal.addEventListener("abort", () => reasons.push(job.signal.reason.reason));
      return untilAborted(job.signal);
    },
  });
  await workshop.complete(id);
  await workshop.turn();
  expect(reasons).toEqual(["already_completed"]);
  expect(await workshop.job(id)).toMatchObject({ state: "completed", completedBy: null });
});

it("tells the handler when its job is gone", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const reasons: string[] = [];
  await workshop.start({
    mail: (job) => {
      job.signal.addEventListener("abort", () => reasons.push(job.signal.reason.reason));
      return untilAborted(job.signal);
    },
  });
  await workshop.remove(id);
  await workshop.clock.advance(10_000);
  expect(reasons).toEqual(["not_found"]);
  expect(await workshop.exists(id)).toBe(false);
  expect(workshop.logged("An outcome was ignored")).toHaveLength(1);
});

it("gives a job back unseen when its claim took most of the lease", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const tries: number[] = [];
  const worker = workshop.worker({
    mail: (job) => {
      tries.push(job.tries);
    },
  });
  const claim = workshop.engine.claim.bind(workshop.engine);
  let isSlow = true;
  workshop.engine.claim = async (ask) => {
    const answer = await claim(ask);
    if (answer.jobs.length > 0 && isSlow) {
      isSlow = false;
      await workshop.clock.advance(25_000);
    }
    return answer;
  };
  await worker.start();
  await workshop.clock.advance(1_000);
  expect(await workshop.names(id)).toEqual([
    "created",
    "started",
    "released",
    "started",
    "completed",
  ]);
  expect(tries).toEqual([1]);
});
