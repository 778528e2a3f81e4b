// Creates: what is stored, what is refused, and what the options do.
import { context, ROOT_CONTEXT, TraceFlags, trace } from "@opentelemetry/api";
import { createManyMax, type InvalidOption, type Result } from "millrace";
import { afterEach, describe, expect, it } from "vitest";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { openService, stores } from "../support/stores.js";
import { shop } from "./shop.js";

function failureOf<Failure>(result: { isErr(): boolean; readonly error?: Failure }): Failure {
  if (!result.isErr() || result.error === undefined) throw new Error("It should have failed.");
  return result.error;
}

describe.for(stores)("create on $name", (store) => {
  it("stores the schema's output with the settings of its type", async () => {
    const clock = new FakeClock();
    const service = await openService(store, shop, { clock, instance: "api-1" });
    const ref = await service.jobs.greet.create({ name: "Ada" }).orThrow();
    expect(ref.existing).toBe(false);
    const job = await ref.get().orThrow();
    expect(job).toMatchObject({
      id: ref.id,
      service: "shop",
      type: "greet",
      typeVersion: 1,
      queue: "greet",
      state: "pending",
      version: 1,
      run: 1,
      tries: 0,
      maxTries: 5,
      priority: 0,
      runAt: clock.now(),
      createdAt: clock.now(),
      payload: { name: "Ada", loud: false },
      tags: [],
    });
    expect(job.deadline).toBeUndefined();
    const [created] = await ref.events().orThrow();
    expect(created).toMatchObject({ name: "created", actor: "client:api-1", at: clock.now() });
  });

  it("awaits a schema that takes its time", async () => {
    const service = await openService(store, shop);
    expect((await service.jobs.slow.create({ name: "Ada" })).isOk()).toBe(true);
    const refused = failureOf(await service.jobs.slow.create({ name: "nobody" }));
    expect(refused).toMatchObject({
      _tag: "InvalidPayload",
      type: "slow",
      issues: [{ path: "/name" }],
    });
  });

  it("refuses a payload that does not fit and stores nothing", async () => {
    const service = await openService(store, shop);
    const bad = { name: 5 } as unknown as { name: string };
    const refused = failureOf(await service.jobs.greet.create(bad));
    expect(refused._tag).toBe("InvalidPayload");
    expect(refused.message).toMatch(/payload of greet is not valid: \/name:/);
    await expect(service.jobs.greet.create(bad).orThrow()).rejects.toThrow(refused.message);
    expect((await service.reads.jobs().orThrow()).count).toBe(0);
  });

  it.for([
    ["nothing", undefined, /give null or \{\}/],
    ["a function", () => {}, /function/],
    ["a number that JSON lacks", { a: Number.NaN }, /\/a: is NaN/],
    ["a forbidden name", JSON.parse('{"__proto__": 1}'), /may not use/],
    ["too many bytes", "x".repeat(256 * 1024), /store large data elsewhere/],
    ["too many levels", JSON.parse("[".repeat(40) + "]".repeat(40)), /deeper than 32/],
  ] as const)("refuses %s as a payload", async ([, payload, message]) => {
    const service = await openService(store, shop);
    const refused = failureOf(await service.jobs.loose.create(payload));
    expect(refused._tag).toBe("InvalidPayload");
    expect(refused.message).toMatch(message);
  });

  it("rejects when the payload's own code throws", async () => {
    const service = await openService(store, shop);
    const payload = {
      toJSON() {
        throw new RangeError("broken");
      },
    };
    await expect(service.jobs.loose.create(payload)).rejects.toThrow("broken");
  });

  it("keeps the payload as it was when it was given", async () => {
    const service = await openService(store, shop);
    const payload = { steps: ["one"] };
    const creating = service.jobs.loose.create(payload);
    payload.steps.push("two");
    const ref = await creating.orThrow();
    expect((await ref.get().orThrow()).payload).toEqual({ steps: ["one"] });
  });

  it("obeys every option", async () => {
    const clock = new FakeClock();
    const service = await openService(store, shop, { clock });
    const deadline = new Date(clock.now() + 90_000);
    const traceparent = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
    const ref = await service.jobs.greet
      .create(
        { name: "Ada" },
        {
          id: "order-1",
          priority: -3,
          delayMs: 5_000,
          deadline,
          maxTries: 1,
          tags: ["vip", "eu", "vip"],
          context: { requestId: "r-1", traceparent, tracestate: "k=v" },
        },
      )
      .orThrow();
    expect(await ref.get().orThrow()).toMatchObject({
      id: "order-1",
      priority: -3,
      runAt: clock.now() + 5_000,
      deadline: deadline.getTime(),
      maxTries: 1,
      tags: ["vip", "eu"],
      context: { requestId: "r-1", traceId: "a".repeat(32), traceparent, tracestate: "k=v" },
    });
    const later = await service.jobs.greet
      .create({ name: "Ada" }, { runAt: new Date(clock.now() + 9_000) })
      .orThrow();
    expect((await later.get().orThrow()).runAt).toBe(clock.now() + 9_000);
  });

  it("takes the deadline that comes first: its own or the type's, and the queue's greatest age", async () => {
    const clock = new FakeClock();
    const { jobs } = await openService(store, shop, { clock });
    const hourMs = 3_600_000;
    const of = async (deadline?: number) => {
      const ref = await jobs.slow
        .create({ name: "Ada" }, deadline === undefined ? {} : { deadline })
        .orThrow();
      return ((await ref.get().orThrow()).deadline ?? 0) - clock.now();
    };
    expect(await of()).toBe(60_000);
    expect(await of(clock.now() + 120_000)).toBe(120_000);
    expect(await of(clock.now() + 2 * hourMs)).toBe(hourMs);
  });

  it("refuses an id that exists", async () => {
    const { jobs } = await openService(store, shop);
    await jobs.greet.create({ name: "Ada" }, { id: "one" }).orThrow();
    expect(failureOf(await jobs.greet.create({ name: "Bob" }, { id: "one" }))).toMatchObject({
      _tag: "JobExists",
      id: "one",
    });
  });

  it("refuses everything once the service has stopped", async () => {
    const service = await openService(store, shop);
    await service.stop();
    expect(failureOf(await service.jobs.greet.create({ name: "Ada" }))._tag).toBe("StoreClosed");
  });
});

describe("an option of create", () => {
  it.for([
    ["id", { id: "a b" }, /not a valid id name/],
    ["id", { id: 5 }, /An id must be a string, not number/],
    ["options", null, /must be an object, not null/],
    ["options", "soon", /must be an object, not string/],
    ["priority", { priority: 1.5 }, /1\.5 is not a whole number from -1000 to 1000/],
    ["runAt", { runAt: 8.65e15 }, /valid Date/],
    ["runAt", { runAt: Number.POSITIVE_INFINITY }, /valid Date/],
    ["deadline", { deadline: -8.65e15 }, /valid Date/],
    ["delayMs", { delayMs: 8.64e15 }, /not a number from 0/],
    ["idempotencyKey", { idempotencyKey: null }, /must be a string, or an object with a key/],
    ["context", { context: null }, /must be an object, not null/],
    ["context", { context: "request-1" }, /must be an object, not string/],
    ["context", { context: { traceparent: 5 } }, /traceparent must be a string/],
    ["context", { context: { traceparent: "00", tracestate: 5 } }, /tracestate must be a string/],
    ["priority", { priority: 1_001 }, /from -1000 to 1000/],
    ["delayMs", { delayMs: -1 }, /not a number from 0/],
    ["runAt", { runAt: new Date(Number.NaN) }, /valid Date/],
    ["runAt", { runAt: 5, delayMs: 5 }, /exclude each other/],
    ["deadline", { deadline: "soon" }, /valid Date/],
    ["maxTries", { maxTries: 0 }, /from 1 to/],
    ["tags", { tags: Array.from({ length: 21 }, (_, n) => `t${n}`) }, /at most 20/],
    ["tags", { tags: [" "] }, /not a valid tag/],
    ["tags", { tags: "vip" }, /list of words/],
    ["idempotencyKey", { idempotencyKey: "" }, /1 to 255/],
    ["idempotencyKey", { idempotencyKey: { key: "a", scope: "all" } }, /scope must be/],
    ["idempotencyKey", { idempotencyKey: { key: "a", windowMs: 0 } }, /windowMs/],
    ["idempotencyKey", { idempotencyKey: { key: "a", window: 5 } }, /no field window; use key, /],
    ["blockers", { blockers: [{ job: "a", onBadend: "continue" }] }, /no field onBadend; use job/],
    ["blockers", { blockers: [{ chain: "a", onbadend: 1 }] }, /no field onbadend; use chain, /],
    ["blockers", { blockers: [{ job: "a", chain: "b" }] }, /no field job; use chain, onBadEnd/],
    ["context", { context: { requestID: "r" } }, /no field requestID; use requestId, /],
    ["context", { context: { traceparent: "00-1" } }, /not a W3C traceparent/],
    ["context", { context: { requestId: "" } }, /requestId/],
    ["context", { context: { tracestate: "a=b" } }, /needs a traceparent/],
    ["blockers", { blockers: "first" }, /must be a list/],
    ["target", { target: "agent" }, /not supported/],
    ["delay", { delay: 5 }, /is not an option of a create; use one of id/],
  ] as const)("%s is refused when it cannot be used", async ([field, options, message]) => {
    const [memory] = stores;
    if (memory === undefined) throw new Error("There is no store.");
    const { jobs } = await openService(memory, shop);
    const refused = failureOf(
      await jobs.greet.create({ name: "Ada" }, options as object),
    ) as InvalidOption;
    expect(refused).toMatchObject({ _tag: "InvalidOption", field });
    expect(refused.message).toMatch(message);
  });
});

describe.for(stores)("createMany on $name", (store) => {
  it("refuses what is no list, and an item that is no job", async () => {
    const { jobs } = await openService(store, shop);
    const noList = failureOf(await jobs.greet.createMany("Ada" as never));
    expect(noList).toMatchObject({ _tag: "InvalidOption", field: "jobs" });
    const items = [{ payload: { name: "Ada" } }, null] as never;
    const [created, refused] = await jobs.greet.createMany(items).orThrow();
    expect(created?.isOk()).toBe(true);
    expect(refused?.isErr() && refused.error).toMatchObject({
      _tag: "InvalidOption",
      field: "jobs",
    });
  });

  it("gives each job its own outcome, in order", async () => {
    const { jobs, reads } = await openService(store, shop);
    const bad = { name: 1 } as unknown as { name: string };
    const results = await jobs.greet
      .createMany([
        { payload: { name: "Ada" }, id: "a", priority: 3 },
        { payload: bad },
        { payload: { name: "Bob" }, id: "a" },
        { payload: { name: "Cyd" }, delayMs: -1 },
        { payload: { name: "Dan" }, id: "d" },
      ])
      .orThrow();
    expect(results.map(tagOf)).toEqual(["a", "InvalidPayload", "JobExists", "InvalidOption", "d"]);
    expect((await reads.jobs().orThrow()).count).toBe(2);
  });

  it("makes a thousand at once and refuses more", async () => {
    const { jobs, reads } = await openService(store, shop);
    const items = Array.from({ length: createManyMax }, (_, n) => ({ payload: { name: `n${n}` } }));
    const results = await jobs.greet.createMany(items).orThrow();
    expect(new Set(results.map(tagOf)).size).toBe(createManyMax);
    expect((await reads.counts().orThrow())[0]).toMatchObject({
      state: "pending",
      count: createManyMax,
    });
    const refused = failureOf(
      await jobs.greet.createMany([...items, { payload: { name: "last" } }]),
    );
    expect(refused).toMatchObject({ _tag: "InvalidOption", field: "jobs" });
  });

  it("awaits a schema that takes its time, and makes nothing of nothing", async () => {
    const { jobs } = await openService(store, shop);
    const results = await jobs.slow
      .createMany([{ payload: { name: "Ada" } }, { payload: { name: "nobody" } }])
      .orThrow();
    expect(results.map((result) => result.isOk())).toEqual([true, false]);
    expect(await jobs.slow.createMany([]).orThrow()).toEqual([]);
  });
});

function tagOf(result: Result<{ readonly id: string }, { readonly _tag: string }>): string {
  return result.isOk() ? result.value.id : result.error._tag;
}

describe("the context of a job", () => {
  afterEach(() => {
    context.disable();
  });

  async function contextOfNewJob() {
    const [memory] = stores;
    if (memory === undefined) throw new Error("There is no store.");
    const { jobs } = await openService(memory, shop);
    const ref = await jobs.greet.create({ name: "Ada" }).orThrow();
    return { id: ref.id, ...(await ref.get().orThrow()).context };
  }

  it("is fresh where nothing is traced, with the job as its own request", async () => {
    const { id, requestId, traceId, traceparent } = await contextOfNewJob();
    expect(requestId).toBe(id);
    expect(traceparent).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    expect(traceparent).toContain(traceId);
    expect((await contextOfNewJob()).traceId).not.toBe(traceId);
  });

  it("is the active span's", async () => {
    const span = trace.wrapSpanContext({
      traceId: "c".repeat(32),
      spanId: "d".repeat(16),
      traceFlags: TraceFlags.SAMPLED,
    });
    const active = trace.setSpan(ROOT_CONTEXT, span);
    context.setGlobalContextManager({
      active: () => active,
      with: (_, work, self, ...parameters) => work.call(self, ...parameters),
      bind: (_, target) => target,
      enable() {
        return this;
      },
      disable() {
        return this;
      },
    });
    const { traceparent, traceId } = await contextOfNewJob();
    expect(traceparent).toBe(`00-${"c".repeat(32)}-${"d".repeat(16)}-01`);
    expect(traceId).toBe("c".repeat(32));
  });
});
