// Records on PostgreSQL that are removed while somebody is about to write them.
import { Environment, MovableClock } from "millrace/conformance";
import type { Client } from "pg";
import { expect, it, onTestFinished } from "vitest";
import { callerTransaction } from "#millrace/client/transactions/recognise.js";
import { openPostgres } from "#millrace/engine/postgres/engine.js";
import { freshSchema } from "../support/postgres.js";
import { isWaitedFor, openTransaction } from "../support/postgres-locks.js";

it("a record that runs out and is removed before it is locked is written by one of two", async () => {
  const { url, storeUrl } = await freshSchema();
  const clock = new MovableClock();
  const open = () => openPostgres(storeUrl, { clock });
  const engine = await open();
  const env = new Environment(engine, clock, open);
  const others = env.at(await open());
  onTestFinished(async () => {
    await engine.close();
    await others.engine.close();
  });
  const write = { id: "idempotency/shop/mail@1/order-1", expect: 0, body: { jobId: "1" } };
  await engine.swap([{ ...write, expiresAt: env.now + 10 }]);
  clock.advance(10);

  const client = await openTransaction(url);
  const query = client.query.bind(client) as (...args: unknown[]) => Promise<unknown>;
  let isRemoved = false;
  let swapping: Promise<unknown> = Promise.resolve();
  const slow = Object.assign(Object.create(client) as Client, {
    query: async (...args: unknown[]) => {
      const [asked] = args as [string | { readonly text: string }];
      const text = typeof asked === "string" ? asked : asked.text;
      // The record that ran out was there for the statement before, and stood in for the new one.
      if (/records WHERE id = \$1 FOR UPDATE/.test(text) && !isRemoved) {
        isRemoved = true;
        await others.engine.prune(env.now);
      }
      // The record is locked by now, and whoever comes waits for the transaction.
      if (/INTO \S+\.jobs/.test(text)) {
        swapping = others.engine.swap([{ ...write, body: { jobId: "outside" } }]);
        const waits = isWaitedFor({ query } as unknown as Client).then(() => "waits");
        expect(await Promise.race([waits, swapping])).toBe("waits");
      }
      return query(...args);
    },
  });
  const tx = callerTransaction(slow);
  if (tx instanceof Error) throw tx;
  const creation = env.creation({ id: "inside" }, [{ ...write, body: { jobId: "inside" } }]);
  const [inside] = await engine.append([creation], tx);
  expect(inside?.outcome).toBe("appended");
  expect(isRemoved).toBe(true);
  await query("COMMIT");
  expect(await swapping).toMatchObject([
    { swapped: false, current: { version: 1, body: { jobId: "inside" } } },
  ]);
});
