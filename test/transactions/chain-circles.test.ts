// Circles of blockers on PostgreSQL: two transactions that each let a chain wait for the other's are told apart, also where
// neither sees what the other has done.
import { connect, defineJob, defineService } from "millrace";
import { Client } from "pg";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { execute, freshSchema } from "../support/postgres.js";

const contract = defineService("shop", {
  first: defineJob({ payload: z.object({}), continuations: ["second"] }),
  second: defineJob({ payload: z.object({}) }),
});

async function openShop() {
  const { url, storeUrl } = await freshSchema();
  const service = await connect(contract, { url: storeUrl });
  onTestFinished(() => service.stop());
  for (const id of ["w", "x", "y"]) await service.chains.start("first", {}, { id }).orThrow();
  const begin = async (mode: string) => {
    const client = new Client({ connectionString: url });
    await client.connect();
    onTestFinished(() => client.end());
    await client.query(`BEGIN ISOLATION LEVEL ${mode}`);
    // A snapshot is taken with the first statement.
    const { rows } = await client.query("SELECT pg_backend_pid() AS pid, now()");
    return { client, pid: rows[0].pid as number };
  };
  /** Lets the chain go on with a job that waits for another chain. */
  const waitFor = (chain: string, other: string, tx?: Client) =>
    service.chains.complete(
      chain,
      async ({ job, complete }) => {
        const blockers = [{ chain: other }];
        if (job.type === "first")
          await complete(job, ({ continueWith }) => continueWith("second", {}, { blockers }));
      },
      tx && { tx },
    );
  /** Waits until a connection waits for a lock, or what it was asked for is done. */
  const isHeldUp = async (pid: number, work: Promise<unknown>) => {
    let isWaiting = false;
    let isDone = false;
    void work.finally(() => {
      isDone = true;
    });
    while (!isWaiting && !isDone) {
      const sql = `SELECT wait_event_type = 'Lock' AS waits FROM pg_stat_activity WHERE pid = ${pid}`;
      const [row] = (await execute(url, sql)) as { readonly waits: boolean | null }[];
      isWaiting = row?.waits === true;
    }
    return isWaiting;
  };
  return { service, begin, waitFor, isHeldUp };
}

it.for([
  ["as the first of all", 0],
  ["after others", 1],
] as const)(
  "of two chains that are to wait for each other, %s, the second is refused",
  async ([, before]) => {
    const { service, begin, waitFor, isHeldUp } = await openShop();
    // Only the first ever makes the row that all of them lock.
    if (before > 0) await waitFor("w", "x").orThrow();
    const [one, two] = [await begin("READ COMMITTED"), await begin("READ COMMITTED")];
    await waitFor("x", "y", one.client).orThrow();
    const second = Promise.resolve(waitFor("y", "x", two.client));
    expect(await isHeldUp(two.pid, second)).toBe(true);
    await one.client.query("COMMIT");
    expect(await second).toMatchObject({ error: { _tag: "InvalidBlocker", reason: "cycle" } });
    await two.client.query("COMMIT");
    expect((await service.chains.get("x").orThrow()).state).toBe("blocked");
    expect((await service.chains.get("y").orThrow()).state).toBe("pending");
  },
);

it.for(["REPEATABLE READ", "SERIALIZABLE"])(
  "a transaction at %s that does not see the other has to be run again",
  async (mode) => {
    const { begin, waitFor } = await openShop();
    await waitFor("w", "x").orThrow();
    const old = await begin(mode);
    await waitFor("x", "y").orThrow();
    const late = await waitFor("y", "x", old.client);
    expect(late).toMatchObject({ error: { _tag: "TransactionConflict" } });
    await old.client.query("ROLLBACK");
    const again = await begin(mode);
    const refused = await waitFor("y", "x", again.client);
    expect(refused).toMatchObject({ error: { _tag: "InvalidBlocker", reason: "cycle" } });
  },
);

it("whoever cannot look for a circle in time is told that the store is busy", async () => {
  const { service, begin, waitFor } = await openShop();
  const { client } = await begin("READ COMMITTED");
  await waitFor("x", "y", client).orThrow();
  const busy = await waitFor("y", "x");
  expect(busy).toMatchObject({ error: { _tag: "StoreBusy" } });
  // A chain that begins with a job that waits closes no circle, and waits for nobody.
  const blockers = [{ chain: "y" }];
  await service.chains.start("first", {}, { blockers }).orThrow();
  await client.query("ROLLBACK");
  expect((await waitFor("y", "x")).isOk()).toBe(true);
}, 30_000);
