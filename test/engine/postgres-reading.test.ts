// What reading costs on PostgreSQL beside many jobs that nobody asks for.
import { Environment, MovableClock } from "millrace/conformance";
import { expect, it } from "vitest";
import { ids } from "#millrace/conformance/environment.js";
import type { FeedItem } from "#millrace/engine/engine.js";
import { openPostgres } from "#millrace/engine/postgres/engine.js";
import { execute, freshDatabase } from "../support/postgres.js";

/** How many jobs have ended, and how many rows of them a cheap question may look at. */
const endedMany = 3_000;
const readFew = 200;

/** A store in which many jobs have ended, and what is read from it by whoever opens it. */
async function storeWithEnds() {
  const url = await freshDatabase();
  const clock = new MovableClock();
  const open = async () => {
    const engine = await openPostgres(url, { clock });
    return new Environment(engine, clock, () => openPostgres(url, { clock }));
  };
  const first = await open();
  for (let left = endedMany; left > 0; left -= 500) {
    await first.engine.append(Array.from({ length: 500 }, () => first.creation()));
    const jobs = await first.claim({ free: 500 }, { limit: 500 });
    await Promise.all(jobs.map((job) => first.complete(job)));
  }
  await first.engine.close();
  await execute(url, "VACUUM ANALYZE");
  return { url, open };
}

/** Calls something with a store, and gives how many rows of jobs its connections have read by the time that they are gone. */
async function rowsRead(
  { url, open }: Awaited<ReturnType<typeof storeWithEnds>>,
  work: (env: Environment) => Promise<void>,
): Promise<number> {
  const read = async () => {
    // A connection has said what it has read when it is gone.
    const others = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'millrace%'";
    while ((await execute(url, `${others} AND datname = current_database()`)).length > 0);
    const sql = `SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname IN ('jobs', 'events', 'rounds', 'ended'))
      + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN ('jobs', 'events', 'rounds', 'ended')) AS read`;
    const [row] = (await execute(url, sql)) as { read: string }[];
    return Number(row?.read);
  };
  const before = await read();
  const env = await open();
  await work(env);
  await env.engine.close();
  return (await read()) - before;
}

it("a reader of the feed reads what is new, whatever else there is", async () => {
  const store = await storeWithEnds();
  const rows = await rowsRead(store, async (env) => {
    const cursor = await env.engine.head();
    const stop = new AbortController();
    const seen: FeedItem[] = [];
    const created = await env.create({ id: "new" });
    for await (const item of env.engine.tail(cursor, stop.signal)) {
      seen.push(item);
      if (seen.length === 1) await env.command(created.id, { command: "cancel" });
      if (seen.length === 2) stop.abort();
    }
    expect(seen.map(({ event }) => [event.jobId, event.name])).toEqual([
      [created.id, "created"],
      [created.id, "cancelled"],
    ]);
  });
  expect(rows).toBeLessThan(readFew);
});

it("a list of few jobs reads those", async () => {
  const store = await storeWithEnds();
  const rows = await rowsRead(store, async (env) => {
    const { id } = await env.create({ id: "new" });
    await env.command(id, { command: "cancel" });
    for (const state of [["cancelled"], ["cancelled", "pending"], ["failed", "active"]] as const) {
      const { entries } = await env.engine.query("jobs", { filter: { state } });
      expect(ids(entries)).toEqual(state[0] === "cancelled" ? [id] : []);
    }
  });
  expect(rows).toBeLessThan(readFew);
});
