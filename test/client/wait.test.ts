// Waiting: the result, how a job ended otherwise, and why the waiting ended before it did.
import { connect, skip, terminate } from "millrace";
import { testService } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { systemIds } from "#millrace/client/ids.js";
import { Waiters } from "#millrace/client/waiters.js";
import { systemClock } from "#millrace/engine/clock.js";
import type { Engine } from "#millrace/engine/engine.js";
import { silentLogger } from "#millrace/engine/logger.js";
import { openEngine } from "#millrace/engine/open.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { openService, type Store, stores } from "../support/stores.js";
import { shop } from "./shop.js";

async function startedShop(store: Store) {
  const service = await openService(store, shop);
  service.handle({
    greet: ({ payload }) => {
      if (payload.name === "nobody") return terminate("There is nobody.");
      return payload.name === "ghost"
        ? skip("Ghosts hear nothing.")
        : { text: `Hello ${payload.name}` };
    },
    slow: () => {
      throw new Error("It always breaks.");
    },
  });
  await service.start();
  return service;
}

describe.for(stores)("waiting on $name", (store) => {
  it("gives the result", async () => {
    const { jobs } = await startedShop(store);
    expect(await jobs.greet.run({ name: "Ada" }).orThrow()).toEqual({ text: "Hello Ada" });
    const ref = await jobs.greet.create({ name: "Bob" }).orThrow();
    expect(await ref.wait().orThrow()).toEqual({ text: "Hello Bob" });
    expect(await ref.wait().orThrow()).toEqual({ text: "Hello Bob" });
  });

  it("tells how a job ended otherwise", async () => {
    const { jobs } = await startedShop(store);
    const failed = await jobs.greet.run({ name: "nobody" });
    const skipped = await jobs.greet.run({ name: "ghost" });
    const dead = await jobs.slow.run({ name: "Ada" });
    expect([failed, skipped, dead].map((result) => result.isErr() && result.error)).toMatchObject([
      {
        _tag: "JobEnded",
        state: "failed",
        error: { message: "There is nobody.", reason: "terminated" },
      },
      { _tag: "JobEnded", state: "skipped", reason: "Ghosts hear nothing." },
      { _tag: "JobEnded", state: "dead", error: { message: "It always breaks.", name: "Error" } },
    ]);
    await expect(jobs.greet.run({ name: "nobody" }).orThrow()).rejects.toThrow(
      /ended as failed: There is nobody/,
    );
  });

  it("serves many who wait for many", async () => {
    const { jobs } = await startedShop(store);
    const names = Array.from({ length: 300 }, (_, n) => `n${n}`);
    const texts = await Promise.all(
      names.map(async (name) => (await jobs.greet.run({ name }).orThrow()).text),
    );
    expect(texts).toEqual(names.map((name) => `Hello ${name}`));
  });

  it("ends for want of time, and the job goes on", async () => {
    const clock = new FakeClock();
    const { jobs } = await openService(store, shop, { clock });
    const ref = await jobs.greet.create({ name: "Ada" }).orThrow();
    const waiting = ref.wait({ timeoutMs: 500 });
    await clock.advance(500);
    const waited = await waiting;
    expect(waited.isErr() && waited.error).toMatchObject({
      _tag: "WaitTimeout",
      id: ref.id,
      timeoutMs: 500,
    });
    expect((await ref.get().orThrow()).state).toBe("pending");
  });

  it("ends with its signal", async () => {
    const { jobs } = await openService(store, shop);
    const ref = await jobs.greet.create({ name: "Ada" }).orThrow();
    const controller = new AbortController();
    const waiting = ref.wait({ signal: controller.signal });
    controller.abort("enough");
    const waited = await waiting;
    expect(waited.isErr() && waited.error).toMatchObject({ _tag: "WaitAborted", cause: "enough" });
    const again = await ref.wait({ signal: controller.signal });
    expect(again.isErr() && again.error._tag).toBe("WaitAborted");
  });

  it.for([
    ["signal", { signal: {} }],
    ["signal", { signal: new AbortController() }],
    ["timeoutMs", { timeoutMs: -1 }],
    ["timeoutMs", { timeoutMs: Number.NaN }],
    ["timeoutMs", { timeoutMs: "5" }],
    ["timeout", { timeout: 5 }],
    ["options", null],
  ] as const)("refuses a wrong %s before anything is made", async ([field, options]) => {
    const service = await openService(store, shop);
    const waited = await service.ref("any").wait(options as never);
    const ran = await service.jobs.greet.run({ name: "Ada" }, options as never);
    const untyped = await service.untyped.run("greet", { name: "Ada" }, options as never);
    for (const refused of [waited, ran, untyped])
      expect(refused.isErr() && refused.error).toMatchObject({ _tag: "InvalidOption", field });
    expect((await service.reads.jobs().orThrow()).count).toBe(0);
  });

  it("names every option of a run", async () => {
    const { jobs } = await openService(store, shop);
    const running = jobs.greet.run({ name: "Ada" }, { timeout: 5 } as object).orThrow();
    await expect(running).rejects.toThrow(
      /not an option of a run; .*context, signature, timeoutMs, signal/,
    );
  });

  it("takes Infinity for no limit", async () => {
    const clock = new FakeClock();
    const service = await openService(store, shop, { clock });
    const ref = await service.jobs.greet.create({ name: "Ada" }).orThrow();
    const waiting = ref.wait({ timeoutMs: Number.POSITIVE_INFINITY });
    await clock.advance(60_000);
    await ref.cancel("no need").orThrow();
    await clock.advance(1_000);
    await expect(waiting.orThrow()).rejects.toThrow(/ended as cancelled: no need/);
  });

  it("ends when there is no job, or the job is deleted", async () => {
    const service = await openService(store, shop);
    const none = await service.ref("nothing").wait();
    expect(none.isErr() && none.error._tag).toBe("JobNotFound");
    const ref = await service.jobs.greet.create({ name: "Ada" }).orThrow();
    const waiting = ref.wait();
    await ref.delete({ force: true }).orThrow();
    const waited = await waiting;
    expect(waited.isErr() && waited.error._tag).toBe("JobNotFound");
  });

  it("ends when the store is closed", async () => {
    const clock = new FakeClock();
    const service = await openService(store, shop, { clock });
    const ref = await service.jobs.greet.create({ name: "Ada" }).orThrow();
    const waiting = ref.wait();
    await service.stop();
    await clock.advance(2_000);
    const waited = await waiting;
    expect(waited.isErr() && waited.error._tag).toBe("StoreClosed");
  });
});

it("tells why a job was cancelled, and not the error of a try before", async () => {
  await using test = await testService(shop);
  test.service.handle({
    greet: () => {
      throw new Error("It always breaks.");
    },
  });
  const ref = await test.service.jobs.greet.create({ name: "Ada" }).orThrow();
  await test.drain();
  await ref.cancel("no need").orThrow();
  const waited = await ref.wait();
  expect(waited.isErr() && waited.error).toMatchObject({
    message: `Job ${ref.id} has ended as cancelled: no need`,
    error: { message: "It always breaks." },
  });
});

describe("the watcher", () => {
  it("tells the others when one who waits breaks", async () => {
    const engine = await openEngine("memory:");
    onTestFinished(() => engine.close());
    const lines: string[] = [];
    const logger = { ...silentLogger, error: (_: object, line: string) => lines.push(line) };
    const ids = systemIds;
    const runtime = { engine, clock: systemClock, ids, logger, instance: "i", service: "shop" };
    const waiters = new Waiters(runtime);
    waiters.add("nothing", () => {
      throw new Error("broken");
    });
    expect(await new Promise((resolve) => waiters.add("nothing", resolve))).toBeNull();
    expect(lines).toEqual([expect.stringContaining("failed")]);
  });

  /** An engine whose loads are counted and whose hints can be lost. */
  async function watched(clock: FakeClock, hints: boolean) {
    const engine = await openEngine("memory:", { clock });
    const loads: number[] = [];
    const counting = new Proxy(engine, {
      get(target, name) {
        if (name === "load") {
          return (ids: readonly string[], options?: { readonly history?: boolean }) => {
            loads.push(ids.length);
            return target.load(ids, options);
          };
        }
        if (name === "wake" && !hints) return () => () => {};
        const member = target[name as keyof Engine];
        return typeof member === "function" ? member.bind(target) : member;
      },
    });
    onTestFinished(() => engine.close());
    return { loads, service: await connect(shop, { engine: counting, clock }) };
  }

  it("asks for all jobs at once, however many wait", async () => {
    const clock = new FakeClock();
    const { loads, service } = await watched(clock, true);
    const items = Array.from({ length: 500 }, () => ({ payload: { name: "Ada" } }));
    const created = await service.jobs.greet.createMany(items).orThrow();
    const waiting = created.flatMap((result) =>
      result.isOk() ? [result.value.wait({ timeoutMs: 60_000 })] : [],
    );
    await clock.advance(10_000);
    expect(loads[0]).toBe(500);
    // At 250 ms, 750 ms, and once a second from then on.
    expect(loads.length).toBeLessThanOrEqual(13);
    await clock.advance(50_000);
    const tags = await Promise.all(waiting.map(async (one) => (await one).isErr()));
    expect(new Set(tags)).toEqual(new Set([true]));
    const before = loads.length;
    await clock.advance(60_000);
    expect(loads.length).toBe(before);
  });

  it("finds an ended job without a hint", async () => {
    const clock = new FakeClock();
    const { service } = await watched(clock, false);
    const ref = await service.jobs.greet.create({ name: "Ada" }).orThrow();
    const waiting = ref.wait();
    await clock.advance(3_000);
    await ref.cancel("no need").orThrow();
    await clock.advance(1_000);
    const waited = await waiting;
    expect(waited.isErr() && waited.error).toMatchObject({ state: "cancelled", reason: "no need" });
  });

  it("bears a storm of hints that concern nobody who waits", async () => {
    const clock = new FakeClock();
    const { loads, service } = await watched(clock, true);
    const ref = await service.jobs.greet.create({ name: "Ada" }).orThrow();
    const waiting = ref.wait();
    for (let storm = 0; storm < 500; storm++) {
      const other = await service.jobs.greet.create({ name: "Bob" }).orThrow();
      await other.cancel().orThrow();
    }
    expect(loads.filter((count) => count === 1).length).toBeLessThan(500 + 200);
    await ref.cancel().orThrow();
    await clock.advance(250);
    expect((await waiting).isErr()).toBe(true);
  });
});
