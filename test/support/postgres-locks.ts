// Open transactions on PostgreSQL that hold locks, and who waits for them.
import { Client } from "pg";
import { onTestFinished } from "vitest";

/** A connection of its own. */
export async function connected(url: string): Promise<Client> {
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

/** A connection of its own with a transaction that is open. */
export async function openTransaction(url: string): Promise<Client> {
  const client = await connected(url);
  await client.query("BEGIN");
  return client;
}

/** The transactions that wait for a lock that this one holds. */
export async function waiters(client: Client): Promise<readonly unknown[]> {
  const waiting = `SELECT virtualtransaction FROM pg_locks
    WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))`;
  return (await client.query(waiting)).rows;
}

/** Waits until another transaction waits for a lock that this one holds, and gives it. */
export async function isWaitedFor(client: Client): Promise<readonly unknown[]> {
  for (;;) {
    const waiting = await waiters(client);
    if (waiting.length > 0) return waiting;
  }
}
