// Jobs that commit with your own data: Prisma, with its driver for node-postgres.
import { PrismaPg } from "@prisma/adapter-pg";
import { connect, prismaTransactions } from "millrace";
import { PrismaClient } from "./prisma/generated/client.js";
import { shop, tables, url } from "./shop.js";

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
for (const statement of tables.split(";")) await prisma.$executeRawUnsafe(statement);
const service = await connect(shop, { url, transactions: prismaTransactions(prisma) });

service.jobs.sendReceipt.handle(({ payload, complete }) =>
  complete(async ({ tx }) => {
    await tx.receipt.create({ data: { orderId: payload.orderId } });
  }),
);

const place = (orderId: string, stock: number) =>
  prisma.$transaction(async (tx) => {
    await tx.order.create({ data: { id: orderId } });
    const job = await service.jobs.sendReceipt.create({ orderId }, { tx }).orThrow();
    if (stock === 0) throw new Error("sold out");
    return job;
  });

await service.start();
await place("o-2", 0).catch((error: Error) => console.log(`o-2: ${error.message}`));
await (await place("o-1", 1)).wait().orThrow();
const rows = await prisma.receipt.findMany();
console.log(`receipts: ${rows.map(({ orderId }) => orderId).join(", ")}`);
await service.stop();
await prisma.$disconnect();
