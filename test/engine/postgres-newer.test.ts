// A schema that a newer Millrace migrates while an older process runs: that one's calls are refused with a clear message,
// and its worker and keeper say so once and go no further.
import { type ConnectOptions, connect, defineJob, defineService, openEngine } from "millrace";
import { Client } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { execute, freshDatabase, freshSchema } from "../support/postgres.js";
import { gate } from "../worker/workshop.js";

const contract = defineService("shop", {
  ship: defineJob({ payload: z.object({ orderId: z.string() }) }),
});
const payload = { orderId: "o-1" };
const refusal = {
  _tag: "StoreTooNew",
  found: 99,
  message: expect.stringMatching(/newer Millrace .*Upgrade this process/),
};

type Service = Awaited<ReturnType<typeof openShop>>["service"];

async function openShop(options: Pick<ConnectOptions, "logger"> = {}) {
  const { url, schema, storeUrl } = await freshSchema();
  const service = await connect(contract, { url: storeUrl, ...options });
  onTestFinished(() => service.stop());
  /** What a newer version might do. */
  const migrate = () =>
    execute(
      url,
      `BEGIN;
       UPDATE ${schema}.store SET version = 99;
       ALTER TABLE ${schema}.jobs RENAME COLUMN key_hash TO key_name;
       ALTER TABLE ${schema}.ready RENAME COLUMN rank TO place;
       ALTER TABLE ${schema}.records RENAME COLUMN body TO content;
       COMMIT`,
    );
  return { url, service, migrate };
}

const calls: readonly [string, (service: Service) => PromiseLike<unknown>][] = [
  ["a plain create", ({ jobs }) => jobs.ship.create(payload)],
  ["a create with a tag", ({ jobs }) => jobs.ship.create(payload, { tags: ["a"] })],
  [
    "a create under an idempotency key",
    ({ jobs }) => jobs.ship.create(payload, { idempotencyKey: "k" }),
  ],
  ["a read", ({ reads }) => reads.job("any")],
  ["a list", ({ reads }) => reads.jobs({})],
];

describe("a call of a process that is older than the schema has become", () => {
  it.each(calls)("is refused: %s", async (_, call) => {
    const { service, migrate } = await openShop();
    await service.jobs.ship.create(payload).orThrow();
    await migrate();
    expect(await call(service)).toMatchObject({ error: refusal });
    // From now on it need not fail on the server to be refused.
    for (const [, each] of calls) expect(await each(service)).toMatchObject({ error: refusal });
  });

  it("is refused in a caller's transaction, which goes on", async () => {
    const { url, service, migrate } = await openShop();
    await service.jobs.ship.create(payload).orThrow();
    await migrate();
    const client = new Client({ connectionString: url });
    await client.connect();
    onTestFinished(() => client.end());
    await client.query("BEGIN");
    for (let times = 0; times < 2; times++)
      expect(await service.jobs.ship.create(payload, { tx: client })).toMatchObject({
        error: refusal,
      });
    await client.query("SELECT 1");
  });

  it("is refused after connections were lost, also where it would find all that it needs", async () => {
    const url = await freshDatabase();
    const engine = await openEngine(url);
    onTestFinished(() => engine.close());
    await engine.head();
    const connections =
      "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'millrace'";
    await execute(
      url,
      "UPDATE millrace.store SET version = 99",
      `SELECT pg_terminate_backend(pid) ${connections}`,
    );
    while ((await execute(url, `SELECT pid ${connections}`)).length > 0);
    // The first may meet the connection that was lost, and the second makes another.
    await engine.head().catch(() => {});
    await engine.head().catch(() => {});
    await expect(engine.head()).rejects.toMatchObject(refusal);
  });
});

describe("a running service that is older than the schema has become", () => {
  it("says so once for its worker and its keeper, and tries no more", async () => {
    const lines: string[] = [];
    const [workerEnded, keeperEnded] = [gate(), gate()];
    const note = (_: object, message: string) => {
      lines.push(message);
      if (/newer Millrace.*claims no more jobs/.test(message)) workerEnded.open();
      if (/newer Millrace.*keeps the service no more/.test(message)) keeperEnded.open();
    };
    const logger = { info: note, warn: note, error: note };
    const { service, migrate } = await openShop({ logger });
    service.jobs.ship.handle(() => {});
    await service.start();
    await (await service.jobs.ship.create(payload).orThrow()).wait().orThrow();
    await migrate();
    await Promise.all([workerEnded.opened, keeperEnded.opened]);
    expect(await service.jobs.ship.create(payload)).toMatchObject({ error: refusal });
    await service.stop();
    expect(lines.filter((line) => line.includes("newer Millrace"))).toHaveLength(2);
  });
});
