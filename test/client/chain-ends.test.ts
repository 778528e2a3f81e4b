// Where a chain may end: a type that names continuations and no result always continues, whoever completes its jobs.
import { connect, type JobRef, pgTransactions } from "millrace";
import { Pool } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { freshSchema } from "../support/postgres.js";
import { openService, stores } from "../support/stores.js";
import { chainShop } from "./chain-shop.js";

const order = { orderId: "o-1" };

const always = /always continues; continue with "ship" or "refund"/;

async function failureOf(job: JobRef): Promise<string> {
  const waited = await job.wait();
  expect(waited).toMatchObject({ error: { _tag: "JobEnded", state: "failed" } });
  const { error, tries } = await job.get().orThrow();
  expect([error?.reason, tries]).toEqual(["result", 1]);
  return error?.message ?? "";
}

describe.for(stores)("a type that always continues on $name", (store) => {
  it.for([{ approved: true }, null, undefined])(
    "is not completed with %s, with or without a worker",
    async (value) => {
      const service = await openService(store, chainShop);
      const { chains } = service;
      const chain = await chains.start("charge", order, { delayMs: 60_000 }).orThrow();
      const refused = await chains.complete(chain, async ({ job, complete }) => {
        if (job.type === "charge") await complete(job, () => value as never);
      });
      expect(refused).toMatchObject({
        error: { _tag: "InvalidResult", type: "charge", message: expect.stringMatching(always) },
      });
      expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });

      service.jobs.charge.handle((({ payload, complete }: never) =>
        (payload as typeof order).orderId === "returned"
          ? value
          : (complete as (callback: () => unknown) => unknown)(() => value)) as never);
      await service.start();
      for (const orderId of ["returned", "completed"]) {
        const job = await service.jobs.charge.create({ orderId }).orThrow();
        expect(await failureOf(job)).toMatch(always);
      }
    },
  );
});

it("is not completed with the value that its handler returns after an atomic prepare", async () => {
  const { url, schema } = await freshSchema();
  const own = new URL(url);
  own.searchParams.set("schema", schema);
  const pool = new Pool({ connectionString: url });
  onTestFinished(() => pool.end());
  const transactions = pgTransactions(pool);
  const service = await connect(chainShop, { url: own.href, transactions });
  onTestFinished(() => service.stop());
  service.jobs.charge.handle(async ({ prepare }) => {
    await prepare({ mode: "atomic" }, () => {});
    return { paid: true } as never;
  });
  await service.start();
  const job = await service.jobs.charge.create(order).orThrow();
  expect(await failureOf(job)).toMatch(always);
});
