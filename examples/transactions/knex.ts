// Jobs that commit with your own data: Knex.
import createKnex from "knex";
import { connect, knexTransactions } from "millrace";
import { shop, tables, url } from "./shop.js";

const knex = createKnex({ client: "pg", connection: url });
await knex.raw(tables);
const service = await connect(shop, { url, transactions: knexTransactions(knex) });

service.jobs.sendReceipt.handle(({ payload, complete }) =>
  complete(async ({ tx }) => {
    await tx("receipts").insert({ order_id: payload.orderId });
  }),
);

const place = (orderId: string, stock: number) =>
  knex.transaction(async (tx) => {
    await tx("orders").insert({ id: orderId });
    const job = await service.jobs.sendReceipt.create({ orderId }, { tx }).orThrow();
    if (stock === 0) throw new Error("sold out");
    return job;
  });

await service.start();
await place("o-2", 0).catch((error: Error) => console.log(`o-2: ${error.message}`));
await (await place("o-1", 1)).wait().orThrow();
const rows: { order_id: string }[] = await knex("receipts").select("order_id");
console.log(`receipts: ${rows.map(({ order_id }) => order_id).join(", ")}`);
await service.stop();
await knex.destroy();
