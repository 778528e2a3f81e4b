// Timeouts of a try, deadlines of a job, and handlers that do not care.
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import type { Handler } from "#millrace/worker/lane.js";
import { gate, untilAborted, Workshop } from "./workshop.js";

function shop() {
  return new Workshop(
    defineService("shop", {
      slow: defineJob({ payload: z.object({}), timeoutMs: 2_000, concurrency: 1 }),
      dated: defineJob({ payload: z.object({}) }),
      keyed: defineJob({
        payload: z.object({}),
        timeoutMs: 2_000,
        concurrency: 1,
        keyConcurrency: { key: ["one"], stalePolicy: "requeue" },
        queue: { maxQueuedPerKey: 5 },
      }),
    }),
  );
}

describe("the timeout of a try", () => {
  it("tells the handler how long it may still take, until the timeout or the deadline", async () => {
    const workshop = shop();
    const running: { readonly type: string; readonly remainingMs: number }[] = [];
    const remaining = () =>
      Object.fromEntries(running.map(({ type, remainingMs }) => [type, remainingMs]));
    await workshop.create("slow");
    await workshop.create("dated", {}, { deadline: workshop.clock.now() + 500 });
    const handler: Handler = async (job) => {
      running.push(job);
      await untilAborted(job.signal);
    };
    await workshop.start({ slow: handler, dated: handler });
    expect(remaining()).toEqual({ slow: 2_000, dated: 500 });
    await workshop.clock.advance(300);
    expect(remaining()).toEqual({ slow: 1_700, dated: 200 });
    await workshop.clock.advance(300);
    expect(remaining()).toEqual({ slow: 1_400, dated: 0 });
  });

  it("aborts the handler and fails the try, which is tried again", async () => {
    const workshop = shop();
    const id = await workshop.create("slow");
    const reasons: string[] = [];
    await workshop.start({
      slow: (job) =>
        untilAborted(job.signal).catch((aborted) => {
          reasons.push(aborted.reason);
          throw aborted;
        }),
    });
    await workshop.clock.advance(1_999);
    expect(reasons).toEqual([]);
    await workshop.clock.advance(1);
    expect(reasons).toEqual(["timeout"]);
    const job = await workshop.job(id);
    expect(job).toMatchObject({ state: "retry", tries: 1 });
    expect(job.error).toEqual({ message: "The try took longer than 2000 ms.", reason: "timeout" });
    expect(job.runAt).toBe(workshop.clock.now() + 5_000);
  });

  it("counts even when the handler returns a value afterwards", async () => {
    const workshop = shop();
    const id = await workshop.create("slow");
    await workshop.start({ slow: (job) => untilAborted(job.signal).catch(() => "late") });
    await workshop.clock.advance(2_000);
    expect(await workshop.job(id)).toMatchObject({ state: "retry", error: { reason: "timeout" } });
  });

  it("leaves handlers alone that return in time", async () => {
    const workshop = shop();
    const work = gate();
    const id = await workshop.create("slow");
    await workshop.start({ slow: () => work.opened });
    await workshop.clock.advance(1_999);
    work.open();
    await workshop.clock.advance(10_000);
    expect(await workshop.job(id)).toMatchObject({ state: "completed", tries: 1 });
  });

  it("gives the place of a handler that ignores it to another job after the grace time", async () => {
    const workshop = shop();
    const first = await workshop.create("slow");
    const second = await workshop.create("slow");
    const work = gate();
    await workshop.start({ slow: (job) => (job.id === first ? work.opened : "done") });
    await workshop.clock.advance(2_000 + 9_999);
    expect((await workshop.job(second)).state).toBe("pending");
    await workshop.clock.advance(1);
    expect((await workshop.job(second)).state).toBe("completed");
    expect((await workshop.job(first)).state).toBe("active");
    expect(workshop.logged("ignored its signal")).toHaveLength(1);

    work.open();
    await workshop.turn();
    expect(await workshop.job(first)).toMatchObject({
      state: "retry",
      error: { reason: "timeout" },
    });
    expect(workshop.logged("had been abandoned has returned")).toHaveLength(1);
  });

  it("keeps the key of an abandoned handler until its lease lapses, and ignores what it says then", async () => {
    const workshop = shop();
    const first = await workshop.create("keyed");
    const second = await workshop.create("keyed");
    const work = gate();
    await workshop.start({
      keyed: (job) => (job.id === first && job.tries === 1 ? work.opened : "done"),
    });
    const keeper = workshop.keeper();
    await keeper.start();
    await workshop.clock.advance(12_000);
    expect((await workshop.job(second)).state).toBe("pending");
    // The last renewal was at 10 s, so that the lease of 30 s lapses at 40 s.
    await workshop.clock.advance(27_000);
    expect((await workshop.job(second)).state).toBe("pending");
    await workshop.clock.advance(3_000);
    expect((await workshop.job(second)).state).toBe("completed");
    expect((await workshop.job(first)).state).toBe("completed");

    work.open();
    await workshop.turn();
    expect((await workshop.names(first)).at(-1)).toBe("staleCompletionIgnored");
    expect((await workshop.job(first)).tries).toBe(2);
    await keeper.stop();
  });
});

describe("the deadline of a job", () => {
  it("expires a job that is not claimed in time, and its handler never runs", async () => {
    const workshop = shop();
    const deadline = workshop.clock.now() + 1_000;
    const id = await workshop.create("dated", {}, { deadline });
    await workshop.clock.advance(1_000);
    let calls = 0;
    await workshop.start({
      dated: () => {
        calls++;
      },
    });
    expect((await workshop.job(id)).state).toBe("expired");
    expect(calls).toBe(0);
  });

  it("expires a job whose deadline comes between its claim and its handler", async () => {
    const workshop = shop();
    const id = await workshop.create("dated", {}, { deadline: workshop.clock.now() + 1_000 });
    let calls = 0;
    const worker = workshop.worker({
      dated: () => {
        calls++;
      },
    });
    const claim = workshop.engine.claim.bind(workshop.engine);
    workshop.engine.claim = async (ask) => {
      const answer = await claim(ask);
      if (answer.jobs.length > 0) await workshop.clock.advance(1_000);
      return answer;
    };
    await worker.start();
    await workshop.turn();
    await workshop.turn();
    expect((await workshop.job(id)).state).toBe("expired");
    expect(calls).toBe(0);
  });

  it.each([
    ["throws", (aborted: Promise<never>) => aborted],
    ["returns a value", (aborted: Promise<never>) => aborted.catch(() => "late")],
  ])("aborts a running handler and expires the job, when it %s", async (_what, answer) => {
    const workshop = shop();
    const deadline = workshop.clock.now() + 3_000;
    const id = await workshop.create("dated", {}, { deadline });
    const reasons: string[] = [];
    await workshop.start({
      dated: (job) => {
        job.signal.addEventListener("abort", () => reasons.push(job.signal.reason.reason));
        return answer(untilAborted(job.signal));
      },
    });
    await workshop.clock.advance(2_999);
    expect((await workshop.job(id)).state).toBe("active");
    await workshop.clock.advance(1);
    expect(reasons).toEqual(["expired"]);
    expect((await workshop.job(id)).state).toBe("expired");
    expect(await workshop.names(id)).toEqual(["created", "started", "expired"]);
  });

  it("is kept by the keeper when the handler ignores it, and what it says then is ignored", async () => {
    const workshop = shop();
    const id = await workshop.create("dated", {}, { deadline: workshop.clock.now() + 3_000 });
    const work = gate();
    await workshop.start({ dated: () => work.opened });
    const keeper = workshop.keeper();
    await keeper.start();
    await workshop.clock.advance(4_000);
    expect((await workshop.job(id)).state).toBe("expired");
    work.open();
    await workshop.turn();
    expect((await workshop.job(id)).state).toBe("expired");
    expect((await workshop.names(id)).at(-1)).toBe("staleCompletionIgnored");
    await keeper.stop();
  });
});
