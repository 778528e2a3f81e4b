// What a ref does to its job: cancel, retry, replay, dismiss, delete, and look.
import { type AnyService, defineJob, defineService, type JobRef, terminate } from "millrace";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { command, commandMany } from "#millrace/client/commands.js";
import { systemIds } from "#millrace/client/ids.js";
import type { Runtime } from "#millrace/client/runtime.js";
import { systemClock } from "#millrace/engine/clock.js";
import { silentLogger } from "#millrace/engine/logger.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { openService, type Store, stores } from "../support/stores.js";
import { shop } from "./shop.js";

function tagOf(result: { isErr(): boolean; readonly error?: { readonly _tag: string } }): string {
  return result.isErr() ? (result.error?._tag ?? "") : "ok";
}

/** A gate that handlers wait at, and that tells when one has come. */
function gate() {
  let open = () => {};
  let arrive = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const arrived = new Promise<void>((resolve) => {
    arrive = resolve;
  });
  return { open, arrive, opened, arrived };
}

async function startedShop(store: Store) {
  const service = await openService(store, shop);
  const hold = gate();
  service.handle({
    greet: async (job) => {
      if (job.payload.name === "nobody") return terminate("There is nobody.");
      if (job.payload.name === "patient") {
        hold.arrive();
        await Promise.race([
          hold.opened,
          new Promise((_, reject) =>
            job.signal.addEventListener("abort", () => reject(job.signal.reason)),
          ),
        ]);
      }
      await job.log("greeting", "warn");
      return { text: `Hello ${job.payload.name}` };
    },
    slow: () => {
      throw new Error("It always breaks.");
    },
  });
  await service.start();
  return { service, hold, jobs: service.jobs };
}

describe.for(stores)("a ref on $name", (store) => {
  it("cancels a waiting job at once, and an ended one not at all", async () => {
    const { jobs } = await openService(store, shop);
    const ref = await jobs.greet.create({ name: "Ada" }).orThrow();
    expect(await ref.cancel("changed my mind").orThrow()).toEqual({
      outcome: "cancelled",
      state: "cancelled",
    });
    expect(await ref.get().orThrow()).toMatchObject({
      state: "cancelled",
      reason: "changed my mind",
    });
    expect(await ref.cancel().orThrow()).toEqual({ outcome: "ended", state: "cancelled" });
    expect(await ref.events().orThrow()).toHaveLength(2);
  });

  it("asks a running job to stop", async () => {
    const { jobs, hold } = await startedShop(store);
    const ref = await jobs.greet.create({ name: "patient" }).orThrow();
    await hold.arrived;
    expect(await ref.cancel("too slow").orThrow()).toEqual({
      outcome: "requested",
      state: "active",
    });
    expect((await ref.cancel().orThrow()).state).toMatch(/active|cancelled/);
    const ended = await ref.wait();
    expect(ended.isErr() && ended.error).toMatchObject({ state: "cancelled", reason: "too slow" });
  });

  it("ends a running job by force", async () => {
    const { jobs, hold } = await startedShop(store);
    const ref = await jobs.greet.create({ name: "patient" }).orThrow();
    await hold.arrived;
    expect(await ref.cancel("now", { force: true }).orThrow()).toEqual({
      outcome: "cancelled",
      state: "cancelled",
    });
    hold.open();
    expect((await ref.get().orThrow()).state).toBe("cancelled");
  });

  it("retries what has ended, and what has completed only by force", async () => {
    const { jobs } = await startedShop(store);
    const failed = await jobs.greet.create({ name: "nobody" }).orThrow();
    await failed.wait();
    expect(await failed.retry({ delayMs: 60_000 }).orThrow()).toMatchObject({
      state: "pending",
      run: 2,
      tries: 0,
    });
    expect(tagOf(await failed.retry())).toBe("CommandRefused");
    expect(tagOf(await failed.retry({ delayMs: -1 }))).toBe("InvalidOption");
    const done = await jobs.greet.create({ name: "Ada" }).orThrow();
    await done.wait();
    const refused = await done.retry();
    expect(refused.isErr() && refused.error).toMatchObject({
      _tag: "CommandRefused",
      command: "retry",
      state: "completed",
    });
    expect((await done.retry({ force: true }).orThrow()).run).toBe(2);
    expect((await done.wait()).isOk()).toBe(true);
  });

  it("replays and dismisses only what is dead", async () => {
    const { jobs } = await startedShop(store);
    const dead = await jobs.slow.create({ name: "Ada" }).orThrow();
    await dead.wait();
    expect((await dead.replay().orThrow()).run).toBe(2);
    await dead.wait();
    expect(await dead.dismiss("seen").orThrow()).toMatchObject({
      state: "dismissed",
      reason: "seen",
    });
    expect(tagOf(await dead.replay())).toBe("CommandRefused");
    const failed = await jobs.greet.create({ name: "nobody" }).orThrow();
    await failed.wait();
    await expect(failed.replay().orThrow()).rejects.toThrow(/is failed, not dead; use retry\(\)/);
    await expect(failed.dismiss().orThrow()).rejects.toThrow(/only dead jobs can be dismissed/);
  });

  it.for([
    ["reason", (ref: JobRef) => ref.cancel(5 as never)],
    ["options", (ref: JobRef) => ref.cancel("enough", null as never)],
    ["force", (ref: JobRef) => ref.cancel("enough", { force: "yes" } as never)],
    ["now", (ref: JobRef) => ref.cancel("enough", { now: true } as never)],
    ["options", (ref: JobRef) => ref.retry(null as never)],
    ["reason", (ref: JobRef) => ref.dismiss(null as never)],
    ["reason", (ref: JobRef) => ref.delete({ reason: 5 } as never)],
  ] as const)("refuses a wrong %s", async ([field, call]) => {
    const service = await openService(store, shop);
    const refused = await call(service.ref("any"));
    expect(refused.isErr() && refused.error).toMatchObject({ _tag: "InvalidOption", field });
  });

  it("deletes what has ended, and the rest only by force", async () => {
    const { jobs } = await openService(store, shop);
    const ref = await jobs.greet.create({ name: "Ada" }).orThrow();
    expect(tagOf(await ref.delete())).toBe("CommandRefused");
    expect((await ref.delete({ force: true }).orThrow()).payload).toEqual({
      name: "Ada",
      loud: false,
    });
    const gone = [
      await ref.get(),
      await ref.events(),
      await ref.retry(),
      await ref.cancel(),
      await ref.why(),
    ];
    expect(gone.map(tagOf)).toEqual(Array.from({ length: 5 }, () => "JobNotFound"));
  });

  it("shows history and log lines", async () => {
    const { jobs } = await startedShop(store);
    const ref = await jobs.greet.create({ name: "Ada" }).orThrow();
    await ref.wait();
    expect((await ref.events().orThrow()).map(({ name }) => name)).toEqual([
      "created",
      "started",
      "logged",
      "completed",
    ]);
    expect(await ref.logs().orThrow()).toMatchObject([{ level: "warn", message: "greeting" }]);
  });

  it("says that a limit is reached while an ended job still holds its place", async () => {
    const capped = defineService("capped", { one: defineJob({ payload: z.null(), maxActive: 1 }) });
    const service = await openService(store, capped);
    const hold = gate();
    service.jobs.one.handle(() => {
      hold.arrive();
      return hold.opened;
    });
    await service.start();
    const first = await service.jobs.one.create(null).orThrow();
    await hold.arrived;
    await first.delete({ force: true }).orThrow();
    const second = await service.jobs.one.create(null).orThrow();
    expect(await second.why().orThrow()).toMatchObject({ reason: "type_limit", maxActive: 1 });
    hold.open();
    await second.wait().orThrow();
  });

  it("says why the job does not run", async () => {
    const clock = new FakeClock();
    const service = await openService(store, shop, { clock });
    const { jobs } = service;
    const reason = async (ref: { why(): ReturnType<typeof first.why> }) =>
      (await ref.why().orThrow()).reason;
    const first = await jobs.merged.create({ tenant: "acme" }).orThrow();
    const second = await jobs.merged.create({ tenant: "acme" }).orThrow();
    expect([await reason(first), await reason(second)]).toEqual(["no_worker", "key_busy"]);
    await service.queues.pause("merged").orThrow();
    expect(await reason(first)).toBe("queue_paused");
    const later = await jobs.greet.create({ name: "Ada" }, { delayMs: 5_000 }).orThrow();
    expect(await later.why().orThrow()).toMatchObject({
      reason: "scheduled",
      sentence: expect.stringMatching(/scheduled for 2030/),
    });
    await later.cancel().orThrow();
    expect(await reason(later)).toBe("ended");
  });
});

describe.for(stores)("commands on $name", (store) => {
  function runtimeOf({ engine, instance, name }: AnyService): Runtime {
    return {
      engine,
      instance,
      service: name,
      clock: systemClock,
      ids: systemIds,
      logger: silentLogger,
    };
  }

  it("decide again when somebody else was faster, and only one of many cancels wins", async () => {
    const service = await openService(store, shop);
    const runtime = runtimeOf(service);
    const ref = await service.jobs.greet.create({ name: "Ada" }).orThrow();
    const cancel = () =>
      ({ command: "cancel", eventId: runtime.ids.eventId(), actor: "client:test" }) as const;
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, () => command(runtime, ref.id, cancel)),
    );
    expect(outcomes.filter(({ ok }) => ok)).toHaveLength(1);
    expect(await ref.events().orThrow()).toHaveLength(2);
  });

  it("go to many jobs at once, with an outcome for each in order", async () => {
    const service = await openService(store, shop);
    const runtime = runtimeOf(service);
    const created = await service.jobs.greet
      .createMany([1, 2, 3].map((n) => ({ payload: { name: `${n}` } })))
      .orThrow();
    const ids = created.flatMap((result) => (result.isOk() ? [result.value.id] : []));
    const asked = [...ids, "unknown", ids[0] ?? ""];
    const outcomes = await commandMany(runtime, asked, () => ({
      command: "delete",
      reason: "test",
      force: true,
      eventId: runtime.ids.eventId(),
      actor: "client:test",
    }));
    expect(outcomes.map(({ ok }) => ok)).toEqual([true, true, true, false, true]);
    expect(outcomes[3]).toMatchObject({ rejection: { reason: "not_found" }, job: null });
  });

  it("give way after so many tries", async () => {
    const service = await openService(store, shop);
    const runtime = runtimeOf(service);
    const ref = await service.jobs.greet.create({ name: "Ada" }).orThrow();
    const cancel = () =>
      ({ command: "cancel", eventId: runtime.ids.eventId(), actor: "client:test" }) as const;
    const outcome = await command(runtime, ref.id, cancel, { triesMax: 0 });
    expect(outcome).toMatchObject({ ok: false, rejection: { reason: "contended" } });
  });
});
