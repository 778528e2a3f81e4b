// Handlers that are abandoned while they work in a transaction of PostgreSQL: nothing of it is kept, neither by the store
// nor by the handler itself, whatever they were about to do; and connections that are lost while nobody asks anything of them.
import {
  type AsyncTransactionSource,
  connect,
  defineJob,
  defineService,
  type Logger,
  pgTransactions,
} from "millrace";
import { Pool, type PoolClient } from "pg";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { startChild } from "../crash/children.js";
import { freshSchema } from "../support/postgres.js";
import { gate } from "../worker/workshop.js";

const contract = defineService("shop", {
  charge: defineJob({ payload: z.object({ orderId: z.string() }), leaseMs: 3_000 }),
});

/** A shop whose abandoned handlers are heard of, and its table. */
async function openShop(
  sourceOf = (pool: Pool): AsyncTransactionSource<PoolClient> => pgTransactions(pool),
) {
  const { url, schema, storeUrl } = await freshSchema();
  // One connection, so that what an abandoned handler has is what the next one is lent.
  const pool = new Pool({ connectionString: url, max: 1 });
  onTestFinished(() => pool.end());
  const abandoned = gate();
  const quiet = () => {};
  const logger: Logger = {
    debug: quiet,
    info: quiet,
    warn: quiet,
    error: (_, message) => void (/abandoned/.test(message) && abandoned.open()),
  };
  const service = await connect(contract, {
    url: storeUrl,
    transactions: sourceOf(pool),
    graceMs: 1,
    keeper: { tickMs: 50 },
    logger,
  });
  onTestFinished(() => service.stop());
  const table = `${schema}.charges`;
  await pool.query(`CREATE TABLE ${table} (id text)`);
  const charge = (tx: PoolClient) => tx.query(`INSERT INTO ${table} VALUES ('o-1')`);
  const charges = async () => (await pool.query(`SELECT id FROM ${table}`)).rowCount;
  return { service, charge, charges, abandoned };
}

/** A source as other libraries have it: a client goes back to its pool when its transaction has been rolled back. */
async function inTransaction<Value>(pool: Pool, work: (client: PoolClient) => Promise<Value>) {
  const client = await pool.connect();
  await client.query("BEGIN");
  try {
    const value = await work(client);
    await client.query("COMMIT");
    return value;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
}

it("the store does not go on outside of a transaction whose handler is abandoned", async () => {
  const [reached, held] = [gate(), gate()];
  const { service, charge, charges, abandoned } = await openShop((pool) => ({
    kind: "async",
    run: (work) => inTransaction(pool, work),
    enlist: (client) => ({
      kind: "async",
      client,
      execute: async (sql, values) => {
        if (/DELETE FROM \S+leases/.test(sql)) {
          reached.open();
          await held.opened;
        }
        return (await client.query(sql, [...values])).rows;
      },
    }),
  }));
  service.jobs.charge.handle(async ({ prepare, complete }) => {
    await prepare({ mode: "atomic" }, ({ tx }) => charge(tx));
    return complete(() => {});
  });
  await service.start();
  const ref = await service.jobs.charge.create({ orderId: "o-1" }).orThrow();
  await reached.opened;
  await ref.cancel().orThrow();
  await abandoned.opened;
  // A rollback that waited for nobody would be on its way by now.
  await new Promise((resolve) => setImmediate(resolve));
  held.open();
  expect(await ref.wait()).toMatchObject({ error: { state: "cancelled" } });
  expect(await charges()).toBe(0);
  const names = (await ref.events().orThrow()).map(({ name }) => name);
  expect(names).not.toContain("completed");
});

it("an abandoned handler cannot write with a client that others may have", async () => {
  const { service, charge, charges, abandoned } = await openShop();
  const [reached, held, refused] = [gate(), gate(), gate()];
  service.jobs.charge.handle(async ({ prepare, complete }) => {
    await prepare({ mode: "atomic" });
    return complete(async ({ tx }) => {
      reached.open();
      await held.opened;
      await charge(tx).catch((error: unknown) => {
        refused.open();
        throw error;
      });
    });
  });
  await service.start();
  const ref = await service.jobs.charge.create({ orderId: "o-1" }).orThrow();
  await reached.opened;
  await ref.cancel().orThrow();
  await abandoned.opened;
  expect(await ref.wait()).toMatchObject({ error: { state: "cancelled" } });
  held.open();
  await refused.opened;
  expect(await charges()).toBe(0);
});

it("a process outlives the loss of its handlers' connections, at work and at rest", async () => {
  const { storeUrl } = await freshSchema();
  const worker = startChild("../transactions/till-losing-worker.ts", [storeUrl]);
  expect(await worker.ended).toMatchObject({ code: 0, errors: "", lines: ["completed after 2"] });
});
