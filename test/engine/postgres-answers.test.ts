// PostgreSQL servers that answer no more, without a word: one whose commits wait for a standby that took over, and one that is cut
// off. And one that only takes its time, which is waited for.
import { connect, defineJob, defineService } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { addressOf } from "#millrace/engine/postgres/address.js";
import { Database } from "#millrace/engine/postgres/driver.js";
import { loadDriver } from "#millrace/engine/postgres/module.js";
import { execute, freshSchema, ownPostgres } from "../support/postgres.js";
import { openPair, postgresWay } from "../support/postgres-proxy.js";
import { gate } from "../worker/workshop.js";

const payload = z.object({ isLong: z.boolean() });
const contract = defineService("answers", { quick: defineJob({ payload, leaseMs: 60_000 }) });
const [short, long] = [{ isLong: false }, { isLong: true }];

describe("a server that answers no more", () => {
  /** A service whose worker is in the middle of a job. */
  async function inTheMiddle(url: string) {
    const service = await connect(contract, { url });
    onTestFinished(() => service.stop());
    const [running, finish] = [gate(), gate()];
    const reasons: unknown[] = [];
    service.jobs.quick.handle(async ({ payload, signal }) => {
      if (!payload.isLong) return {};
      signal.addEventListener("abort", () => reasons.push(signal.reason));
      running.open();
      await finish.opened;
      return { isLong: true };
    });
    await service.start();
    const held = await service.jobs.quick.create(long).orThrow();
    await running.opened;
    return { service, create: () => service.jobs.quick.create(short), held, finish, reasons };
  }

  /** The job that was running ends under its first lease, and others are created and run. */
  async function goesOn({
    create,
    held,
    finish,
    reasons,
  }: Awaited<ReturnType<typeof inTheMiddle>>) {
    const next = await create().orThrow();
    await next.wait().orThrow();
    finish.open();
    expect(await held.wait().orThrow()).toEqual({ isLong: true });
    const names = (await held.events().orThrow()).map(({ name }) => name);
    expect(names).toEqual(["created", "started", "completed"]);
    expect(reasons).toEqual([]);
  }

  it("because its commits wait for a standby that took over is left", async () => {
    const { primary, standby, way } = await openPair();
    const middle = await inTheMiddle(way.url);
    await execute(
      primary.url,
      "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
      "SELECT pg_reload_conf()",
    );
    // Who sends the log to the standby takes that up a moment later, and lets commits go until then.
    const lets = "SELECT 1 FROM pg_stat_replication WHERE sync_state <> 'async'";
    while ((await execute(primary.url, lets)).length > 0);
    // The worker's own commits may wait, too: it goes on all the same.
    const waiting = middle.create();
    const stuck = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    while ((await execute(primary.url, stuck)).length === 0);
    await execute(standby.url, "SELECT pg_promote()");
    way.turnTo(standby.url);
    const refused = await waiting;
    expect(refused.isErr() && refused.error).toMatchObject({
      _tag: "StoreUnavailable",
      message: expect.stringMatching(/cannot be reached \(a statement got no answer/),
    });
    await goesOn(middle);
  }, 60_000);

  it("because it is cut off is connected to anew, where the address leads", async () => {
    const { url } = await ownPostgres();
    const way = await postgresWay(url);
    const middle = await inTheMiddle(way.url);
    way.fallSilent();
    const refused = await middle.create();
    expect(refused.isErr() && refused.error).toMatchObject({ _tag: "StoreUnavailable" });
    await goesOn(middle);
  }, 60_000);
});

it("a server that works on a statement for long is waited for", async () => {
  const { storeUrl } = await freshSchema();
  const address = addressOf(storeUrl);
  const database = new Database(await loadDriver(address.where), address, null);
  onTestFinished(() => database.close());
  await database.provision();
  const rows = await database.execute({ sql: "SELECT 1 AS done FROM pg_sleep(8)", values: [] });
  expect(rows).toEqual([{ done: 1 }]);
}, 60_000);
