// A worker whose handler loses its connection in the midst of a transaction, and whose pool loses another that nobody uses:
// `till-losing-worker.ts URL`. The job is tried again, and the process says after how many tries it was completed.
import { connect, defineJob, defineService, pgTransactions } from "millrace";
import { Client, Pool, type PoolClient } from "pg";
import { z } from "zod";

/** Nothing waits for a lease to lapse here, so that it is long: each try ends by what becomes of its connection. */
const till = defineService("till", {
  charge: defineJob({
    payload: z.object({ orderId: z.string() }),
    leaseMs: 30_000,
    retry: { maxTries: 3, backoff: [0] },
  }),
});

const [, , url = ""] = process.argv;
const name = `losing ${process.pid}`;
const pool = new Pool({ connectionString: url, application_name: name });
const service = await connect(till, {
  url,
  transactions: pgTransactions(pool),
  keeper: { tickMs: 50 },
});

async function loseAll(tx: PoolClient): Promise<void> {
  const idle = await pool.connect();
  idle.release();
  // Nobody here listens for errors, which once of node:events would do.
  const removed = new Promise((resolve) => pool.once("remove", resolve));
  const ended = new Promise((resolve) => tx.once("end", resolve));
  const killer = new Client({ connectionString: url });
  await killer.connect();
  const terminate =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
  await killer.query(terminate, [name]);
  await killer.end();
  await Promise.all([removed, ended]);
}

service.jobs.charge.handle(async ({ prepare, complete, tries }) => {
  const client = await prepare({ mode: "atomic" }, ({ tx }) => tx);
  if (tries === 1) await loseAll(client);
  return complete(() => {});
});
await service.start();
const ref = await service.jobs.charge.create({ orderId: "o-1" }).orThrow();
await ref.wait().orThrow();
console.log(`completed after ${(await ref.get().orThrow()).tries}`);
await service.stop();
await pool.end();
