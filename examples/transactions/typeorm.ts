// Jobs that commit with your own data: TypeORM.
import { connect, typeOrmTransactions } from "millrace";
import { DataSource, EntitySchema } from "typeorm";
import { shop, tables, url } from "./shop.js";

const Order = new EntitySchema<{ id: string }>({
  name: "orders",
  columns: { id: { type: "text", primary: true } },
});
const Receipt = new EntitySchema<{ orderId: string }>({
  name: "receipts",
  columns: { orderId: { name: "order_id", type: "text", primary: true } },
});

const dataSource = await new DataSource({
  type: "postgres",
  url,
  entities: [Order, Receipt],
}).initialize();
await dataSource.query(tables);
const service = await connect(shop, { url, transactions: typeOrmTransactions(dataSource) });

service.jobs.sendReceipt.handle(({ payload, complete }) =>
  complete(async ({ tx }) => {
    await tx.insert(Receipt, { orderId: payload.orderId });
  }),
);

const place = (orderId: string, stock: number) =>
  dataSource.transaction(async (tx) => {
    await tx.insert(Order, { id: orderId });
    const job = await service.jobs.sendReceipt.create({ orderId }, { tx }).orThrow();
    if (stock === 0) throw new Error("sold out");
    return job;
  });

await service.start();
await place("o-2", 0).catch((error: Error) => console.log(`o-2: ${error.message}`));
await (await place("o-1", 1)).wait().orThrow();
const rows = await dataSource.getRepository(Receipt).find();
console.log(`receipts: ${rows.map(({ orderId }) => orderId).join(", ")}`);
await service.stop();
await dataSource.destroy();
