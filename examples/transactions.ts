// Jobs that commit with your own data, on SQLite: your tables stand in the file of the jobs.
import Database from "better-sqlite3";
import { betterSqliteTransactions, connect, defineJob, defineService } from "millrace";
import { z } from "zod";

const shop = defineService("shop", {
  sendReceipt: defineJob({
    payload: z.object({ orderId: z.string() }),
    retry: { maxTries: 2, backoff: [0] },
  }),
});

const db = new Database("shop.db");
const service = await connect(shop, {
  url: "file:shop.db",
  transactions: betterSqliteTransactions(db), // where `tx` in handlers comes from
});
db.exec("CREATE TABLE orders (id TEXT PRIMARY KEY); CREATE TABLE receipts (orderId TEXT)");

// The order and its job: both or neither.
const place = db.transaction((orderId: string, stock: number) => {
  db.prepare("INSERT INTO orders VALUES (?)").run(orderId);
  const job = service.jobs.sendReceipt.createSync({ orderId }, { tx: db }).unwrap();
  if (stock === 0) throw new Error("sold out");
  return job;
});
const job = place.immediate("o-1", 1);
try {
  place.immediate("o-2", 0);
} catch (error) {
  console.log(`o-2: ${(error as Error).message}`);
}

// The receipt and the end of the job: both or neither, so that each order gets one receipt.
service.jobs.sendReceipt.handle(async ({ payload, prepare, complete, tries }) => {
  const order = await prepare({ mode: "staged" }, ({ tx }) =>
    tx.prepare("SELECT id FROM orders WHERE id = ?").pluck().get(payload.orderId),
  );
  console.log(`try ${tries}: sending the receipt of ${order}`);
  return complete(({ tx }) => {
    tx.prepare("INSERT INTO receipts VALUES (?)").run(payload.orderId);
    if (tries === 1) throw new Error("the printer jams");
  });
});
await service.start();
await job.wait().orThrow();
console.log(`receipts: ${db.prepare("SELECT orderId FROM receipts").pluck().all().join(", ")}`);
console.log(`jobs: ${(await service.reads.counts().orThrow()).map(({ count }) => count)}`);
await service.stop();
db.close();
