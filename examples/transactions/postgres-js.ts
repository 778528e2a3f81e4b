// Jobs that commit with your own data: postgres.js.
import { connect, postgresJsTransactions } from "millrace";
import postgres from "postgres";
import { shop, tables, url } from "./shop.js";

const sql = postgres(url, { onnotice: () => {} });
await sql.unsafe(tables);
const service = await connect(shop, { url, transactions: postgresJsTransactions(sql) });

service.jobs.sendReceipt.handle(({ payload, complete }) =>
  complete(async ({ tx }) => {
    await tx`INSERT INTO receipts VALUES (${payload.orderId})`;
  }),
);

const place = (orderId: string, stock: number) =>
  sql.begin(async (tx) => {
    await tx`INSERT INTO orders VALUES (${orderId})`;
    const job = await service.jobs.sendReceipt.create({ orderId }, { tx }).orThrow();
    if (stock === 0) throw new Error("sold out");
    return job.id;
  });

await service.start();
await place("o-2", 0).catch((error: Error) => console.log(`o-2: ${error.message}`));
await service
  .ref(await place("o-1", 1))
  .wait()
  .orThrow();
const rows = await sql<{ order_id: string }[]>`SELECT order_id FROM receipts`;
console.log(`receipts: ${rows.map(({ order_id }) => order_id).join(", ")}`);
await service.stop();
await sql.end();
