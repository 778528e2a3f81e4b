// What becomes of a job when its handler returns, throws, terminates, snoozes or skips.
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { skip, snooze, terminate } from "#millrace/worker/outcome.js";
import { Workshop } from "./workshop.js";

const secondMs = 1_000;

function shop() {
  return new Workshop(
    defineService("shop", {
      mail: defineJob({ payload: z.object({}), retry: { maxTries: 3 } }),
      quiet: defineJob({ payload: z.object({}), retry: { maxTries: 1 }, deadLetter: false }),
      listed: defineJob({ payload: z.object({}), retry: { backoff: [10, 20] } }),
      broken: defineJob({
        payload: z.object({}),
        retry: {
          backoff: () => {
            throw new Error("no idea");
          },
        },
      }),
    }),
  );
}

describe("a handler that returns", () => {
  it("completes the job with its value, by its worker", async () => {
    const workshop = shop();
    const id = await workshop.create("mail");
    await workshop.start({ mail: async () => ({ sent: true, at: new Date(0) }) });
    const job = await workshop.job(id);
    expect(job).toMatchObject({ state: "completed", tries: 1, completedBy: "w1" });
    expect(job.result).toEqual({ sent: true, at: "1970-01-01T00:00:00.000Z" });
    expect(await workshop.names(id)).toEqual(["created", "started", "completed"]);
  });

  it("completes the job without a result when there is none, also when it is not async", async () => {
    const workshop = shop();
    const id = await workshop.create("mail");
    await workshop.start({ mail: () => undefined });
    const job = await workshop.job(id);
    expect(job.state).toBe("completed");
    expect(job).not.toHaveProperty("result");
  });
});

describe("a handler that throws", () => {
  it("is tried again after the backoff, and the job is dead after the last try", async () => {
    const workshop = shop();
    const id = await workshop.create("mail");
    const startedAt: number[] = [];
    await workshop.start({
      mail: () => {
        startedAt.push(workshop.clock.monotonic());
        throw new Error("down");
      },
    });
    expect(await workshop.job(id)).toMatchObject({ state: "retry", tries: 1 });
    await workshop.clock.advance(5 * secondMs - 1);
    expect(startedAt).toEqual([0]);
    await workshop.clock.advance(1);
    expect(startedAt).toEqual([0, 5 * secondMs]);
    await workshop.clock.advance(30 * secondMs);
    expect(startedAt).toEqual([0, 5 * secondMs, 35 * secondMs]);
    const job = await workshop.job(id);
    expect(job).toMatchObject({ state: "dead", tries: 3 });
    expect(job.error).toEqual({ message: "down", name: "Error", reason: "error" });
  });

  it("ends the job as failed where dead letters are off", async () => {
    const workshop = shop();
    const id = await workshop.create("quiet");
    await workshop.start({
      quiet: async () => {
        throw new Error("down");
      },
    });
    expect((await workshop.job(id)).state).toBe("failed");
  });

  it("follows a list of delays", async () => {
    const workshop = shop();
    const id = await workshop.create("listed");
    await workshop.start({ listed: () => Promise.reject(new Error("down")) });
    expect((await workshop.job(id)).runAt).toBe(workshop.clock.now() + 10);
    await workshop.clock.advance(10);
    expect((await workshop.job(id)).runAt).toBe(workshop.clock.now() + 20);
  });

  it("is tried again by default delays when its own backoff throws", async () => {
    const workshop = shop();
    const id = await workshop.create("broken");
    await workshop.start({ broken: () => Promise.reject(new Error("down")) });
    expect((await workshop.job(id)).runAt).toBe(workshop.clock.now() + 5 * secondMs);
    expect(workshop.logged("backoff function")).toHaveLength(1);
  });

  it.each([
    [
      Object.assign(new TypeError("bad"), { code: "E_BAD" }),
      { message: "bad", name: "TypeError", code: "E_BAD" },
    ],
    [Object.assign(new Error("bad"), { code: 42 }), { message: "bad", code: "42" }],
    ["just words", { message: "just words" }],
    [{ status: 500 }, { message: 'The handler threw {"status":500}.' }],
    [undefined, { message: "The handler threw undefined." }],
    [
      new Proxy(new Error("x"), {
        get: () => {
          throw new Error("y");
        },
      }),
      { message: "The handler threw a value that cannot be read." },
    ],
  ])("keeps message, name and code of what was thrown (%#)", async (thrown, expected) => {
    const workshop = shop();
    const id = await workshop.create("mail");
    await workshop.start({ mail: () => Promise.reject(thrown) });
    const { error } = await workshop.job(id);
    expect(error).toMatchObject({ ...expected, reason: "error" });
    expect(error).not.toHaveProperty("stack");
  });

  it("keeps a bounded message", async () => {
    const workshop = shop();
    const id = await workshop.create("mail");
    await workshop.start({ mail: () => Promise.reject(new Error("x".repeat(10_000))) });
    expect((await workshop.job(id)).error?.message).toHaveLength(2_000);
  });
});

describe("a handler that says more", () => {
  const ways = [
    ["returned", (said: Error) => Promise.resolve(said)],
    ["thrown", (said: Error) => Promise.reject(said)],
  ] as const;

  it.each(ways)("ends the job as failed: terminate %s", async (_way, say) => {
    const workshop = shop();
    const id = await workshop.create("mail");
    await workshop.start({ mail: () => say(terminate("no such order")) });
    const job = await workshop.job(id);
    expect(job.state).toBe("failed");
    expect(job.error).toEqual({ message: "no such order", reason: "terminated" });
  });

  it.each(ways)("runs later without spending a try: snooze %s", async (_way, say) => {
    const workshop = shop();
    const id = await workshop.create("mail");
    let starts = 0;
    await workshop.start({
      mail: () => {
        starts++;
        return starts === 1 ? say(snooze(500, "rate limited")) : undefined;
      },
    });
    const job = await workshop.job(id);
    expect(job).toMatchObject({ state: "pending", tries: 0, reason: "rate limited" });
    expect(job.runAt).toBe(workshop.clock.now() + 500);
    await workshop.clock.advance(500);
    expect(await workshop.job(id)).toMatchObject({ state: "completed", tries: 1 });
  });

  it.each(ways)("ends the job as skipped: skip %s", async (_way, say) => {
    const workshop = shop();
    const id = await workshop.create("mail");
    await workshop.start({ mail: () => say(skip("sent already")) });
    expect(await workshop.job(id)).toMatchObject({ state: "skipped", reason: "sent already" });
  });

  it("cannot be said without words", () => {
    for (const reason of [undefined, {}, 1] as unknown as readonly string[]) {
      expect(() => terminate(reason)).toThrow("needs its reason as text");
      expect(() => skip(reason)).toThrow("needs its reason as text");
    }
    expect(() => snooze(1, {} as string)).toThrow("needs its reason as text");
  });

  it("is a failed try when what was thrown throws again", async () => {
    const workshop = shop();
    const id = await workshop.create("mail");
    const closed = () => {
      throw new Error("closed");
    };
    await workshop.start({
      mail: () => {
        throw new Proxy({}, { getPrototypeOf: closed, get: closed, has: closed });
      },
    });
    expect(await workshop.job(id)).toMatchObject({
      state: "retry",
      error: { message: "The handler threw a value that cannot be read." },
    });
  });

  it("cannot snooze for a time that is none", () => {
    for (const delayMs of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(() => snooze(delayMs)).toThrow(RangeError);
    }
  });
});
