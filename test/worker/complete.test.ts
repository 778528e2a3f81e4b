// A handler that completes its job itself: with a value, with the next job of its chain, once, and under its own token.
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { InvalidPayload, JobAlreadyCompleted } from "#millrace/client/errors.js";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { chainOf, continuationId } from "#millrace/core/chains.js";
import { JobAborted } from "#millrace/worker/abort.js";
import { Completed, snooze } from "#millrace/worker/outcome.js";
import { gate, untilAborted, Workshop } from "./workshop.js";

const order = z.object({ orderId: z.string() });

function shop() {
  return new Workshop(
    defineService("shop", {
      charge: defineJob({
        payload: order,
        result: z.object({ paid: z.boolean() }),
        continuations: ["ship", "refund", "thank"],
        retry: { maxTries: 2, backoff: [10] },
        timeoutMs: 5_000,
      }),
      ship: defineJob({ payload: order.extend({ copies: z.number().default(1) }) }),
      thank: defineJob({ payload: order, blockers: { delivery: "ship" } }),
      refund: defineJob({
        payload: order,
        keyConcurrency: { key: ["refund"] },
      }),
      other: defineJob({ payload: order }),
    }),
  );
}

const payload = { orderId: "o-1" };

describe("complete", () => {
  it("stores a value before it resolves, whatever the handler returns afterwards", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    const seen: string[] = [];
    await workshop.start({
      charge: async ({ complete }) => {
        const completed = await complete(() => ({ paid: true }));
        expect(completed).toBeInstanceOf(Completed);
        seen.push((await workshop.job(id)).state);
        return { paid: "never looked at" };
      },
    });
    await workshop.turn();
    expect(seen).toEqual(["completed"]);
    expect(await workshop.job(id)).toMatchObject({ result: { paid: true }, completedBy: "w1" });
    expect(await workshop.names(id)).toEqual(["created", "started", "completed"]);
  });

  it("continues the chain with a job that is there as soon as this one is completed", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({
      charge: (job) =>
        job.complete(({ continueWith }) =>
          continueWith("ship", job.payload, { priority: 7, delayMs: 50 }),
        ),
    });
    const first = await workshop.job(id);
    const nextId = continuationId(first);
    expect(first).toMatchObject({ state: "completed", continuedBy: nextId, chainId: id });
    expect(first).not.toHaveProperty("result");
    const next = await workshop.job(nextId);
    expect(next).toMatchObject({ type: "ship", state: "pending", priority: 7, chainId: id });
    expect(next).toMatchObject({ payload: { orderId: "o-1", copies: 1 }, context: first.context });
    expect(chainOf(next)).toBe(id);
  });

  it("keeps what the handler said before it", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({
      charge: (job) => {
        void job.log("almost");
        return job.complete(() => ({ paid: true }));
      },
    });
    expect(await workshop.names(id)).toEqual(["created", "started", "logged", "completed"]);
  });

  it("is not undone by a handler that throws afterwards, which is told to the log", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({
      charge: async (job) => {
        await job.complete(() => ({ paid: true }));
        throw new Error("too late");
      },
    });
    expect(await workshop.names(id)).toEqual(["created", "started", "completed"]);
    expect(workshop.logged("after it had completed")).toHaveLength(1);
  });

  it("counts also when nobody awaited it", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({
      charge: (job) => {
        void job.complete(() => ({ paid: true }));
      },
    });
    expect(await workshop.job(id)).toMatchObject({ state: "completed", result: { paid: true } });
  });

  it("happens once", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    const refusals: unknown[] = [];
    await workshop.start({
      charge: async (job) => {
        const first = job.complete(() => ({ paid: true }));
        await job.complete(() => ({ paid: false })).catch((error) => refusals.push(error));
        await first;
        await job.complete(() => ({ paid: false })).catch((error) => refusals.push(error));
      },
    });
    expect(refusals.map(String)).toEqual([
      expect.stringContaining("complete may be called once"),
      expect.stringContaining("complete may be called once"),
    ]);
    expect((await workshop.job(id)).result).toEqual({ paid: true });
  });
});

describe("a complete that fails", () => {
  it("fails the try with what its callback threw, and stores nothing", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({
      charge: (job) =>
        job.complete(() => {
          throw new Error("no funds");
        }),
    });
    expect(await workshop.job(id)).toMatchObject({
      state: "retry",
      error: { message: "no funds" },
    });
  });

  it("fails the try even if the handler did not await it", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({
      charge: (job) => {
        void job.complete(() => Promise.reject(new Error("no funds")));
      },
    });
    expect(await workshop.job(id)).toMatchObject({
      state: "retry",
      error: { message: "no funds" },
    });
  });

  it("can be made good by another call", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({
      charge: async (job) => {
        await job.complete(() => Promise.reject(new Error("no"))).catch(() => {});
        return job.complete(() => ({ paid: false }));
      },
    });
    expect(await workshop.job(id)).toMatchObject({ state: "completed", result: { paid: false } });
  });

  it("ends the job as failed when the result does not fit", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({ charge: (job) => job.complete(() => ({ paid: "yes" })) });
    const job = await workshop.job(id);
    expect(job).toMatchObject({ state: "failed", error: { reason: "result" } });
  });

  it("says what the callback says with an outcome", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({ charge: (job) => job.complete(() => snooze(100, "later")) });
    expect(await workshop.job(id)).toMatchObject({ state: "pending", reason: "later", tries: 0 });
  });

  it.each([
    ["other", payload, {}, /does not continue with other: add "other" to the continuations/],
    ["ship", { orderId: 5 }, {}, /payload of ship is not valid/],
    ["ship", payload, { id: "mine" }, /id is not an option of a continuation/],
    ["thank", payload, {}, /blockers: thank waits for delivery/],
    ["thank", payload, { blockers: { other: "x" } }, /thank waits for delivery/],
  ])(
    "ends the job as failed for a continuation that cannot be stored (%s %o %o)",
    async (type, next, options, message) => {
      const workshop = shop();
      const id = await workshop.create("charge", payload);
      await workshop.start({
        charge: (job) =>
          job.complete(({ continueWith }) => continueWith(type, next, options as object)),
      });
      const job = await workshop.job(id);
      expect(job).toMatchObject({ state: "failed", tries: 1, error: { reason: "result" } });
      expect(job.error?.name).toMatch(/^Invalid(Option|Payload)$/);
      expect(job.error?.message).toMatch(message);
    },
  );

  it("ends the job as failed even if the handler did not await such a continuation", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({
      charge: (job) => {
        void job.complete(({ continueWith }) => continueWith("other", payload));
      },
    });
    expect(await workshop.job(id)).toMatchObject({
      state: "failed",
      error: { name: "InvalidOption" },
    });
  });

  it("can be made good by another call also then", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({
      charge: (job) =>
        job
          .complete(({ continueWith }) => continueWith("ship", { orderId: 5 }))
          .catch(() => job.complete(({ continueWith }) => continueWith("ship", payload))),
    });
    expect(await workshop.job(id)).toMatchObject({ state: "completed" });
  });

  it("fails the try alone where the same fault is of something else that the handler does", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    await workshop.start({
      charge: (job) =>
        job.complete(() => {
          throw new InvalidPayload({ type: "ship", issues: [], message: "no stock yet" });
        }),
    });
    expect(await workshop.job(id)).toMatchObject({
      state: "retry",
      error: { name: "InvalidPayload", reason: "error" },
    });
  });
});

describe("a continuation under a full key", () => {
  it("is created and skipped, so that the chain has an end", async () => {
    const workshop = shop();
    await workshop.create("refund", payload);
    const id = await workshop.create("charge", payload);
    await workshop.start({
      charge: (job) => job.complete(({ continueWith }) => continueWith("refund", job.payload)),
    });
    const nextId = continuationId(await workshop.job(id));
    expect(await workshop.job(nextId)).toMatchObject({
      state: "skipped",
      reason: "rejected late",
      policy: { outcome: "rejected", reason: "active_limit" },
    });
  });
});

describe("a job that somebody else ends while its handler runs", () => {
  it("aborts the signal with already_completed, and complete rejects with JobAlreadyCompleted", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    const errors: unknown[] = [];
    await workshop.start({
      charge: async (job) => {
        await untilAborted(job.signal).catch((reason) => errors.push(reason));
        await job
          .complete(({ continueWith }) => continueWith("ship", job.payload))
          .catch((error) => {
            errors.push(error);
            throw error;
          });
      },
    });
    await workshop.complete(id);
    await workshop.turn();
    const [aborted, refused] = errors;
    expect(aborted).toMatchObject({ reason: "already_completed" });
    expect(refused).toBeInstanceOf(JobAlreadyCompleted);
    expect(refused).toMatchObject({ id, state: "completed" });
    const job = await workshop.job(id);
    expect(job).toMatchObject({ state: "completed", completedBy: null });
    expect(await workshop.exists(continuationId(job))).toBe(false);
    expect((await workshop.names(id)).at(-1)).toBe("staleCompletionIgnored");
  });

  it("rejects with the loss of the hold where another worker has the job", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    const going = gate();
    let error: unknown;
    const worker = await workshop.start({
      charge: async (job) => {
        await going.opened;
        await job
          .complete(() => ({ paid: true }))
          .catch((thrown) => {
            error = thrown;
          });
      },
    });
    await workshop.remove(id);
    going.open();
    await workshop.turn();
    expect(error).toBeInstanceOf(JobAborted);
    expect(error).toMatchObject({ reason: "not_found" });
    expect(worker.active).toBe(0);
  });
});

describe("time", () => {
  it("lets no complete through after the try has taken too long", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    let error: unknown;
    await workshop.start({
      charge: async (job) => {
        await untilAborted(job.signal).catch(() => {});
        await job
          .complete(() => ({ paid: true }))
          .catch((thrown) => {
            error = thrown;
          });
      },
    });
    await workshop.clock.advance(5_000);
    expect(error).toMatchObject({ reason: "timeout" });
    expect(await workshop.job(id)).toMatchObject({ state: "retry", error: { reason: "timeout" } });
  });

  it("holds no lease for a handler that goes on after it, and gives its place away in the end", async () => {
    const workshop = shop();
    await workshop.create("charge", payload);
    const worker = await workshop.start(
      {
        charge: async (job) => {
          await job.complete(() => ({ paid: true }));
          await gate().opened;
        },
      },
      { graceMs: 1_000 },
    );
    const renewals = workshop.count("renew");
    await workshop.clock.advance(4_000);
    expect(workshop.count("renew")).toBe(renewals);
    const stopping = worker.stop();
    await workshop.clock.advance(1_000);
    await stopping;
    expect(worker.active).toBe(0);
  });

  it("settles once although the reply of the store was lost", async () => {
    const workshop = shop();
    const id = await workshop.create("charge", payload);
    workshop.trouble.settle = "lose-reply";
    await workshop.start({
      charge: (job) => job.complete(({ continueWith }) => continueWith("ship", job.payload)),
    });
    workshop.trouble.settle = "none";
    await workshop.clock.advance(200);
    const job = await workshop.job(id);
    expect(await workshop.names(id)).toEqual(["created", "started", "completed"]);
    expect(await workshop.names(continuationId(job))).toEqual(["created"]);
  });
});
