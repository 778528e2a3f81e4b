// Jobs that commit with your own data although they are in a store of another kind: an outbox in your database.
import Database from "better-sqlite3";
import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";

const shop = defineService("shop", {
  sendReceipt: defineJob({ payload: z.object({ orderId: z.string() }) }),
});

const db = new Database("shop.db");
db.exec("CREATE TABLE orders (id TEXT PRIMARY KEY)");

// The store, such as nats://localhost:4222, knows nothing of shop.db; what is created in its transactions waits there in a
// table of Millrace's own.
const url = process.env.MILLRACE_URL ?? "memory:";
const service = await connect(shop, { url, outbox: "file:shop.db" });
service.jobs.sendReceipt.handle(({ payload }) => console.log(`the receipt of ${payload.orderId}`));
await service.start();

const place = db.transaction((orderId: string, stock: number) => {
  db.prepare("INSERT INTO orders VALUES (?)").run(orderId);
  const job = service.jobs.sendReceipt.createSync({ orderId }, { tx: db }).unwrap();
  if (stock === 0) throw new Error("sold out");
  return job;
});
try {
  place.immediate("o-1", 0);
} catch (error) {
  console.log(`o-1: ${(error as Error).message}`);
}
const job = place.immediate("o-2", 1);
await job.wait().orThrow();
console.log(`orders: ${db.prepare("SELECT id FROM orders").pluck().all().join(", ")}`);
console.log(`jobs: ${(await service.reads.counts().orThrow()).map(({ count }) => count)}`);
await service.stop();
db.close();
