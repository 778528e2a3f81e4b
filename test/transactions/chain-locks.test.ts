// Completing a chain in a transaction on PostgreSQL: the current job is locked before the callback is called, so that
// nobody comes in between and what the callback writes in the transaction is written once.
import { connect, defineJob, defineService, type Engine, pgTransactions } from "millrace";
import { Pool, type PoolClient } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { execute, freshSchema } from "../support/postgres.js";
import { gate } from "../worker/workshop.js";

const order = z.object({ orderId: z.string() });

const contract = defineService("shop", {
  pay: defineJob({ payload: order, result: z.any(), continuations: ["ship"], concurrency: 200 }),
  ship: defineJob({ payload: order }),
  refund: defineJob({
    payload: order,
    keyConcurrency: { key: ["/orderId"], maxActive: 1 },
    queue: { maxQueuedPerKey: 5 },
  }),
});

const payload = { orderId: "o-1" };

async function openShop() {
  const { url, schema, storeUrl } = await freshSchema();
  const [service, other] = [
    await connect(contract, { url: storeUrl }),
    await connect(contract, { url: storeUrl }),
  ];
  onTestFinished(async () => {
    await service.stop();
    await other.stop();
  });
  const pool = new Pool({ connectionString: url });
  onTestFinished(() => pool.end());
  const ledger = `${schema}.ledger`;
  await execute(url, `CREATE TABLE ${ledger} (job text NOT NULL)`);
  const write = (tx: PoolClient, id: string) =>
    tx.query(`INSERT INTO ${ledger} (job) VALUES ($1)`, [id]);
  const written = async () => (await pool.query(`SELECT job FROM ${ledger}`)).rows.length;
  return { service, other, write, written, run: pgTransactions(pool).run };
}

type Shop = Awaited<ReturnType<typeof openShop>>;

/** Completes the current job of a chain as paid, in a transaction, and notes it in the ledger. */
function pay({ service, run, write }: Shop, id: string, meanwhile: () => Promise<unknown>) {
  return run((tx) =>
    service.chains
      .complete(
        id,
        async ({ job, complete }) => {
          await write(tx, job.id);
          await meanwhile();
          await complete(job as never, () => undefined as never);
        },
        { tx },
      )
      .orThrow(),
  );
}

/** Starts up to so many jobs of the first step for a worker that never ends them. */
async function claim(engine: Engine, limit: number): Promise<readonly string[]> {
  const lanes = [
    {
      lane: "shop/pay/pay@1",
      service: "shop",
      queue: "pay",
      type: "pay",
      free: limit,
      leaseMs: 60_000,
    },
  ];
  const { jobs } = await engine.claim({ worker: "w", lanes, limit });
  return jobs.map(({ job }) => job.id);
}

describe("a completion in a transaction on postgres", () => {
  it.for([
    ["is claimable", {}],
    ["waits for its time", { delayMs: 60_000 }],
  ] as const)("holds a job that %s until the commit", async ([, options]) => {
    const shop = await openShop();
    const { other, written } = shop;
    const { id } = await shop.service.chains.start("pay", payload, options).orThrow();
    const met: unknown[] = [];
    await pay(shop, id, async () => {
      met.push(await claim(other.engine, 1));
      met.push(await other.ref(id).cancel());
      met.push(await other.ref(id).delete({ force: true }));
    });
    expect(met).toMatchObject([
      [],
      { value: { outcome: "requested" } },
      { error: { _tag: "StoreBusy" } },
    ]);
    expect(await written()).toBe(1);
    expect((await other.chains.get(id).orThrow()).state).toBe("completed");
  });

  it("holds a job that runs, also one that shares its lease with others", async () => {
    const shop = await openShop();
    const { service, other, written } = shop;
    const ids = Array.from({ length: 40 }, (_, number) => `pay-${number}`);
    for (const id of ids) await service.chains.start("pay", payload, { id }).orThrow();
    expect(await claim(other.engine, ids.length)).toHaveLength(ids.length);
    const met: unknown[] = [];
    const [id = ""] = ids;
    await pay(shop, id, async () => {
      const job = { service: "shop", type: "pay", id };
      met.push(...(await other.engine.renew([{ job, token: 1, leaseMs: 60_000 }])));
      met.push(await other.ref(id).delete({ force: true }));
    });
    expect(met).toMatchObject([{ outcome: "held" }, { error: { _tag: "StoreBusy" } }]);
    expect(await written()).toBe(1);
  });

  it("holds a job that waits for its key, and is not in the way of those who let the next in", async () => {
    const shop = await openShop();
    const { service, other } = shop;
    const running = gate();
    other.jobs.refund.handle(() => running.opened);
    await other.start();
    const first = await service.jobs.refund.create(payload, { id: "first" }).orThrow();
    await service.chains.start("refund", payload, { id: "second" }).orThrow();
    await pay(shop, "second", async () => {
      running.open();
      await first.wait().orThrow();
      // Whoever lets the next job in has the key, and must not wait for the one that is locked: others need the key.
      const third = await service.jobs.refund.create(payload, { id: "third" }).orThrow();
      await third.wait().orThrow();
    });
    expect(await shop.written()).toBe(1);
    expect((await other.ref("second").get().orThrow()).state).toBe("completed");
  });

  it("is not in the way of a command that gives its slot to the next of its key", async () => {
    const shop = await openShop();
    const { service, other } = shop;
    const create = (id: string) => service.jobs.refund.create(payload, { id }).orThrow();
    const first = await create("first");
    await service.chains.start("refund", payload, { id: "second" }).orThrow();
    const third = await create("third");
    await pay(shop, "second", async () => {
      expect(await first.cancel().orThrow()).toMatchObject({ outcome: "cancelled" });
      other.jobs.refund.handle(() => undefined);
      await other.start();
      await third.wait().orThrow();
    });
    expect((await other.ref("second").get().orThrow()).state).toBe("completed");
  });

  it("of a job that runs does not hold up the outcomes of others", async () => {
    const shop = await openShop();
    const { service, other } = shop;
    const started = gate();
    const paid = gate();
    other.jobs.pay.handle(async (job) => {
      started.open();
      await paid.opened;
      return job.complete(({ continueWith }) => continueWith("ship", payload));
    });
    other.jobs.ship.handle(async () => {});
    await other.start();
    const { id } = await service.chains.start("pay", payload).orThrow();
    await started.opened;
    await pay(shop, id, async () => {
      paid.open();
      for (let count = 0; count < 5; count++) await service.jobs.ship.run(payload).orThrow();
    });
    expect((await service.chains.get(id).orThrow()).state).toBe("completed");
  });

  it("lets a second one wait, which then finds the chain completed", async () => {
    const shop = await openShop();
    const { id } = await shop.service.chains.start("pay", payload).orThrow();
    const [begun, end] = [gate(), gate()];
    const first = pay(shop, id, async () => {
      begun.open();
      await end.opened;
    });
    await begun.opened;
    const second = pay(shop, id, async () => {}).catch((error: unknown) => error);
    end.open();
    await first;
    expect(await second).toMatchObject({ _tag: "JobAlreadyCompleted" });
    expect(await shop.written()).toBe(1);
  });

  it("leaves a job that is not completed after all to the workers", async () => {
    const shop = await openShop();
    const { service, other } = shop;
    const { id } = await service.chains.start("pay", payload).orThrow();
    await shop.run(async (tx) => {
      await service.chains.complete(id, () => {}, { tx }).orThrow();
      expect(await claim(other.engine, 1)).toEqual([]);
    });
    expect(await claim(other.engine, 1)).toEqual([id]);
  });

  it("calls back once, also where the callback changes the job itself", async () => {
    const shop = await openShop();
    const { service, run, write, written } = shop;
    const { id } = await service.chains.start("pay", payload).orThrow();
    const calls: string[] = [];
    const confused = run((tx) =>
      service.chains
        .complete(
          id,
          async ({ job, complete }) => {
            calls.push(job.type);
            await write(tx, job.id);
            const goOn = service.chains.complete(
              id,
              async (inner) => {
                if (inner.job.type === "pay")
                  await inner.complete(inner.job, ({ continueWith }) =>
                    continueWith("ship", payload),
                  );
              },
              { tx },
            );
            await goOn.orThrow();
            await complete(job as never, () => undefined as never);
          },
          { tx },
        )
        .orThrow(),
    );
    await expect(confused).rejects.toMatchObject({ _tag: "TransactionConflict" });
    expect(calls).toEqual(["pay"]);
    expect(await written()).toBe(0);
    expect((await service.chains.get(id).orThrow()).state).toBe("pending");
  });
});
