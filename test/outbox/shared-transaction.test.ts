// An outbox and a store in one database, written in one transaction of the caller's.
import { connect } from "millrace";
import type { Client } from "pg";
import { expect, it, onTestFinished } from "vitest";
import { arrived, homes, openShop } from "./shop.js";
import { shop } from "./shop-contract.js";

const o1 = { orderId: "o-1" };

it("keeps what it was given while a create beside it fails in the same transaction", async () => {
  const home = await homes.find(({ name }) => name === "postgres")?.fresh();
  if (home === undefined) throw new Error("There is no home in PostgreSQL.");
  const outside = await openShop(home);
  const inside = await connect(shop, { url: home.outbox });
  onTestFinished(() => inside.stop());
  const other = await home.begin();
  await inside.jobs.charge.create(o1, { id: "taken", tx: other.tx }).orThrow();
  const [refused, ref] = await home.within(async (tx) => {
    await (tx as Client).query("SET LOCAL lock_timeout = 100");
    return Promise.all([
      inside.jobs.charge.create(o1, { id: "taken", tx }),
      outside.jobs.charge.create(o1, { tx }).orThrow(),
    ]);
  });
  await other.end("ROLLBACK");
  expect(refused.isErr() && refused.error._tag).toBe("TransactionConflict");
  expect(await home.rows()).toBe(1);
  await outside.start();
  await arrived(ref);
});
