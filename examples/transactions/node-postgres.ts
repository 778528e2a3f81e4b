// Jobs that commit with your own data: node-postgres.
import { connect, pgTransactions } from "millrace";
import { Pool } from "pg";
import { shop, tables, url } from "./shop.js";

const pool = new Pool({ connectionString: url });
await pool.query(tables);
const service = await connect(shop, { url, transactions: pgTransactions(pool) });

service.jobs.sendReceipt.handle(({ payload, complete }) =>
  complete(async ({ tx }) => {
    await tx.query("INSERT INTO receipts VALUES ($1)", [payload.orderId]);
  }),
);

async function place(orderId: string, stock: number) {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await client.query("INSERT INTO orders VALUES ($1)", [orderId]);
    const job = await service.jobs.sendReceipt.create({ orderId }, { tx: client }).orThrow();
    if (stock === 0) throw new Error("sold out");
    await client.query("COMMIT");
    return job;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
}

await service.start();
await place("o-2", 0).catch((error: Error) => console.log(`o-2: ${error.message}`));
await (await place("o-1", 1)).wait().orThrow();
const { rows } = await pool.query<{ order_id: string }>("SELECT order_id FROM receipts");
console.log(`receipts: ${rows.map(({ order_id }) => order_id).join(", ")}`);
await service.stop();
await pool.end();
