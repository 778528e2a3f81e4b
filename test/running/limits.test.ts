// Limits of middleware hold over all processes, on every store.
import {
  connect,
  defineJob,
  defineService,
  type Engine,
  limitByTag,
  openEngine,
  rateLimit,
} from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { everyStore, type Store } from "../support/every-store.js";

const keeper = { ttlMs: 2_000, renewMs: 200, tickMs: 50 };

const shop = defineService("shop", {
  call: defineJob({ payload: z.object({ host: z.string().default("a") }), concurrency: 20 }),
});

/** Two services of the same name on one store, as two processes have them. */
async function twoServices(store: Store) {
  const url = await store.freshUrl();
  const memory = url === "memory:" ? await openEngine(url) : null;
  const where = memory ? { engine: memory } : { url };
  const services = await Promise.all([
    connect(shop, { ...where, keeper, instance: "one" }),
    connect(shop, { ...where, keeper, instance: "two" }),
  ]);
  onTestFinished(async () => {
    await Promise.all(services.map((service) => service.stop()));
    await memory?.close();
  });
  return services;
}

describe.for(everyStore)("over two processes on $name", (store) => {
  it("no more tries begin within a time than the rate allows", async () => {
    const services = await twoServices(store);
    const limit = 4;
    const windowMs = 400;
    const begun: number[] = [];
    for (const service of services) {
      service.use(rateLimit({ limit, windowMs }));
      service.jobs.call.handle(() => void begun.push(service.engine.now()));
    }
    const [creator] = services;
    const payloads = Array.from({ length: 14 }, () => ({ payload: {} }));
    const jobs = await creator.jobs.call.createMany(payloads).orThrow();
    await Promise.all(services.map((service) => service.start()));
    await Promise.all(jobs.map((job) => job.unwrap().wait().orThrow()));
    expect(begun).toHaveLength(14);
    begun.sort((a, b) => a - b);
    for (let last = limit; last < begun.length; last++) {
      // The handler runs a moment after its turn was stored, and moments differ.
      const apartMs = (begun[last] ?? 0) - (begun[last - limit] ?? 0);
      expect(apartMs).toBeGreaterThan(windowMs * 0.75);
    }
    for (const job of jobs) {
      const { tries } = await job.unwrap().get().orThrow();
      expect(tries).toBe(1);
    }
  });

  it("no more jobs of a tag run at once than its limit", async () => {
    const services = await twoServices(store);
    let running = 0;
    let most = 0;
    for (const service of services) {
      service.use(limitByTag({ slow: 3, rare: 1 }));
      service.jobs.call.handle(async (job) => {
        running += 1;
        most = Math.max(most, running);
        // The store takes its time to answer, in which others could begin.
        await job.heartbeat();
        running -= 1;
      });
    }
    const [creator] = services;
    const tagged = Array.from({ length: 30 }, () => ({ payload: {}, tags: ["slow", "other"] }));
    const jobs = await creator.jobs.call.createMany(tagged).orThrow();
    await Promise.all(services.map((service) => service.start()));
    await Promise.all(jobs.map((job) => job.unwrap().wait().orThrow()));
    expect(most).toBe(3);
  });
});

it("a try is not spent because others keep taking their turns", async () => {
  const store = await openEngine("memory:");
  let rivals = 250;
  // Another process is always a moment faster, for a while.
  const swap: Engine["swap"] = async (writes) => {
    const [write] = writes;
    if (write?.id.startsWith("rate/") && rivals > 0) {
      rivals--;
      await store.swap([{ ...write, body: { begun: [], planned: [] } }]);
    }
    return store.swap(writes);
  };
  const engine = new Proxy(store, {
    get: (target, name) => {
      if (name === "swap") return swap;
      const member: unknown = Reflect.get(target, name);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
  const service = await connect(shop, { engine, keeper });
  onTestFinished(async () => {
    await service.stop();
    await store.close();
  });
  service.use(rateLimit({ limit: 4, windowMs: 400 }));
  service.jobs.call.handle(() => {});
  await service.start();
  const job = await service.jobs.call.create({}, { maxTries: 1 }).orThrow();
  await job.wait().orThrow();
  expect(rivals).toBe(0);
  expect(await job.get().orThrow()).toMatchObject({ state: "completed", tries: 1 });
  const events = await job.events().orThrow();
  expect(events.filter(({ name }) => name === "released")).toHaveLength(2);
});
