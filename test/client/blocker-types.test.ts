// The types of named blockers: a wrong one is refused when the job is created, long before its turn would come.
import Database from "better-sqlite3";
import {
  betterSqliteTransactions,
  connect,
  defineJob,
  defineService,
  type Engine,
  pgTransactions,
  type Service,
} from "millrace";
import { Pool } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { everyStore } from "../support/every-store.js";
import { freshSchema } from "../support/postgres.js";
import { openService, stores } from "../support/stores.js";
import { lookOfWriter, sqliteStore } from "../transactions/shop-file.js";

const payload = z.object({});
const jobs = {
  invoice: defineJob({ payload, result: z.number() }),
  reserve: defineJob({ payload, result: z.string() }),
  thank: defineJob({ payload, result: z.string(), blockers: { invoice: "invoice" } }),
  order: defineJob({ payload, continuations: ["thank"], retry: { maxTries: 3, backoff: [0] } }),
};
const shop = defineService("shop", jobs);

/** Another service, with a type of the same name that gives something else. */
const bill = defineService("bill", { invoice: defineJob({ payload, result: z.string() }) });

const wrongService = (blockerId: string) => ({
  _tag: "InvalidBlocker",
  reason: "type",
  blockerId,
  message: expect.stringContaining(
    "the blocker invoice is a job of the service bill, and the contract names invoice of shop; name one of that type.",
  ),
});

const wrongType = (blockerId: string) => ({
  _tag: "InvalidBlocker",
  reason: "type",
  blockerId,
  message: expect.stringContaining(
    "the blocker invoice is a job of the type reserve, and the contract names invoice; name one of that type.",
  ),
});

/** Another try would come to the same. */
const failedAtOnce = { state: "failed", tries: 1, error: { name: "InvalidBlocker" } };

async function openBlockers(service: Service<typeof jobs>) {
  const invoice = await service.jobs.invoice.create({}, { id: "invoice-1" }).orThrow();
  const reserve = await service.jobs.reserve.create({}, { id: "reserve-1" }).orThrow();
  return { good: { invoice }, bad: { invoice: reserve.id } };
}

const count = async ({ reads }: Pick<Service<typeof jobs>, "reads">) =>
  (await reads.jobs({ type: "thank" }).orThrow()).count;

describe.for(everyStore)("a named blocker of the wrong type on $name", (store) => {
  it("is refused by a create, and among many for its job alone", async () => {
    const service = await openService(store, shop);
    const { good, bad } = await openBlockers(service);
    const { thank } = service.jobs;
    expect(await thank.create({}, { blockers: bad })).toMatchObject({
      error: wrongType("reserve-1"),
    });
    expect(await thank.submit({}, { blockers: bad })).toMatchObject({
      error: wrongType("reserve-1"),
    });
    expect(await thank.create({}, { blockers: { invoice: "nobody" } })).toMatchObject({
      error: { reason: "missing" },
    });
    expect(await count(service)).toBe(0);
    const many = await thank
      .createMany([
        { id: "first", payload: {}, blockers: bad },
        { id: "second", payload: {}, blockers: good },
        { id: "third", payload: {}, blockers: { invoice: "second" } },
      ])
      .orThrow();
    expect(many.map((each) => (each.isOk() ? each.value.id : each.error))).toMatchObject([
      wrongType("reserve-1"),
      "second",
      { reason: "type", blockerId: "second" },
    ]);
    expect(await count(service)).toBe(1);
    const { untyped } = service;
    expect(await untyped.create("thank", {}, { blockers: bad })).toMatchObject({
      error: wrongType("reserve-1"),
    });
    const named = await untyped.create("thank", {}, { blockers: good }).orThrow();
    expect((await named.get().orThrow()).blockers).toMatchObject([
      { name: "invoice", jobId: "invoice-1" },
    ]);
  });

  it("is refused for a continuation, without a worker and by a handler", async () => {
    const service = await openService(store, shop);
    const { good, bad } = await openBlockers(service);
    const chain = await service.chains.start("order", {}).orThrow();
    const goOn = (blockers: typeof good | typeof bad) =>
      service.chains.complete(chain, async ({ job, complete }) => {
        if (job.type === "order")
          await complete(job, ({ continueWith }) => continueWith("thank", {}, { blockers }));
      });
    expect(await goOn(bad)).toMatchObject({ error: wrongType("reserve-1") });
    expect(await goOn(good).orThrow()).toMatchObject({ state: "blocked", count: 2 });
    service.jobs.order.handle(({ complete }) =>
      complete(({ continueWith }) => continueWith("thank", {}, { blockers: bad })),
    );
    await service.start();
    const job = await service.jobs.order.create({}).orThrow();
    await job.wait();
    expect(await job.get().orThrow()).toMatchObject(failedAtOnce);
    expect(await count(service)).toBe(1);
  });
});

describe.for(everyStore)("a named blocker of another service on $name", (store) => {
  it("is refused, though its type has the name that the contract says", async () => {
    const service = await openService(store, shop);
    const other = await connect(bill, { engine: service.engine });
    onTestFinished(() => other.stop());
    const { id } = await other.jobs.invoice.create({}).orThrow();
    const error = wrongService(id);
    const { jobs, untyped, chains } = service;
    const blockers = { invoice: id };
    expect(await jobs.thank.create({}, { blockers })).toMatchObject({ error });
    expect(await untyped.create("thank", {}, { blockers })).toMatchObject({ error });
    const many = await jobs.thank.createMany([{ payload: {}, blockers }]).orThrow();
    expect(many).toMatchObject([{ error }]);
    const chain = await chains.start("order", {}).orThrow();
    const goOn = chains.complete(chain, async ({ job, complete }) => {
      if (job.type === "order")
        await complete(job, ({ continueWith }) => continueWith("thank", {}, { blockers }));
    });
    expect(await goOn).toMatchObject({ error });
    expect(await count(service)).toBe(0);
    // Without a name it promises nothing, and jobs of any service can be waited for.
    expect((await jobs.reserve.create({}, { blockers: [id] })).isOk()).toBe(true);
  });
});

it.for(stores)(
  "a blocker of another service that the create did not see fails the job on $name",
  async (store) => {
    const service = await openService(store, shop);
    const other = await connect(bill, { engine: service.engine });
    onTestFinished(() => other.stop());
    const { id } = await other.jobs.invoice.create({}).orThrow();
    await other.ref(id).complete("thirty").orThrow();
    const blind = new Proxy(service.engine, {
      get(engine, name: keyof Engine) {
        if (name === "load") return async (ids: readonly string[]) => ids.map(() => null);
        const member = engine[name];
        return typeof member === "function" ? member.bind(engine) : member;
      },
    });
    const creator = await connect(shop, { engine: blind });
    onTestFinished(() => creator.stop());
    const job = await creator.jobs.thank.create({}, { blockers: { invoice: id } }).orThrow();
    service.jobs.thank.handle(({ blockers }) => blockers.invoice.state);
    await service.start();
    expect(await service.ref(job.id).wait()).toMatchObject({
      error: {
        message: expect.stringContaining("the blocker invoice is a job of the service bill"),
      },
    });
  },
);

describe("a named blocker of the wrong type in a transaction", () => {
  it("is refused in a synchronous one that has created it", async () => {
    const { url, path } = await sqliteStore();
    const service = await openService({ name: "sqlite", freshUrl: async () => url }, shop);
    const db = new Database(path);
    onTestFinished(() => void db.close());
    const { thank, reserve, invoice } = service.jobs;
    db.transaction(() => {
      const wrong = reserve.createSync({}, { tx: db }).unwrap().id;
      const right = invoice.createSync({}, { tx: db }).unwrap().id;
      const refused = thank.createSync({}, { tx: db, blockers: { invoice: wrong } });
      expect(refused).toMatchObject({ error: wrongType(wrong) });
      const many = [wrong, right].map((id) => ({ payload: {}, blockers: { invoice: id } }));
      const made = thank.createManySync(many, { tx: db }).unwrap();
      expect(made.map((each) => each.isOk())).toEqual([false, true]);
      const chain = service.chains.startSync("order", {}, { tx: db }).unwrap();
      const completed = service.chains.completeSync(
        chain,
        ({ job, complete }) => {
          const blockers = { invoice: wrong };
          if (job.type === "order")
            complete(job, ({ continueWith }) => continueWith("thank", {}, { blockers }));
        },
        { tx: db },
      );
      expect(completed).toMatchObject({ error: wrongType(wrong) });
    })();
    expect(await count(service)).toBe(1);
  });

  it("is looked at in a transaction that then has its turn to write", async () => {
    const { url, path } = await sqliteStore();
    const service = await openService({ name: "sqlite", freshUrl: async () => url }, shop);
    const { look, isLooked } = lookOfWriter(path);
    const db = new Database(path, { verbose: look });
    onTestFinished(() => void db.close());
    const { good } = await openBlockers(service);
    const create = () => service.jobs.thank.createSync({}, { tx: db, blockers: good }).unwrap();
    db.transaction(create)();
    expect(isLooked()).toBe(true);
    expect(await count(service)).toBe(1);
  });

  it("is refused in a synchronous one of a handler", async () => {
    const { url, path } = await sqliteStore();
    const db = new Database(path);
    onTestFinished(() => void db.close());
    const service = await connect(shop, { url, transactions: betterSqliteTransactions(db) });
    onTestFinished(() => service.stop());
    const { reserve, order } = service.jobs;
    const { id } = await reserve.create({}).orThrow();
    order.handle(({ complete }) =>
      complete(({ continueWith }) => continueWith("thank", {}, { blockers: { invoice: id } })),
    );
    await service.start();
    const job = await order.create({}).orThrow();
    await job.wait();
    expect(await job.get().orThrow()).toMatchObject(failedAtOnce);
    expect(await count(service)).toBe(0);
  });

  it("is refused in one of PostgreSQL, of a caller and of a handler", async () => {
    const { url, schema } = await freshSchema();
    const own = new URL(url);
    own.searchParams.set("schema", schema);
    const pool = new Pool({ connectionString: url });
    onTestFinished(() => pool.end());
    const transactions = pgTransactions(pool);
    const service = await connect(shop, { url: own.href, transactions });
    onTestFinished(() => service.stop());
    const { thank, reserve, order } = service.jobs;
    await transactions.run(async (tx) => {
      const { id } = await reserve.create({}, { tx }).orThrow();
      const refused = await thank.create({}, { tx, blockers: { invoice: id } });
      expect(refused).toMatchObject({ error: wrongType(id) });
    });
    order.handle(({ complete }) =>
      complete(async ({ tx, continueWith }) => {
        const { id } = await reserve.create({}, { tx }).orThrow();
        return continueWith("thank", {}, { blockers: { invoice: id } });
      }),
    );
    await service.start();
    const job = await order.create({}).orThrow();
    await job.wait();
    expect(await job.get().orThrow()).toMatchObject(failedAtOnce);
    expect(await count(service)).toBe(0);
  });
});

it.for(stores)(
  "fails the job where only the worker's contract says so, on $name",
  async (store) => {
    const service = await openService(store, shop);
    const older = defineService("shop", {
      ...jobs,
      thank: defineJob({
        payload,
        result: z.string(),
        blockers: { invoice: "reserve" },
      }),
    });
    const creator = await connect(older, { engine: service.engine });
    onTestFinished(() => creator.stop());
    const invoice = await creator.jobs.reserve.create({}).orThrow();
    const job = await creator.jobs.thank.create({}, { blockers: { invoice } }).orThrow();
    service.handle({
      invoice: () => 7,
      reserve: () => "shelf",
      thank: ({ blockers }) => blockers.invoice.state,
      order: ({ complete }) =>
        complete(({ continueWith }) => continueWith("thank", {}, { blockers: { invoice: "x" } })),
    });
    await service.start();
    await job.wait();
    expect(await job.get().orThrow()).toMatchObject({
      state: "failed",
      error: {
        message:
          "The job cannot begin: the blocker invoice is a job of the type reserve, and the contract names invoice.",
      },
    });
  },
);
