// Jobs that commit with your own data: Kysely.
import { Kysely, PostgresDialect } from "kysely";
import { connect, kyselyTransactions } from "millrace";
import { Pool } from "pg";
import { shop, tables, url } from "./shop.js";

interface Tables {
  orders: { id: string };
  receipts: { order_id: string };
}

const pool = new Pool({ connectionString: url });
await pool.query(tables);
const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
const service = await connect(shop, { url, transactions: kyselyTransactions(db) });

service.jobs.sendReceipt.handle(({ payload, complete }) =>
  complete(async ({ tx }) => {
    await tx.insertInto("receipts").values({ order_id: payload.orderId }).execute();
  }),
);

const place = (orderId: string, stock: number) =>
  db.transaction().execute(async (tx) => {
    await tx.insertInto("orders").values({ id: orderId }).execute();
    const job = await service.jobs.sendReceipt.create({ orderId }, { tx }).orThrow();
    if (stock === 0) throw new Error("sold out");
    return job;
  });

await service.start();
await place("o-2", 0).catch((error: Error) => console.log(`o-2: ${error.message}`));
await (await place("o-1", 1)).wait().orThrow();
const rows = await db.selectFrom("receipts").select("order_id").execute();
console.log(`receipts: ${rows.map(({ order_id }) => order_id).join(", ")}`);
await service.stop();
await db.destroy();
