// Clients of node-postgres with parsers of their own: whatever they make of numbers, the store reads its own as they are.
import { connect, defineJob, defineService, pgTransactions } from "millrace";
import { Pool, types } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshSchema } from "../support/postgres.js";

const shop = defineService("shop", {
  price: defineJob({ payload: z.object({}), result: z.number() }),
  first: defineJob({ payload: z.object({}), continuations: ["last"] }),
  last: defineJob({ payload: z.object({}), result: z.string() }),
});

const later = { delayMs: 60_000 };

const parsers = [
  { name: "int4 as bigint", oid: 23, parse: BigInt },
  { name: "int8 as bigint", oid: 20, parse: BigInt },
  { name: "int2 as bigint", oid: 21, parse: BigInt },
  { name: "int8 as number", oid: 20, parse: Number },
];

describe.for(parsers)("a client that parses $name", ({ oid, parse }) => {
  async function openShop() {
    const { url, storeUrl } = await freshSchema();
    const own = {
      getTypeParser: (given: number, format?: "text" | "binary") =>
        given === oid ? parse : types.getTypeParser(given, format as "text"),
    };
    const pool = new Pool({ connectionString: url, types: own as never });
    onTestFinished(() => pool.end());
    const source = pgTransactions(pool);
    const service = await connect(shop, { url: storeUrl, transactions: source });
    onTestFinished(() => service.stop());
    return { service, source };
  }

  it("completes jobs and chains in its transaction", async () => {
    const { service, source } = await openShop();
    const { jobs, chains } = service;
    const job = await jobs.price.create({}, later).orThrow();
    const chain = await chains.start("first", {}, later).orThrow();
    await source.run(async (tx) => {
      const completed = await job.complete(5, { tx }).orThrow();
      expect(completed).toMatchObject({ state: "completed", version: 2, result: 5 });
      const own = await jobs.price.create({}, { tx }).orThrow();
      expect(await own.complete(6, { tx }).orThrow()).toMatchObject({ state: "completed" });
      const gone = await chains
        .complete(
          chain,
          async ({ job, complete }) => {
            if (job.type === "first")
              await complete(job, ({ continueWith }) => continueWith("last", {}, later));
          },
          { tx },
        )
        .orThrow();
      expect(gone.current).toMatchObject({ type: "last", version: 1 });
    });
    expect(await job.wait().orThrow()).toBe(5);
    expect((await chains.get(chain).orThrow()).jobs.map(({ state }) => state)).toEqual([
      "completed",
      "pending",
    ]);
  });

  it("carries handlers in both modes", async () => {
    const { service } = await openShop();
    service.jobs.price.handle(async ({ prepare, complete }) => {
      await prepare({ mode: "atomic" });
      return complete(() => 7);
    });
    service.jobs.first.handle(async ({ prepare, complete }) => {
      await prepare({ mode: "staged" });
      return complete(({ continueWith }) => continueWith("last", {}));
    });
    service.jobs.last.handle(() => "end");
    await service.start();
    expect(await service.jobs.price.run({}).orThrow()).toBe(7);
    const chain = await service.chains.start("first", {}).orThrow();
    expect(await service.chains.wait(chain).orThrow()).toBe("end");
  });
});

it.for([20, 21, 23])("a process that parses the oid %d as bigint runs jobs", async (oid) => {
  const before = types.getTypeParser(oid, "text");
  types.setTypeParser(oid, BigInt as never);
  onTestFinished(() => types.setTypeParser(oid, before as never));
  const { storeUrl } = await freshSchema();
  const service = await connect(shop, { url: storeUrl });
  onTestFinished(() => service.stop());
  service.jobs.price.handle(() => 7);
  await service.start();
  const job = await service.jobs.price.create({}).orThrow();
  expect(await job.wait().orThrow()).toBe(7);
  expect(await job.get().orThrow()).toMatchObject({ state: "completed", tries: 1 });
  expect((await service.reads.jobs({}).orThrow()).entries).toMatchObject([{ state: "completed" }]);
});
