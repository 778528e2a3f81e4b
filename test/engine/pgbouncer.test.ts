// PostgreSQL behind a real PgBouncer in transaction mode, where each transaction may meet another session:
// every case of the conformance suite, and a service whose handlers write in transactions.
import { connect, defineJob, defineService, pgTransactions } from "millrace";
import { type ConformanceTarget, runConformance } from "millrace/conformance";
import { Pool } from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { openEngine } from "#millrace/engine/open.js";
import { type PgBouncer, serverConnectionsMax, startPgBouncer } from "../../scripts/pgbouncer.js";
import { execute, freshSchema, newSchema, sharedPostgresUrl } from "../support/postgres.js";

/** The first run fetches the program. */
const startTimeoutMs = 120_000;

let bouncer: PgBouncer;
beforeAll(async () => {
  bouncer = await startPgBouncer(await sharedPostgresUrl());
}, startTimeoutMs);
afterAll(() => bouncer?.stop());

/** The same place, by way of PgBouncer. */
function throughPgBouncer(direct: string): string {
  const url = new URL(direct);
  url.host = new URL(bouncer.url).host;
  return url.href;
}

const behindPgBouncer: ConformanceTarget = {
  name: "PostgreSQL behind PgBouncer",
  open: async (clock) => {
    const { url, remove } = await newSchema();
    const open = () => openEngine(throughPgBouncer(url), { clock });
    return { engine: await open(), open, remove };
  },
};

describe(behindPgBouncer.name, () => {
  runConformance(behindPgBouncer, (name, run) => {
    it.concurrent(name, async (context) => {
      const result = await run();
      if (result.outcome === "skipped") context.skip(result.reason);
    });
  });
});

const bank = defineService("bank", {
  book: defineJob({
    payload: z.object({ entry: z.number() }),
    result: z.object({ session: z.number() }),
    keyConcurrency: { key: ["/entry"], maxActive: 1 },
    concurrency: 8,
  }),
});

/** Of a process's own at a time: fewer than PgBouncer has sessions, because the workers need some, too. */
const transactionsMax = 4;

/** A service, and a pool of its own transactions, both by way of PgBouncer. */
async function openBank(storeUrl: string) {
  const url = throughPgBouncer(storeUrl);
  const plain = new URL(url);
  plain.searchParams.delete("schema");
  const pool = new Pool({ connectionString: plain.href, max: transactionsMax });
  const service = await connect(bank, { url, transactions: pgTransactions(pool) });
  onTestFinished(async () => {
    await service.stop();
    await pool.end();
  });
  return { service, pool };
}

const selectSession = "SELECT pg_backend_pid() AS session";

describe("a service behind PgBouncer", () => {
  it("creates in transactions, works in two processes and waits, though its sessions change", async () => {
    const { url, schema, storeUrl } = await freshSchema();
    const caller = await openBank(storeUrl);
    await execute(url, `CREATE TABLE ${schema}.entries (entry int PRIMARY KEY)`);
    const sessions = new Set<number>();
    for (const { service } of [await openBank(storeUrl), await openBank(storeUrl)]) {
      service.jobs.book.handle(async ({ payload, prepare, complete }) => {
        const mode = payload.entry % 2 === 0 ? "atomic" : "staged";
        await prepare({ mode }, ({ tx }) => tx.query("SELECT 1"));
        return complete(async ({ tx }) => {
          await tx.query(`INSERT INTO ${schema}.entries VALUES ($1)`, [payload.entry]);
          const { rows } = await tx.query(selectSession);
          return { session: Number(rows[0].session) };
        });
      });
      await service.start();
    }

    const entries = Array.from({ length: 100 }, (_, entry) => entry);
    const results = entries.map(async (entry) => {
      const client = await caller.pool.connect();
      try {
        await client.query("BEGIN");
        const options = { tx: client };
        const job = await caller.service.jobs.book.create({ entry }, options).orThrow();
        await client.query(entry % 10 === 9 ? "ROLLBACK" : "COMMIT");
        return job;
      } finally {
        client.release();
      }
    });
    for (const [entry, job] of (await Promise.all(results)).entries())
      if (entry % 10 === 9)
        expect(await job.get()).toMatchObject({ error: { _tag: "JobNotFound" } });
      else sessions.add((await job.wait().orThrow()).session);

    const written = await execute(url, `SELECT entry FROM ${schema}.entries ORDER BY entry`);
    expect(written).toEqual(
      entries.filter((entry) => entry % 10 !== 9).map((entry) => ({ entry })),
    );
    expect(sessions.size).toBeGreaterThan(1);
  });

  /** As many transactions as PgBouncer has sessions, each with the answer to a create inside of it. */
  async function createEverywhere(storeUrl: string, pool: Pool) {
    const service = await connect(bank, { url: throughPgBouncer(storeUrl) });
    onTestFinished(() => service.stop());
    const places = Array.from({ length: serverConnectionsMax }, (_, entry) => entry);
    const clients = await Promise.all(places.map(() => pool.connect()));
    for (const client of clients) await client.query("BEGIN");
    const creates = clients.map((tx, entry) => service.jobs.book.create({ entry }, { tx }));
    const created = await Promise.all(creates);
    for (const client of clients) {
      await client.query("COMMIT");
      client.release();
    }
    return { service, created };
  }

  it("creates the first jobs of a process though transactions hold every session, or says why not", {
    timeout: 30_000,
  }, async () => {
    const { storeUrl } = await freshSchema();
    const plain = new URL(throughPgBouncer(storeUrl));
    plain.searchParams.delete("schema");
    const pool = new Pool({ connectionString: plain.href, max: serverConnectionsMax });
    onTestFinished(() => pool.end());
    const first = await createEverywhere(storeUrl, pool);
    for (const created of first.created)
      expect(created).toMatchObject({
        error: {
          _tag: "StoreBusy",
          message: expect.stringMatching(/bank\/book\/book@1 needs a connection.*more sessions/),
        },
      });
    await first.service.jobs.book.create({ entry: 99 }).orThrow();
    const second = await createEverywhere(storeUrl, pool);
    expect(second.created.map((created) => created.isOk())).not.toContain(false);
    expect((await second.service.reads.jobs().orThrow()).count).toBe(serverConnectionsMax + 1);
  });
});
