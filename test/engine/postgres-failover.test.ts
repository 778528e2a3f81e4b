// A failover of PostgreSQL: the primary becomes read-only and keeps its connections, a standby takes over, and the address leads
// there. Everybody goes on with the new primary, and nothing is lost that was acknowledged.
import { connect, defineJob, defineService, type JobRef } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { execute } from "../support/postgres.js";
import { openPair } from "../support/postgres-proxy.js";
import { gate } from "../worker/workshop.js";

const payload = z.object({ isLong: z.boolean() });
const contract = defineService("failover", { quick: defineJob({ payload, leaseMs: 60_000 }) });
const [short, long] = [{ isLong: false }, { isLong: true }];

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
    if (!payload.isLong) return {};
    running.open();
    await finish.opened;
    return { isLong: true };
  });
  await worker.start();
  const acknowledged: JobRef[] = [];
  /** Creates until one is acknowledged, or until one is refused; gives why. */
  const create = async () => {
    const created = await caller.jobs.quick.create(short);
    if (created.isErr()) return created.error;
    acknowledged.push(created.value);
    return null;
  };
  const held = await caller.jobs.quick.create(long).orThrow();
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
  expect(await held.wait().orThrow()).toEqual({ isLong: true });
  for (const ref of acknowledged) await ref.wait().orThrow();
  expect((await held.events().orThrow()).map(({ name }) => name)).toEqual([
    "created",
    "started",
    "completed",
  ]);
  // Nobody stays behind, who would read what is old or listen to nobody, but for commits that wait for a standby.
  const left =
    "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'millrace%' AND wait_event IS DISTINCT FROM 'SyncRep'";
  while ((await execute(primary.url, left)).length > 0) await create();
});
