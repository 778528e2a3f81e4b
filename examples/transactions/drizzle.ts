// Jobs that commit with your own data: Drizzle, whose own `sql` Millrace needs to make its queries.
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { pgTable, text } from "drizzle-orm/pg-core";
import { connect, drizzleTransactions, fromDrizzle } from "millrace";
import { Pool } from "pg";
import { shop, tables, url } from "./shop.js";

const orders = pgTable("orders", { id: text().primaryKey() });
const receipts = pgTable("receipts", { orderId: text("order_id") });

const pool = new Pool({ connectionString: url });
const db = drizzle(pool);
await pool.query(tables);
const service = await connect(shop, { url, transactions: drizzleTransactions(db, sql) });

service.jobs.sendReceipt.handle(({ payload, complete }) =>
  complete(async ({ tx }) => {
    await tx.insert(receipts).values({ orderId: payload.orderId });
  }),
);

const place = (id: string, stock: number) =>
  db.transaction(async (tx) => {
    await tx.insert(orders).values({ id });
    const options = { tx: fromDrizzle(tx, sql) };
    const job = await service.jobs.sendReceipt.create({ orderId: id }, options).orThrow();
    if (stock === 0) throw new Error("sold out");
    return job;
  });

await service.start();
await place("o-2", 0).catch((error: Error) => console.log(`o-2: ${error.message}`));
await (await place("o-1", 1)).wait().orThrow();
const rows = await db.select().from(receipts);
console.log(`receipts: ${rows.map(({ orderId }) => orderId).join(", ")}`);
await service.stop();
await pool.end();
