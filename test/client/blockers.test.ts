// Blockers: jobs that wait for others, what their handlers learn of them, and what happens when one ends badly.
import { defineJob, defineService, terminate } from "millrace";
import { testService } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { everyStore } from "../support/every-store.js";
import { openService } from "../support/stores.js";

const order = z.object({ orderId: z.string() });

const shop = defineService("shop", {
  invoice: defineJob({ payload: order, result: z.object({ number: z.number() }) }),
  reserve: defineJob({
    payload: order,
    result: z.object({ shelf: z.string() }),
    continuations: ["move"],
  }),
  move: defineJob({ payload: order, result: z.object({ dock: z.string() }) }),
  ship: defineJob({
    payload: order,
    result: z.string(),
    blockers: { invoice: "invoice", goods: "reserve" },
  }),
  sum: defineJob({ payload: z.object({}), result: z.number() }),
  one: defineJob({ payload: z.object({ number: z.number() }), result: z.number() }),
  fleeting: defineJob({ payload: z.object({}), result: z.number(), retention: { completed: 0 } }),
  picky: defineJob({ payload: order, result: z.string(), continuations: ["sum"] }),
});

const o1 = { orderId: "o-1" };

/**
 * How many times as long as with a hundred jobs a fan of a thousand may take. Ten is even; what looks at every blocker
 * after every end takes a hundred times as long.
 */
const wideRatioMax = 50;

/** How often each is measured. The shortest counts, in which nothing else kept the machine busy. */
const fansEach = 3;

async function testShop() {
  const test = await testService(shop);
  onTestFinished(() => test.stop());
  test.service.handle({
    invoice: ({ payload }) =>
      payload.orderId === "bad" ? terminate("There is no such order.") : { number: 7 },
    reserve: ({ payload, complete }) =>
      payload.orderId === "far"
        ? complete(({ continueWith }) => continueWith("move", payload))
        : { shelf: "s1" },
    move: () => ({ dock: "d1" }),
    ship: ({ blockers }) => {
      const { invoice, goods } = blockers;
      return `${invoice.state} ${invoice.result?.number} ${JSON.stringify(goods.result)}`;
    },
    sum: async ({ loadDependencies }) => {
      let sum = 0;
      for (const { result } of await loadDependencies())
        sum += typeof result === "number" ? result : 0;
      return sum;
    },
    one: ({ payload }) => payload.number,
    fleeting: () => 5,
  });
  return test;
}

describe("named blockers", () => {
  it("hand their results to the handler, of jobs and of chains", async () => {
    const { service, drain } = await testShop().then((test) => ({
      service: test.service,
      drain: () => test.drain({ untilIdle: true }),
    }));
    const { jobs, chains } = service;
    const invoice = await jobs.invoice.create(o1).orThrow();
    const goods = await chains.start("reserve", { orderId: "far" }).orThrow();
    const ship = await jobs.ship.create(o1, { blockers: { invoice, goods } }).orThrow();
    const near = await jobs.reserve.create(o1).orThrow();
    const other = await jobs.ship
      .create(o1, { blockers: { invoice: invoice.id, goods: { job: near } } })
      .orThrow();
    expect((await ship.get().orThrow()).state).toBe("blocked");
    await drain();
    expect(await ship.wait().orThrow()).toBe('completed 7 {"dock":"d1"}');
    expect(await other.wait().orThrow()).toBe('completed 7 {"shelf":"s1"}');
    const names = (await ship.events().orThrow()).map(({ name }) => name);
    expect(names).toEqual(["created", "unblocked", "started", "completed"]);
  });

  it("must all be given, and no others", async () => {
    const { jobs } = (await testShop()).service;
    const invoice = await jobs.invoice.create(o1).orThrow();
    // @ts-expect-error: goods is missing.
    const missing = await jobs.ship.create(o1, { blockers: { invoice } });
    // @ts-expect-error: the definition names them.
    const listed = await jobs.ship.create(o1, { blockers: [invoice] });
    // @ts-expect-error: there is no create without them.
    const none = await jobs.ship.create(o1);
    const named = { invoice, goods: "x", more: "y" };
    const more = await jobs.ship.create(o1, { blockers: named });
    // @ts-expect-error: the definition names none.
    const unnamed = await jobs.sum.create({}, { blockers: { invoice } });
    expect(
      [missing, listed, none, more, unnamed].map(
        (answer) => answer.isErr() && answer.error.message,
      ),
    ).toEqual([
      "blockers: ship waits for invoice, goods; give goods by its name, too.",
      "blockers: ship waits for invoice, goods; give invoice by its name, too.",
      "blockers: ship waits for invoice, goods; give invoice by its name, too.",
      "blockers: ship waits for invoice, goods, not for more.",
      "blockers: the definition of sum names none; give a list, without names.",
    ]);
  });
});

describe("a blocker that ends badly", () => {
  it("makes the job unreachable, and a retry of both lets it run", async () => {
    const test = await testShop();
    const { jobs } = test.service;
    const bad = await jobs.invoice.create({ orderId: "bad" }).orThrow();
    const goods = await jobs.reserve.create(o1).orThrow();
    const ship = await jobs.ship.create(o1, { blockers: { invoice: bad, goods } }).orThrow();
    await test.drain({ untilIdle: true });
    expect(await ship.get().orThrow()).toMatchObject({
      state: "unreachable",
      reason: `blocker ${bad.id} ended badly`,
    });
    const retried = await ship.retry().orThrow();
    expect([retried.state, retried.run]).toEqual(["blocked", 2]);
    await test.drain({ untilIdle: true });
    expect((await ship.get().orThrow()).state).toBe("unreachable");
  });

  it("lets the job go on where its edge says so, and tells the handler", async () => {
    const test = await testShop();
    const { jobs } = test.service;
    const job = await jobs.invoice.create({ orderId: "bad" }).orThrow();
    const goods = await jobs.reserve.create(o1).orThrow();
    const ship = await jobs.ship
      .create(o1, { blockers: { invoice: { job, onBadEnd: "continue" }, goods } })
      .orThrow();
    await test.drain({ untilIdle: true });
    expect(await ship.wait().orThrow()).toBe('failed undefined {"shelf":"s1"}');
  });
});

describe("what cannot be waited for", () => {
  it("is a job that does not exist, unless the same createMany makes it before", async () => {
    const test = await testShop();
    const { jobs } = test.service;
    const missing = await jobs.sum.create({}, { blockers: ["nobody"] });
    expect(missing.isErr() && missing.error).toMatchObject({
      _tag: "InvalidBlocker",
      reason: "missing",
      blockerId: "nobody",
    });
    const [first, second] = await jobs.one
      .createMany([
        { id: "first", payload: { number: 1 } },
        { id: "second", payload: { number: 2 }, blockers: ["first"] },
      ])
      .orThrow();
    expect([first?.isOk(), second?.isOk()]).toEqual([true, true]);
  });

  it("is the job itself, or a chain that waits for its own", async () => {
    const test = await testShop();
    const { jobs, chains } = test.service;
    const self = await jobs.sum.create({}, { id: "me", blockers: ["me"] });
    expect(self.isErr() && self.error).toMatchObject({ _tag: "InvalidBlocker", reason: "cycle" });
    const picky = await chains.start("picky", o1).orThrow();
    const waits = await chains.start("sum", {}, { blockers: [picky] }).orThrow();
    const own = await chains.complete(picky, async ({ job, complete }) => {
      if (job.type !== "picky") return;
      await complete(job, ({ continueWith }) => continueWith("sum", {}, { blockers: [picky] }));
    });
    const circle = await chains.complete(picky, async ({ job, complete }) => {
      if (job.type !== "picky") return;
      await complete(job, ({ continueWith }) => continueWith("sum", {}, { blockers: [waits] }));
    });
    for (const refused of [own, circle])
      expect(refused.isErr() && refused.error).toMatchObject({
        _tag: "InvalidBlocker",
        reason: "cycle",
      });
  });

  it.for(everyStore)(
    "is one of too many, with what they wait for, to look through, on $name",
    async (store) => {
      const { jobs, chains } = await openService(store, shop);
      const picky = await chains.start("picky", o1).orThrow();
      const hubs: string[] = [];
      for (let hub = 0; hub < 10; hub++) {
        const many = await jobs.one
          .createMany(Array.from({ length: 1_000 }, (_, number) => ({ payload: { number } })))
          .orThrow();
        const blockers = many.map((made) => made.unwrap());
        hubs.push((await jobs.sum.create({}, { blockers }).orThrow()).id);
      }
      const goOn = (blockers: readonly string[]) =>
        chains.complete(picky, async ({ job, complete }) => {
          if (job.type !== "picky") return;
          await complete(job, ({ continueWith }) => continueWith("sum", {}, { blockers }));
        });
      const refused = await goOn(hubs);
      expect(refused.isErr() && refused.error).toMatchObject({
        _tag: "InvalidBlocker",
        reason: "too_many",
        message: expect.stringContaining("more than 10000 jobs and chains"),
      });
      expect((await goOn(hubs.slice(1))).isOk()).toBe(true);
    },
  );

  it.each([
    [{ blockers: "x" }, /It must be a list/],
    [{ blockers: [5] }, /A blocker is a ref, an id/],
    [{ blockers: [{ job: "a", onBadEnd: "ignore" }] }, /onBadEnd must be/],
    [{ blockers: ["no spaces"] }, /not a valid id/],
    [{ blockers: Array.from({ length: 1_001 }, () => "a") }, /at most 1000/],
  ])("is refused with its reason (%o)", async (options, message) => {
    const { jobs } = (await testShop()).service;
    const refused = await jobs.sum.create({}, options as object);
    expect(refused.isErr() && refused.error.message).toMatch(message);
  });

  it.for(everyStore)(
    "ends the job as failed whose continuation would wait for its own chain, on $name",
    async (store) => {
      const service = await openService(store, shop);
      const { jobs, chains } = service;
      let waiting = "";
      jobs.picky.handle((job) =>
        job.complete(({ continueWith }) =>
          continueWith("sum", {}, { blockers: [{ chain: waiting }] }),
        ),
      );
      const picky = await chains.start("picky", o1).orThrow();
      waiting = (await chains.start("sum", {}, { blockers: [picky] }).orThrow()).id;
      await service.start();
      const ended = await service.ref(picky.id).wait();
      expect(ended).toMatchObject({
        error: { _tag: "JobEnded", state: "failed", error: { name: "InvalidBlocker" } },
      });
      expect(await service.ref(picky.id).get().orThrow()).toMatchObject({ tries: 1 });
    },
  );

  it("is tried again where a continuation waits for a job that is not there yet", async () => {
    const test = await testShop();
    test.service.jobs.picky.handle((job) =>
      job.complete(({ continueWith }) => continueWith("sum", {}, { blockers: ["late"] })),
    );
    const job = await test.service.jobs.picky.create(o1).orThrow();
    await test.drain();
    expect(await job.get().orThrow()).toMatchObject({
      state: "retry",
      error: { name: "InvalidBlocker", reason: "error" },
    });
    await test.service.jobs.one.create({ number: 1 }, { id: "late" }).orThrow();
    await test.drain({ untilIdle: true });
    expect(await job.get().orThrow()).toMatchObject({ state: "completed", tries: 2 });
  });

  it("fails the try of a handler whose continuation waits for it", async () => {
    const test = await testShop();
    test.service.jobs.picky.handle((job) =>
      job.complete(({ continueWith }) => continueWith("sum", {}, { blockers: ["nobody"] })),
    );
    const job = await test.service.jobs.picky.create(o1, { maxTries: 1 }).orThrow();
    await test.drain({ untilIdle: true });
    expect(await job.get().orThrow()).toMatchObject({
      state: "dead",
      error: { name: "InvalidBlocker" },
    });
  });
});

describe("a blocked job", () => {
  it("says what it waits for and how that is doing", async () => {
    const test = await testShop();
    const { jobs, chains } = test.service;
    const one = await jobs.one.create({ number: 1 }, { id: "one", delayMs: 10 }).orThrow();
    const chain = await chains.start("reserve", o1, { id: "chain" }).orThrow();
    const sum = await jobs.sum.create({}, { blockers: [one, chain] }).orThrow();
    const why = await sum.why().orThrow();
    expect(why.sentence).toBe("It waits for job one (pending), chain chain (pending) to end.");
    expect(why).toMatchObject({ reason: "blocked", blockers: [{ id: "one" }, { isChain: true }] });
  });

  it("has the results of what keeps nothing of itself, which goes afterwards", async () => {
    const test = await testShop();
    const { jobs } = test.service;
    const fleeting = await jobs.fleeting.create({}).orThrow();
    const one = await jobs.one.create({ number: 2 }, { delayMs: 1_000 }).orThrow();
    const sum = await jobs.sum.create({}, { blockers: [fleeting, one] }).orThrow();
    await test.drain({ untilIdle: true });
    expect(await sum.wait().orThrow()).toBe(7);
    await test.clock.advance(10_000);
    await test.drain({ untilIdle: true });
    expect((await fleeting.get()).isErr()).toBe(true);
  });

  it("keeps a chain that it waits for from being deleted without force", async () => {
    const test = await testShop();
    const { jobs, chains } = test.service;
    const chain = await chains.start("reserve", o1).orThrow();
    const sum = await jobs.sum.create({}, { id: "sum", blockers: [chain] }).orThrow();
    const refused = await chains.delete(chain);
    expect(refused.isErr() && refused.error.message).toMatch(/Job sum waits for chain/);
    expect(await chains.delete(chain, { force: true }).orThrow()).toBe(1);
    await test.drain({ untilIdle: true });
    expect((await sum.get().orThrow()).state).toBe("unreachable");
  });
});

describe.for(everyStore)("on $name", (store) => {
  async function started() {
    const service = await openService(store, shop);
    service.handle({
      invoice: ({ payload }) =>
        payload.orderId === "bad" ? terminate("There is no such order.") : { number: 7 },
      reserve: ({ payload, complete }) =>
        complete(({ continueWith }) => continueWith("move", payload)),
      move: () => ({ dock: "d1" }),
      ship: ({ blockers: { invoice, goods } }) =>
        `${invoice.state} ${invoice.result?.number} ${JSON.stringify(goods.result)}`,
      one: ({ payload }) => payload.number,
      sum: async ({ loadDependencies }) => (await loadDependencies()).length,
    });
    await service.start();
    return service;
  }

  it("named blockers hand their results to the handler, of a job and of a chain", async () => {
    const { jobs, chains } = await started();
    const goods = await chains.start("reserve", o1).orThrow();
    const invoice = await jobs.invoice.create(o1).orThrow();
    const ship = await jobs.ship.create(o1, { blockers: { invoice, goods } }).orThrow();
    expect(await ship.wait().orThrow()).toBe('completed 7 {"dock":"d1"}');
  });

  it("a blocker that ends badly ends the job, or is told to its handler where the edge says so", async () => {
    const { jobs, chains } = await started();
    const goods = await chains.start("reserve", o1).orThrow();
    const invoice = await jobs.invoice.create({ orderId: "bad" }).orThrow();
    const lost = await jobs.ship.create(o1, { blockers: { invoice, goods } }).orThrow();
    const ship = await jobs.ship
      .create(o1, { blockers: { invoice: { job: invoice, onBadEnd: "continue" }, goods } })
      .orThrow();
    expect(await ship.wait().orThrow()).toBe('failed undefined {"dock":"d1"}');
    expect(await lost.wait()).toMatchObject({ error: { _tag: "JobEnded", state: "unreachable" } });
  });

  it("a blocked job can be completed without a worker before its blockers have ended", async () => {
    const { jobs, chains } = await started();
    const one = await jobs.one.create({ number: 1 }, { delayMs: 60_000 }).orThrow();
    const chain = await chains.start("sum", {}, { blockers: [one] }).orThrow();
    const next = await jobs.sum.create({}, { blockers: [chain] }).orThrow();
    const done = await chains
      .complete(chain, async ({ job, complete }) => {
        expect(job.state).toBe("blocked");
        if (job.type === "sum") await complete(job, () => 0);
      })
      .orThrow();
    expect(done).toMatchObject({ state: "completed", output: 0, current: { completedBy: null } });
    expect(await next.wait().orThrow()).toBe(1);
    expect((await one.get().orThrow()).state).toBe("pending");
  });

  it("a job that is retried before it started waits for its blockers again", async () => {
    const { jobs } = await started();
    const one = await jobs.one.create({ number: 1 }, { delayMs: 60_000 }).orThrow();
    const make = () => jobs.sum.create({}, { blockers: [one] }).orThrow();
    const [cancelled, completed] = [await make(), await make()];
    await cancelled.cancel().orThrow();
    await completed.complete(7).orThrow();
    expect((await cancelled.retry().orThrow()).state).toBe("blocked");
    expect((await completed.retry({ force: true }).orThrow()).state).toBe("blocked");
    await one.complete(1).orThrow();
    for (const job of [cancelled, completed]) {
      expect(await job.wait().orThrow()).toBe(1);
      const names = (await job.events().orThrow()).map(({ name }) => name);
      expect(names.slice(2)).toEqual(["retried", "unblocked", "started", "completed"]);
    }
  });

  it("a diamond runs in its order, each job once", async () => {
    const { jobs } = await started();
    const top = await jobs.one.create({ number: 1 }).orThrow();
    const left = await jobs.sum.create({}, { blockers: [top] }).orThrow();
    const right = await jobs.sum.create({}, { blockers: [top] }).orThrow();
    const bottom = await jobs.sum.create({}, { blockers: [left, right, top] }).orThrow();
    expect(await bottom.wait().orThrow()).toBe(3);
    const names = (await bottom.events().orThrow()).map(({ name }) => name);
    expect(names).toEqual(["created", "unblocked", "started", "completed"]);
  });

  it("a blocker that has ended already does not keep a job waiting", async () => {
    const { jobs } = await started();
    const one = await jobs.one.create({ number: 1 }).orThrow();
    await one.wait().orThrow();
    expect(await jobs.sum.run({}, { blockers: [one] }).orThrow()).toBe(1);
  });

  it("a thousand wait for one, and one waits for a thousand, in little more than ten times the time of a hundred", async () => {
    const { jobs } = await started();
    /** So many wait for one job, and one waits for them all: the milliseconds from the first create to the last end. */
    const fan = async (width: number) => {
      const begunAt = performance.now();
      const top = await jobs.one.create({ number: 1 }).orThrow();
      const middle = Array.from({ length: width }, (_, number) => ({
        payload: { number },
        blockers: [top],
      }));
      const made = await jobs.one.createMany(middle).orThrow();
      const blockers = made.map((one) => one.unwrap());
      const bottom = await jobs.sum.create({}, { blockers }).orThrow();
      expect(await bottom.wait({ timeoutMs: 60_000 }).orThrow()).toBe(width);
      const names = (await bottom.events().orThrow()).map(({ name }) => name);
      expect(names).toEqual(["created", "unblocked", "started", "completed"]);
      return performance.now() - begunAt;
    };
    const shortest = async (width: number) => {
      let leastMs = Number.POSITIVE_INFINITY;
      for (let time = 0; time < fansEach; time++) leastMs = Math.min(leastMs, await fan(width));
      return leastMs;
    };
    await fan(10);
    const [hundredMs, thousandMs] = [await shortest(100), await shortest(1_000)];
    expect(thousandMs / hundredMs).toBeLessThan(wideRatioMax);
  }, 180_000);
});
