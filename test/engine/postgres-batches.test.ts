// Calls that wait for somebody's open transaction on PostgreSQL, and calls that do not: the ones never hold up the others.
import { connect, defineJob, defineService } from "millrace";
import { Client } from "pg";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshSchema } from "../support/postgres.js";

const contract = defineService("shop", {
  ship: defineJob({ payload: z.object({ orderId: z.string() }) }),
});
const payload = { orderId: "o-1" };

/** A service, and a transaction of the caller's that is open. */
async function openShop() {
  const { url, storeUrl } = await freshSchema();
  const service = await connect(contract, { url: storeUrl });
  onTestFinished(() => service.stop());
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query("BEGIN");
  return { ship: service.jobs.ship, client };
}

/** Waits until another transaction waits for a lock that this one holds. */
async function isWaitedFor(client: Client): Promise<void> {
  const waiting =
    "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))";
  while ((await client.query(waiting)).rowCount === 0);
}

it("a create that waits for an idempotency key holds up no create of another kind, and no command", async () => {
  const { ship, client } = await openShop();
  const delayed = await ship.create(payload, { delayMs: 60_000 }).orThrow();
  await ship.submit(payload, { id: "first", tx: client, idempotencyKey: "k" }).orThrow();
  const answered: string[] = [];
  const waiting = ship.submit(payload, { idempotencyKey: "k" }).then((submitted) => {
    answered.push("waiting");
    return submitted;
  });
  await isWaitedFor(client);

  await ship.create(payload, { delayMs: 60_000 }).orThrow();
  await ship.create(payload, { tags: ["vip"] }).orThrow();
  await ship.create(payload, { blockers: [delayed] }).orThrow();
  await delayed.cancel().orThrow();
  expect(answered).toEqual([]);
  await client.query("COMMIT");
  expect((await waiting).unwrap()).toMatchObject({ outcome: "existing", job: { id: "first" } });
});
