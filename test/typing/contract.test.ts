// Types flow from the contract to creates, handlers and results without a cast.
// The compiler is the judge here; what runs only shows that the values are there, too.
import {
  type AnyService,
  connect,
  defineJob,
  defineService,
  type JobRef,
  type Json,
  terminate,
  versions,
} from "millrace";
import { describe, expect, expectTypeOf, it, onTestFinished } from "vitest";
import { z } from "zod";

const shop = defineService("shop", {
  sendReceipt: defineJob({
    payload: z.object({ orderId: z.string(), copies: z.number().default(1) }),
    result: z.object({ messageId: z.string(), sentAt: z.coerce.date() }),
  }),
  syncTickets: defineJob({ payload: z.object({ since: z.coerce.date() }) }),
  resize: versions(
    defineJob({ payload: z.string(), result: z.number() }),
    defineJob({
      payload: z.object({ url: z.string() }),
      result: z.object({ bytes: z.number() }),
      version: 2,
    }),
  ),
});

async function service() {
  const connected = await connect(shop, { url: "memory:" });
  onTestFinished(() => connected.stop());
  return connected;
}

describe("create", () => {
  it("takes what the schema takes", async () => {
    const { jobs } = await service();
    type Input = Parameters<typeof jobs.sendReceipt.create>[0];
    expectTypeOf<Input>().toEqualTypeOf<{ orderId: string; copies?: number | undefined }>();
    // @ts-expect-error: orderId must be a string.
    expect((await jobs.sendReceipt.create({ orderId: 5 })).isErr()).toBe(true);
    // @ts-expect-error: orderId is missing.
    expect((await jobs.sendReceipt.create({})).isErr()).toBe(true);
    // @ts-expect-error: later is not an option.
    expect((await jobs.sendReceipt.create({ orderId: "1" }, { later: true })).isErr()).toBe(true);
    // @ts-expect-error: transactions are not an option of this version.
    expect((await jobs.sendReceipt.create({ orderId: "1" }, { tx: {} })).isErr()).toBe(true);
  });

  it("gives refs that know payload and result as they are stored", async () => {
    const { jobs } = await service();
    const ref = await jobs.sendReceipt.create({ orderId: "1" }).orThrow();
    const { payload, result } = await ref.get().orThrow();
    expectTypeOf(payload).toEqualTypeOf<{ orderId: string; copies: number }>();
    expectTypeOf(result).toEqualTypeOf<{ messageId: string; sentAt: string } | undefined>();
    expect(payload).toEqual({ orderId: "1", copies: 1 });
  });

  it("has an outcome of its own for each of many", async () => {
    const { jobs } = await service();
    const [first] = await jobs.sendReceipt
      .createMany([{ payload: { orderId: "1" }, priority: 5 }])
      .orThrow();
    // @ts-expect-error: the payload must fit here, too.
    const bad = await jobs.sendReceipt.createMany([{ payload: { orderId: 1 } }]).orThrow();
    expect(first?.isOk()).toBe(true);
    expect(bad[0]?.isErr()).toBe(true);
  });

  it("is there for the contract's types only", async () => {
    const { jobs } = await service();
    // @ts-expect-error: the contract names no such job.
    expect(jobs.sendPostcard).toBeUndefined();
  });
});

describe("run and wait", () => {
  it("give the result that the schema gives, as JSON stores it", async () => {
    const { jobs } = await service();
    type Receipt = Awaited<ReturnType<ReturnType<typeof jobs.sendReceipt.run>["orThrow"]>>;
    expectTypeOf<Receipt>().toEqualTypeOf<{ messageId: string; sentAt: string }>();
    type Synced = Awaited<ReturnType<ReturnType<typeof jobs.syncTickets.run>["orThrow"]>>;
    expectTypeOf<Synced>().toEqualTypeOf<Json | undefined>();
    const waited = (ref: JobRef<string, number>) => ref.wait().orThrow();
    expectTypeOf(waited).returns.resolves.toEqualTypeOf<number>();
  });

  it("name every way in which they fail", async () => {
    const { jobs } = await service();
    const ran = await jobs.sendReceipt.run({ orderId: "1" }, { timeoutMs: 0 });
    if (ran.isOk()) throw new Error("No worker runs.");
    expectTypeOf(ran.error._tag)
      .extract<"JobEnded" | "WaitTimeout" | "JobNotEnqueued">()
      .toEqualTypeOf<"JobEnded" | "WaitTimeout" | "JobNotEnqueued">();
    expect(ran.error._tag).toBe("WaitTimeout");
  });
});

describe("handle", () => {
  it("gives the schema's output and takes the result's input", async () => {
    const { jobs } = await service();
    jobs.sendReceipt.handle(async (job) => {
      expectTypeOf(job.payload).toEqualTypeOf<{ orderId: string; copies: number }>();
      return { messageId: job.payload.orderId, sentAt: new Date() };
    });
    jobs.syncTickets.handle((job) => {
      expectTypeOf(job.payload.since).toEqualTypeOf<Date>();
    });
  });

  it("refuses a handler that returns something else", async () => {
    const { jobs } = await service();
    // @ts-expect-error: messageId must be a string.
    jobs.sendReceipt.handle(async () => ({ messageId: 5, sentAt: new Date() }));
    const other = await service();
    // @ts-expect-error: a result is needed.
    other.jobs.sendReceipt.handle(async () => {});
  });

  it("takes outcomes in place of a result", async () => {
    const { jobs } = await service();
    jobs.sendReceipt.handle((job) =>
      job.payload.copies > 5 ? terminate("too many") : { messageId: "1", sentAt: new Date() },
    );
  });

  it("takes several handlers by name", async () => {
    const connected = await service();
    connected.handle({
      sendReceipt: (job) => ({ messageId: job.payload.orderId, sentAt: new Date() }),
      syncTickets: async () => {},
    });
    // @ts-expect-error: the contract names no such job.
    expect(() => connected.handle({ sendPostcard: async () => {} })).toThrow(
      /has no job sendPostcard/,
    );
  });
});

describe("a service", () => {
  it("fits where any service will do", async () => {
    const nameOf = (any: AnyService) => any.name;
    expect(nameOf(await service())).toBe("shop");
  });
});

describe("versions", () => {
  it("make jobs of the last one, and of the others by number", async () => {
    const { jobs } = await service();
    expectTypeOf(jobs.resize.create).parameter(0).toEqualTypeOf<{ url: string }>();
    expectTypeOf(jobs.resize.version(1).create).parameter(0).toEqualTypeOf<string>();
    expectTypeOf(jobs.resize.version(2).create).parameter(0).toEqualTypeOf<{ url: string }>();
    jobs.resize.version(1).handle((job) => job.payload.length);
    jobs.resize.handle((job) => ({ bytes: job.payload.url.length }));
    // @ts-expect-error: there is no third version.
    expect(() => jobs.resize.version(3)).toThrow(/has no version 3; the contract names 1, 2/);
    const old = await jobs.resize.version(1).create("a.png").orThrow();
    expect(await old.get().orThrow()).toMatchObject({ typeVersion: 1, payload: "a.png" });
  });
});
