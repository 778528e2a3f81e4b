// The key's policy and the idempotency key: which creates make a job, and which meet one.

import { describe, expect, it } from "vitest";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { openService, stores } from "../support/stores.js";
import { shop } from "./shop.js";

const dayMs = 24 * 60 * 60 * 1_000;

describe.for(stores)("a full key on $name", (store) => {
  const acme = { tenant: "acme" };

  it("rejects with the counts and the job that is in the way", async () => {
    const { jobs } = await openService(store, shop);
    const first = await jobs.strict.create(acme).orThrow();
    const refused = await jobs.strict.create(acme);
    if (refused.isOk()) throw new Error("The key is full.");
    expect(refused.error).toMatchObject({
      _tag: "JobNotEnqueued",
      reason: "active_limit",
      key: "strict/acme",
      active: 1,
      queued: 0,
      limit: 1,
      existingJobId: first.id,
    });
    expect(await jobs.strict.submit(acme).orThrow()).toMatchObject({
      outcome: "rejected",
      limit: 1,
    });
    expect((await jobs.strict.submit({ tenant: "other" }).orThrow()).outcome).toBe("accepted");
  });

  it("coalesces into the job that waits", async () => {
    const { jobs } = await openService(store, shop);
    const first = await jobs.merged.create(acme).orThrow();
    const second = await jobs.merged.create(acme).orThrow();
    const submission = await jobs.merged.submit(acme).orThrow();
    if (submission.outcome !== "coalesced") throw new Error(`It was ${submission.outcome}.`);
    expect(submission.job.existing).toBe(true);
    const refused = await jobs.merged.create(acme);
    if (refused.isOk()) throw new Error("The key is full.");
    expect(refused.error).toMatchObject({
      _tag: "JobNotEnqueued",
      reason: "coalesced",
      key: "merged/acme",
      limit: 2,
      existingJobId: submission.job.id,
    });
    expect([first.id, second.id]).toContain(submission.job.id);
  });

  it("replaces the oldest that waits", async () => {
    const { jobs } = await openService(store, shop);
    await jobs.newest.create(acme).orThrow();
    await jobs.newest.create(acme).orThrow();
    const submission = await jobs.newest.submit(acme).orThrow();
    if (submission.outcome !== "replaced") throw new Error(`It was ${submission.outcome}.`);
    expect((await submission.job.get().orThrow()).policy).toMatchObject({ outcome: "replaced" });
    const [replaced, fourth] = [submission.replacedJobId, await jobs.newest.create(acme).orThrow()];
    expect(replaced).not.toBe(fourth.id);
    expect(fourth.existing).toBe(false);
  });

  it("refuses a payload without what the key needs", async () => {
    const service = await openService(store, shop);
    const refused = await service.untyped.create("strict", { tenant: "x".repeat(600) });
    if (refused.isOk()) throw new Error("The key is too long.");
    expect(refused.error).toMatchObject({ _tag: "InvalidPayload", issues: [{ path: "/tenant" }] });
  });
});

describe.for(stores)("an idempotency key on $name", (store) => {
  const ada = { name: "Ada" };

  it("gives the existing job, whatever became of it", async () => {
    const { jobs } = await openService(store, shop);
    const first = await jobs.greet.create(ada, { idempotencyKey: "k" }).orThrow();
    const second = await jobs.greet.create(ada, { idempotencyKey: "k" }).orThrow();
    expect([second.id, second.existing]).toEqual([first.id, true]);
    await first.cancel().orThrow();
    const third = await jobs.greet.submit(ada, { idempotencyKey: "k" }).orThrow();
    expect(third).toMatchObject({ outcome: "existing", job: { id: first.id } });
    expect((await first.get().orThrow()).idempotencyKey).toBe("k");
  });

  it("refuses another payload", async () => {
    const { jobs } = await openService(store, shop);
    const first = await jobs.greet.create(ada, { idempotencyKey: "k" }).orThrow();
    const refused = await jobs.greet.create({ name: "Bob" }, { idempotencyKey: "k" });
    if (refused.isOk()) throw new Error("The payload is another.");
    expect(refused.error).toMatchObject({
      _tag: "IdempotencyConflict",
      key: "k",
      existingJobId: first.id,
    });
    const same = await jobs.greet
      .create({ loud: false, name: "Ada" }, { idempotencyKey: "k" })
      .orThrow();
    expect(same.id).toBe(first.id);
  });

  it("is known per type", async () => {
    const { jobs } = await openService(store, shop);
    await jobs.greet.create(ada, { idempotencyKey: "k" }).orThrow();
    expect((await jobs.slow.create(ada, { idempotencyKey: "k" }).orThrow()).existing).toBe(false);
  });

  it("lets a new job in once the old has ended, if it is about unfinished ones", async () => {
    const { jobs } = await openService(store, shop);
    const idempotencyKey = { key: "k", scope: "unfinished" } as const;
    const first = await jobs.greet.create(ada, { idempotencyKey }).orThrow();
    expect((await jobs.greet.create(ada, { idempotencyKey }).orThrow()).id).toBe(first.id);
    await first.cancel().orThrow();
    const second = await jobs.greet.create({ name: "Bob" }, { idempotencyKey }).orThrow();
    expect([second.existing, second.id === first.id]).toEqual([false, false]);
    expect((await jobs.greet.create({ name: "Bob" }, { idempotencyKey }).orThrow()).id).toBe(
      second.id,
    );
    await second.delete({ force: true }).orThrow();
    expect((await jobs.greet.create(ada, { idempotencyKey }).orThrow()).existing).toBe(false);
  });

  it("stands for its job within the window even after that job was deleted", async () => {
    const { jobs } = await openService(store, shop);
    const first = await jobs.greet.create(ada, { idempotencyKey: "k" }).orThrow();
    await first.delete({ force: true }).orThrow();
    const again = await jobs.greet.create(ada, { idempotencyKey: "k" }).orThrow();
    expect([again.id, again.existing]).toEqual([first.id, true]);
  });

  it("is forgotten after its window", async () => {
    const clock = new FakeClock();
    const { jobs } = await openService(store, shop, { clock });
    const first = await jobs.greet.create(ada, { idempotencyKey: "k" }).orThrow();
    await clock.advance(dayMs - 1);
    expect((await jobs.greet.create(ada, { idempotencyKey: "k" }).orThrow()).id).toBe(first.id);
    await clock.advance(1);
    expect((await jobs.greet.create(ada, { idempotencyKey: "k" }).orThrow()).existing).toBe(false);
    const short = { key: "s", windowMs: 10 };
    await jobs.greet.create(ada, { idempotencyKey: short }).orThrow();
    await clock.advance(10);
    expect((await jobs.greet.create(ada, { idempotencyKey: short }).orThrow()).existing).toBe(
      false,
    );
  });

  it("makes one job of many creates at once", async () => {
    const { jobs, reads } = await openService(store, shop);
    const creates = Array.from({ length: 50 }, () =>
      jobs.greet.create(ada, { idempotencyKey: "k" }).orThrow(),
    );
    const refs = await Promise.all(creates);
    expect(new Set(refs.map(({ id }) => id)).size).toBe(1);
    expect(refs.filter(({ existing }) => !existing)).toHaveLength(1);
    const many = await jobs.greet
      .createMany([1, 2, 3].map(() => ({ payload: ada, idempotencyKey: "m" })))
      .orThrow();
    expect(new Set(many.map((result) => result.isOk() && result.value.id)).size).toBe(1);
    expect((await reads.jobs().orThrow()).count).toBe(2);
  });

  it("is not used up by a create that its concurrency key refuses", async () => {
    const { jobs } = await openService(store, shop);
    const tenant = { tenant: "acme" };
    const holder = await jobs.strict.create(tenant).orThrow();
    expect((await jobs.strict.create(tenant, { idempotencyKey: "k" })).isErr()).toBe(true);
    await holder.cancel().orThrow();
    expect((await jobs.strict.create(tenant, { idempotencyKey: "k" }).orThrow()).existing).toBe(
      false,
    );
  });
});
