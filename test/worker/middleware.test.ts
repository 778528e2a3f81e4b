// Middleware: what lies around what, when it takes effect, and what it may do to an attempt.
import {
  chain,
  connect,
  defineJob,
  defineService,
  InvalidMiddleware,
  type Middleware,
  snooze,
} from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { gate } from "./workshop.js";

const shop = defineService("shop", {
  mail: defineJob({ payload: z.object({}), retry: { maxTries: 1 } }),
});

async function open() {
  const service = await connect(shop, { url: "memory:" });
  onTestFinished(() => service.stop());
  return service;
}

/** Notes when it is entered and left. */
function noted(name: string, seen: string[]): Middleware {
  return async (_job, next) => {
    seen.push(`${name}>`);
    try {
      return await next();
    } finally {
      seen.push(`<${name}`);
    }
  };
}

describe("order", () => {
  it("puts what came first outermost, and the service's own around the handler's", async () => {
    const service = await open();
    const seen: string[] = [];
    service.jobs.mail.handle(() => void seen.push("handler"), {
      use: [noted("c", seen), noted("d", seen)],
    });
    service.use(noted("a", seen));
    service.use(noted("b", seen));
    await service.start();
    await service.jobs.mail.run({}).orThrow();
    expect(seen.join(" ")).toBe("a> b> c> d> handler <d <c <b <a");
  });

  it("is kept by chain", async () => {
    const service = await open();
    const seen: string[] = [];
    service.use(chain(noted("a", seen), chain(noted("b", seen)), noted("c", seen)), chain());
    service.jobs.mail.handle(() => void seen.push("handler"));
    await service.start();
    await service.jobs.mail.run({}).orThrow();
    expect(seen.join(" ")).toBe("a> b> c> handler <c <b <a");
  });
});

it("takes effect for later attempts, and leaves those alone that have begun", async () => {
  const service = await open();
  const seen: string[] = [];
  const begun = gate();
  const goOn = gate();
  service.use(noted("a", seen));
  service.jobs.mail.handle(async () => {
    begun.open();
    await goOn.opened;
  });
  await service.start();
  const first = service.jobs.mail.run({});
  await begun.opened;
  service.use(noted("late", seen));
  goOn.open();
  await first.orThrow();
  expect(seen).toEqual(["a>", "<a"]);
  await service.jobs.mail.run({}).orThrow();
  expect(seen.slice(2)).toEqual(["a>", "late>", "<late", "<a"]);
});

describe("an attempt", () => {
  it("ends with what middleware gives in place of the handler", async () => {
    const service = await open();
    service.use((job, next) => (job.tags.includes("cached") ? { from: "cache" } : next()));
    service.jobs.mail.handle(() => ({ from: "handler" }));
    await service.start();
    expect(await service.jobs.mail.run({}, { tags: ["cached"] }).orThrow()).toEqual({
      from: "cache",
    });
    expect(await service.jobs.mail.run({}).orThrow()).toEqual({ from: "handler" });
  });

  it("fails with what middleware throws, and may be given back by it", async () => {
    const service = await open();
    let times = 0;
    service.use((_job, next) => {
      times += 1;
      if (times === 1) return snooze(0, "not yet");
      if (times === 2) throw new Error("no entry");
      return next();
    });
    service.jobs.mail.handle(() => null);
    await service.start();
    const job = await service.jobs.mail.create({}).orThrow();
    expect((await job.wait()).isErr()).toBe(true);
    const events = await job.events().orThrow();
    expect(events.map(({ name }) => name)).toEqual([
      "created",
      "started",
      "released",
      "started",
      "dead",
    ]);
    expect(await job.get().orThrow()).toMatchObject({ tries: 1, error: { message: "no entry" } });
  });

  it("leaves a handler behind slow middleware its choice of transactions", async () => {
    const service = await open();
    service.use(async (_job, next) => {
      await Promise.resolve();
      return next();
    });
    service.jobs.mail.handle(async (job) => {
      const order = await job.prepare({ mode: "staged" }, () => "o-1");
      return job.complete(() => ({ order }));
    });
    await service.start();
    expect(await service.jobs.mail.run({}).orThrow()).toEqual({ order: "o-1" });
  });
});

it("refuses what is no function", async () => {
  const service = await open();
  const nothing = undefined as unknown as Middleware;
  const next: Middleware = (_job, go) => go();
  expect(() => service.use(next, nothing)).toThrow(InvalidMiddleware);
  expect(() => chain(nothing)).toThrow("number 1 is undefined");
  expect(() => service.jobs.mail.handle(() => null, { use: [next, null as never] })).toThrow(
    "number 2 is null",
  );
  // Nothing of what was refused is left behind.
  service.jobs.mail.handle(() => "done");
  await service.start();
  expect(await service.jobs.mail.run({}).orThrow()).toBe("done");
});
