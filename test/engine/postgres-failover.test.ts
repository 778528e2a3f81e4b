// A failover of PostgreSQL: the primary becomes read-only and keeps its connections, a standby takes over, and the address leads
// there. Everybody goes on with the new primary, and nothing is lost that was acknowledged.
import { connect, type JobRef } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { contract, noWork } from "../crash/contract.js";
import { execute, ownPostgres, standbyOf } from "../support/postgres.js";
import { postgresWay } from "../support/postgres-proxy.js";
import { gate } from "../worker/workshop.js";

/** A primary whose commits wait for its standby, and the way to it. */
async function openPair() {
  const primary = await ownPostgres();
  const standby = await standbyOf(primary);
  while ((await execute(primary.url, "SELECT 1 FROM pg_stat_replication")).length === 0);
  await execute(
    primary.url,
    "ALTER SYSTEM SET synchronous_standby_names = '*'",
    "SELECT pg_reload_conf()",
  );
  return { primary, standby, way: await postgresWay(primary.url) };
}

it("is survived by workers and callers that stay connected", { timeout: 120_000 }, async () => {
  const { primary, standby, way } = await openPair();
  const open = async () => {
    const service = await connect(contract, { url: way.url });
    onTestFinished(() => service.stop());
    return service;
  };
  const [caller, worker] = [await open(), await open()];
  const [running, finish] = [gate(), gate()];
  worker.jobs.quick.handle(async ({ payload }) => {
    if (payload.key !== "long") return {};
    running.open();
    await finish.opened;
    return { isLong: true };
  });
  await worker.start();
  const acknowledged: JobRef[] = [];
  /** Creates until one is acknowledged, or until one is refused; gives why. */
  const create = async () => {
    const created = await caller.jobs.quick.create(noWork);
    if (created.isErr()) return created.error;
    acknowledged.push(created.value);
    return null;
  };
  const long = await caller.jobs.quick.create({ ...noWork, key: "long" }).orThrow();
  await running.opened;
  expect(await create()).toBeNull();

  await execute(
    primary.url,
    "ALTER SYSTEM SET default_transaction_read_only = on",
    "SELECT pg_reload_conf()",
  );
  let refusal = await create();
  while (refusal === null) refusal = await create();
  expect(refusal).toMatchObject({
    _tag: "StoreUnavailable",
    message: expect.stringMatching(/may not be written.*leads to the primary/),
  });

  await execute(standby.url, "SELECT pg_promote()");
  way.turnTo(standby.url);
  while ((await create()) !== null);
  finish.open();
  expect(await long.wait().orThrow()).toEqual({ isLong: true });
  for (const ref of acknowledged) await ref.wait().orThrow();
  expect((await long.events().orThrow()).map(({ name }) => name)).toEqual([
    "created",
    "started",
    "completed",
  ]);
  // Nobody stays behind, who would read what is old or listen to nobody.
  const left = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'millrace%'";
  while ((await execute(primary.url, left)).length > 0) await create();
});
