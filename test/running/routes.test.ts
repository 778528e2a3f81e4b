// Routes on every store: types that no contract names are found and handled, and what nobody handles says so.
import { connect, defineJob, defineService, InvalidHandler } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { everyStore } from "../support/every-store.js";

const keeper = { ttlMs: 2_000, renewMs: 200, tickMs: 50 };

const shop = defineService("shop", {
  mail: defineJob({ payload: z.object({}), queue: { name: "letters" } }),
});

describe.for(everyStore)("routes on $name", (store) => {
  async function open(url: string) {
    const service = await connect(shop, { url, keeper });
    onTestFinished(() => service.stop());
    return service;
  }

  it("gives a type to its own route, else to the longest prefix, else to the one for all", async () => {
    const service = await open(await store.freshUrl());
    for (const prefix of ["", "email:", "email:new", "email:new:vip"])
      service.route(prefix, (job) => [prefix, job.type, job.payload]);
    // One is there before the start, the others come when the worker knows nothing of them.
    const early = await service.untyped.create("email:new", { n: 0 }).orThrow();
    await service.start();
    expect(await early.wait().orThrow()).toEqual(["email:new", "email:new", { n: 0 }]);
    const types = ["email:new:vip", "email:newer", "email:old", "sms", "email"];
    const results = types.map((type) => service.untyped.run(type, null).orThrow());
    expect((await Promise.all(results)).map((result) => (result as unknown[])[0])).toEqual([
      "email:new:vip",
      "email:new",
      "email:",
      "",
      "",
    ]);
  });

  it("fails the tries of what no route fits, in queues that are served and nowhere else", async () => {
    const service = await open(await store.freshUrl());
    const wrapped: string[] = [];
    service.use((job, next) => {
      wrapped.push(job.type);
      return next();
    });
    service.route("email:", () => "sent");
    service.jobs.mail.handle(() => "sent");
    const served = await service.untyped.create("fax", null, { queue: "letters" }).orThrow();
    const unserved = await service.untyped.create("fax", null, { queue: "machines" }).orThrow();
    await service.start();
    expect(await service.untyped.run("email:new", null).orThrow()).toBe("sent");
    const failed = await eventually(async () => {
      const job = await served.get().orThrow();
      return job.state === "retry" ? job : null;
    });
    expect(failed.error).toMatchObject({ name: "NoHandler", reason: "error" });
    expect(failed.error?.message).toBe(
      'There is no handler for fax in this process; its routes are "email:".',
    );
    expect((await unserved.get().orThrow()).state).toBe("pending");
    expect(wrapped).toEqual(["email:new"]);
  });

  it("finds the types that another process has created", async () => {
    const url = await store.freshUrl();
    // A store in memory belongs to one process.
    const creator = url === "memory:" ? null : await open(url);
    const service = await open(url);
    service.route("report.", (job) => job.payload);
    await service.start();
    const job = await (creator ?? service).untyped.create("report.daily", [1]).orThrow();
    expect(await service.ref(job.id).wait().orThrow()).toEqual([1]);
  });
});

it("discards at once what the service does not keep, of types that no contract names, too", async () => {
  const unkept = defineService("shop", {}, { retention: { completed: 0 } });
  const service = await connect(unkept, { url: "memory:", keeper: false });
  onTestFinished(() => service.stop());
  service.route("", () => "done");
  await service.start();
  const { id } = await service.untyped.create("note", null).orThrow();
  const names: string[] = [];
  for await (const { event } of service.engine.tail(null, AbortSignal.timeout(10_000))) {
    names.push(event.name);
    if (event.jobId === id && event.name === "deleted") break;
  }
  expect(names.at(-1)).toBe("deleted");
});

it("leaves the contract's own types to their handlers", async () => {
  const service = await connect(shop, { url: "memory:" });
  onTestFinished(() => service.stop());
  service.route("", () => "by route");
  service.jobs.mail.handle(() => "by handler");
  await service.start();
  expect(await service.jobs.mail.run({}).orThrow()).toBe("by handler");
  expect(await service.untyped.run("mail", {}).orThrow()).toBe("by handler");
  expect(await service.untyped.run("mails", {}).orThrow()).toBe("by route");
});

it("refuses a route that cannot work", async () => {
  const service = await connect(shop, { url: "memory:" });
  onTestFinished(() => service.stop());
  service.route("email:", () => null);
  expect(() => service.route("email:", () => null)).toThrow(InvalidHandler);
  expect(() => service.route("mail", () => null)).toThrow("use service.jobs.mail.handle");
  expect(() => service.route("sms", null as never)).toThrow("must be a function");
  expect(() => service.route("sms", () => null, { concurrency: 0 })).toThrow("concurrency is 0");
  await service.start();
  expect(() => service.route("sms", () => null)).toThrow("comes too late");
});

/** Looks until there is something to see. */
async function eventually<T>(look: () => Promise<T | null>): Promise<T> {
  for (;;) {
    const found = await look();
    if (found !== null) return found;
    await new Promise((resolve) => setImmediate(resolve));
  }
}
