// Atomic mode on PostgreSQL: the lease is locked from the beginning to the commit, whether the handler asks for that by prepare or
// completes first; and a handler whose job is no longer its own hears why.
import { type ActiveJob, connect, defineJob, defineService, pgTransactions } from "millrace";
import { Pool, type PoolClient } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { execute, freshSchema } from "../support/postgres.js";
import { gate } from "../worker/workshop.js";

const contract = defineService("shop", {
  charge: defineJob({
    payload: z.object({ orderId: z.string() }),
    result: z.object({ paid: z.boolean() }),
    retry: { maxTries: 3, backoff: [0] },
    concurrency: 1,
  }),
});

const payload = { orderId: "o-1" };

async function openShop() {
  const { url, schema, storeUrl } = await freshSchema();
  const pool = new Pool({ connectionString: url });
  onTestFinished(() => pool.end());
  const open = async () => {
    const options = { transactions: pgTransactions(pool), keeper: { tickMs: 50 } };
    const service = await connect(contract, { url: storeUrl, ...options });
    onTestFinished(() => service.stop());
    return service;
  };
  const service = await open();
  await pool.query(`CREATE TABLE ${schema}.charges (id text PRIMARY KEY)`);
  const charge = (tx: PoolClient, id: string) =>
    tx.query(`INSERT INTO ${schema}.charges (id) VALUES ($1)`, [id]);
  const charges = async () => {
    const rows = await execute(url, `SELECT id FROM ${schema}.charges ORDER BY id`);
    return rows.map((row) => (row as { id: string }).id);
  };
  /** What others see meanwhile: the charges, the job's state, and whether somebody holds its lease. */
  const seen = async (id: string) => {
    const leases = `SELECT id FROM ${schema}.leases WHERE id = '${id}'`;
    return {
      charges: await charges(),
      state: (await service.ref(id).get().orThrow()).state,
      isHeld:
        (await execute(url, leases)).length > 0 &&
        (await execute(url, `${leases} FOR UPDATE SKIP LOCKED`)).length === 0,
    };
  };
  return { service, open, charge, charges, seen, url, schema };
}

type Shop = Awaited<ReturnType<typeof openShop>>;
type Job = Pick<ActiveJob<unknown>, "id">;

describe("a handler that completes first", () => {
  it("holds its lease in the callback, and commits what it writes with the outcome", async () => {
    const { service, charge, seen } = await openShop();
    const looks: unknown[] = [];
    service.jobs.charge.handle(({ id, complete, tries }) =>
      complete(async ({ tx }) => {
        looks.push(await seen(id));
        await charge(tx, `try-${tries}`);
        looks.push(await seen(id));
        if (tries === 1) throw new Error("no stock");
        return { paid: true };
      }),
    );
    await service.start();
    const ref = await service.jobs.charge.create(payload).orThrow();
    expect(await ref.wait().orThrow()).toEqual({ paid: true });
    const during = { charges: [], state: "active", isHeld: true };
    expect(looks).toEqual([during, during, during, during]);
    const after = { charges: ["try-2"], state: "completed", isHeld: false };
    expect(await seen(ref.id)).toEqual(after);
  });

  it("does not hold it when it has awaited something before", async () => {
    const { service, seen } = await openShop();
    const looks: unknown[] = [];
    service.jobs.charge.handle(async ({ id, complete }) => {
      await Promise.resolve();
      return complete(async () => {
        looks.push(await seen(id));
        return { paid: true };
      });
    });
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    expect(looks).toMatchObject([{ isHeld: false }]);
  });
});

/** Ways in which a running job is no longer its handler's, and what the handler hears. */
const losses: readonly {
  readonly how: string;
  readonly lose: (job: Job, shop: Shop) => Promise<void>;
  readonly failure: object;
  readonly reason: string;
}[] = [
  {
    how: "completed without a worker",
    lose: async ({ id }, { service }) => {
      await service.chains
        .complete(id, async ({ job, complete }) => {
          await complete(job, () => ({ paid: false }));
        })
        .orThrow();
    },
    failure: { _tag: "JobAlreadyCompleted", state: "completed" },
    reason: "already_completed",
  },
  {
    how: "cancelled",
    lose: async ({ id }, { service }) => {
      await service.ref(id).cancel("not wanted", { force: true }).orThrow();
    },
    failure: { _tag: "JobAlreadyCompleted", state: "cancelled" },
    reason: "cancelled",
  },
  {
    how: "deleted",
    lose: async ({ id }, { service }) => {
      await service.ref(id).delete({ force: true }).orThrow();
    },
    failure: { _tag: "JobAborted", reason: "not_found" },
    reason: "not_found",
  },
  {
    how: "taken by another worker",
    lose: async (_, { open, url, schema }) => {
      const [started, finish] = [gate(), gate()];
      const other = await open();
      onTestFinished(() => finish.open());
      other.jobs.charge.handle(async () => {
        started.open();
        await finish.opened;
        return { paid: true };
      });
      // The lease lapses, as it does when a worker stands still.
      await execute(
        url,
        `UPDATE ${schema}.leases SET until = 0`,
        `UPDATE ${schema}.shared_leases SET until = 0`,
      );
      await other.start();
      await started.opened;
    },
    failure: { _tag: "JobAborted", reason: "taken_by_another_worker" },
    reason: "taken_by_another_worker",
  },
];

describe.for(losses)("an atomic handler whose job was $how", ({ lose, failure, reason }) => {
  it.for(["prepare", "complete"] as const)("hears of it by %s", async (call) => {
    const shop = await openShop();
    const { service, charge, charges } = shop;
    const heard: unknown[] = [];
    const over = gate();
    service.use(async (job, next) => {
      await lose(job, shop);
      return next();
    });
    service.jobs.charge.handle((job) => {
      const write = async ({ tx }: { tx: PoolClient }) => {
        await charge(tx, "never");
        return { paid: true };
      };
      const called =
        call === "prepare" ? job.prepare({ mode: "atomic" }, write) : job.complete(write);
      return called.catch((thrown: unknown) => {
        heard.push(thrown, job.signal.reason);
        over.open();
        throw thrown;
      });
    });
    await service.start();
    await service.chains.start("charge", payload).orThrow();
    await over.opened;
    await service.stop();
    expect(heard).toMatchObject([failure, { _tag: "JobAborted", reason }]);
    expect(await charges()).toEqual([]);
  });
});
