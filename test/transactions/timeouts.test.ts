// Transactions of PostgreSQL whose statement_timeout is up: they are worth another run, through every client, and those that
// somebody cancels are not.
import { connect, defineJob, defineService } from "millrace";
import { Client } from "pg";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { callerTransaction } from "#millrace/client/transactions/recognise.js";
import { freshSchema } from "../support/postgres.js";
import { type Library, libraries } from "./libraries.js";

const shop = defineService("shop", { ship: defineJob({ payload: z.object({}) }) });

const payload = {};

async function openShop(library: Library) {
  const { url, storeUrl } = await freshSchema();
  const { source, wrap, close } = await library.open(url);
  onTestFinished(async () => void (await close()));
  const service = await connect(shop, { url: storeUrl });
  onTestFinished(() => service.stop());
  const txOf = (client: never) => (wrap ? wrap(client) : (client as Client));
  return { service, source, txOf, url };
}

describe.for(libraries)("a create in a transaction of $name", (library) => {
  it("is worth another run where its statement_timeout was up, and not where somebody cancelled it", async () => {
    const { service, source, txOf, url } = await openShop(library);
    const [holder, admin] = [1, 2].map(() => new Client({ connectionString: url })) as [
      Client,
      Client,
    ];
    for (const client of [holder, admin]) {
      await client.connect();
      onTestFinished(() => client.end());
    }
    await holder.query("BEGIN");
    const idempotent = { idempotencyKey: "held" };
    await service.jobs.ship.create(payload, { ...idempotent, tx: holder }).orThrow();
    const failures: unknown[] = [];
    const place = async (timeout: string, during?: (pid: number) => Promise<unknown>) => {
      const placed = source.run(async (client) => {
        const own = source.enlist ? source.enlist(client) : callerTransaction(client);
        if (own instanceof Error) throw own;
        await own.execute(`SET LOCAL statement_timeout = '${timeout}'`, []);
        const [row] = await own.execute("SELECT pg_backend_pid()::text AS pid", []);
        const created = service.jobs.ship.create(payload, { ...idempotent, tx: txOf(client) });
        await during?.(Number(row?.pid));
        const result = await created;
        if (result.isErr()) failures.push(result.error);
        return result.unwrap();
      });
      await expect(placed).rejects.toThrow();
    };
    const cancel = async (pid: number) => {
      const waiting = "SELECT 1 FROM pg_locks WHERE pid = $1 AND NOT granted";
      await vi.waitUntil(async () => (await admin.query(waiting, [pid])).rowCount === 1);
      await admin.query("SELECT pg_cancel_backend($1)", [pid]);
    };
    await place("100ms");
    await place("0", cancel);
    await place("1min", cancel);
    expect(failures).toMatchObject([
      { _tag: "TransactionConflict", code: "57014" },
      { _tag: "StoreFailed" },
      { _tag: "StoreFailed" },
    ]);
    expect((failures[0] as Error).message).toContain("its statement_timeout of 100 ms");
    await holder.query("ROLLBACK");
  });
});
