// Durations and times of users may have fractions; what is stored has none, on every store.
import { connect, defineJob, defineService, snooze } from "millrace";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { everyStore } from "../support/every-store.js";
import { openService } from "../support/stores.js";

const keeper = { tickMs: 50 };

const shop = defineService("shop", {
  call: defineJob({
    payload: z.number(),
    result: z.string(),
    retry: { maxTries: 3, backoff: () => 0.5 },
  }),
});

describe.for(everyStore)("a fraction of a millisecond on $name", (store) => {
  it("is no part of when a job sleeps until, or is tried again", async () => {
    const service = await openService(store, shop, { keeper });
    let starts = 0;
    service.jobs.call.handle(() => {
      starts += 1;
      if (starts === 1) return snooze(10.5, "the bank is closed");
      if (starts === 2) throw new Error("The bank is broken.");
      return "done";
    });
    await service.start();
    const job = await service.jobs.call.create(1).orThrow();
    expect(await job.wait().orThrow()).toBe("done");
    const names = (await job.events().orThrow()).map(({ name }) => name);
    const tries = ["started", "released", "started", "retry", "started", "completed"];
    expect(names.filter((name) => tries.includes(name))).toEqual(tries);
  });

  it("is no part of the times that a caller gives", async () => {
    const service = await openService(store, shop, { keeper });
    const { jobs, reads } = service;
    const runAt = service.engine.now() + 60_000.4;
    const options = { runAt, deadline: runAt + 1_000, tags: ["later"] };
    const idempotencyKey = { key: "k", windowMs: 60_000.5 };
    const job = await jobs.call.create(1, { ...options, idempotencyKey }).orThrow();
    const again = await jobs.call.create(1, { ...options, idempotencyKey }).orThrow();
    expect(again.id).toBe(job.id);
    const stored = await job.get().orThrow();
    expect([stored.runAt, stored.deadline]).toEqual([Math.round(runAt), Math.round(runAt + 1_000)]);
    await job.cancel().orThrow();
    await job.retry({ delayMs: 60_000.5 }).orThrow();
    expect(Number.isInteger((await job.get().orThrow()).runAt)).toBe(true);
    const times = { since: 1.5, until: service.engine.now() + 1_000.5 };
    // Not every store has its lists up to date at once.
    await expect.poll(async () => (await reads.jobs(times).orThrow()).count).toBe(1);
  });
});

it("is refused in the timings of a keeper", async () => {
  const connecting = connect(shop, { url: "memory:", keeper: { ttlMs: 1.5 } });
  await expect(connecting).rejects.toMatchObject({ _tag: "InvalidOption", field: "keeper" });
});
