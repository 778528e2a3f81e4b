// Transactions of real processes: what a handler writes happens exactly once wherever its process is killed,
// and keys hold among callers that create in transactions of their own.
import Database from "better-sqlite3";
import {
  betterSqliteTransactions,
  connect,
  type JobRef,
  pgTransactions,
  type Service,
} from "millrace";
import { Pool } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { startChild } from "../crash/children.js";
import { freshSchema } from "../support/postgres.js";
import { sqliteStore } from "./shop-file.js";
import { charging, postgresLedger, sqliteLedger, steps, till } from "./till-contract.js";

async function openTill(tables: string) {
  const { url, path } = await sqliteStore();
  const db = new Database(path);
  onTestFinished(() => void db.close());
  const service = await connect(till, {
    url,
    transactions: betterSqliteTransactions(db),
    keeper: { tickMs: 50 },
  });
  onTestFinished(() => service.stop());
  db.exec(tables);
  return { service, db, url };
}

const deaths = [
  ...steps.map((step) => ({ mode: "atomic" as const, step })),
  { mode: "staged" as const, step: "working" as const },
  { mode: "staged" as const, step: "settled, not committed" as const },
];

/** A shop that was given a job, its table, and the way to work itself. */
interface Till {
  readonly service: Pick<Service<(typeof till)["jobs"], never>, "start">;
  readonly ref: JobRef;
  /** What the worker that is killed is started with, after the step. */
  readonly parameters: readonly [url: string, ...string[]];
  charges(): Promise<unknown[]>;
  /** What stands there after a try that was committed. */
  readonly chargesOf: (tries: number) => unknown[];
}

async function sqliteTill(mode: "atomic" | "staged"): Promise<Till> {
  const { service, db, url } = await openTill("CREATE TABLE charges (id TEXT, tries INTEGER)");
  service.jobs.charge.handle(charging(sqliteLedger, () => {}));
  return {
    service,
    ref: await service.jobs.charge.create({ orderId: "o-1", mode }).orThrow(),
    parameters: [url],
    charges: async () => db.prepare("SELECT id, tries FROM charges").raw().all(),
    chargesOf: (tries) => [["o-1", tries]],
  };
}

/** The same beside the jobs in PostgreSQL. */
async function openPostgresTill() {
  const { url: server, schema, storeUrl: url } = await freshSchema();
  const pool = new Pool({ connectionString: server });
  onTestFinished(() => pool.end());
  const service = await connect(till, {
    url,
    transactions: pgTransactions(pool),
    keeper: { tickMs: 50 },
  });
  onTestFinished(() => service.stop());
  return { service, pool, url, schema };
}

async function postgresTill(mode: "atomic" | "staged"): Promise<Till> {
  const { service, pool, url, schema } = await openPostgresTill();
  const table = `${schema}.charges`;
  await pool.query(`CREATE TABLE ${table} (id text, tries int)`);
  service.jobs.charge.handle(charging(postgresLedger(table), () => {}));
  const query = { text: `SELECT id, tries FROM ${table} ORDER BY id`, rowMode: "array" } as const;
  return {
    service,
    ref: await service.jobs.charge.create({ orderId: "o-1", mode }).orThrow(),
    parameters: [url, table],
    charges: async () => (await pool.query(query)).rows,
    chargesOf: (tries) => [["o-1", tries], ...(mode === "atomic" ? [["o-1-prepared", tries]] : [])],
  };
}

describe.for([
  { name: "sqlite", open: sqliteTill },
  { name: "postgres", open: postgresTill },
])("the writes of a handler on $name", ({ open }) => {
  it.for(deaths)("happen once when its process is killed: $mode, $step", async ({ mode, step }) => {
    const { service, ref, parameters, charges, chargesOf } = await open(mode);
    const [url, ...rest] = parameters;
    const worker = startChild("../transactions/till-worker.ts", [url, step, ...rest]);
    expect(await worker.ended).toMatchObject({ signal: "SIGKILL", errors: "" });
    const isDone = step === "committed";
    expect(await charges()).toEqual(isDone ? chargesOf(1) : []);
    expect((await ref.get().orThrow()).state).toBe(isDone ? "completed" : "active");

    await service.start();
    await ref.wait().orThrow();
    const { tries } = await ref.get().orThrow();
    // A later try may lapse, too, on a slow machine. Only the one that completed the job has written.
    if (isDone) expect(tries).toBe(1);
    else expect(tries).toBeGreaterThan(1);
    expect(await charges()).toEqual(chargesOf(tries));
  });
});

/** A shop in whose transactions callers compete, and their notes: which job was created for what. */
interface Counters {
  readonly service: Pick<Service<(typeof till)["jobs"], never>, "reads" | "ref">;
  /** What the callers are started with, around their names. */
  readonly parameters: (name: string) => readonly string[];
  notes(): Promise<readonly (readonly [what: string, job: string])[]>;
}

async function sqliteCounters(): Promise<Counters> {
  const { service, db, url } = await openTill(
    "CREATE TABLE notes (what TEXT, caller TEXT, job TEXT)",
  );
  return {
    service,
    parameters: (name) => [url, name],
    notes: async () => db.prepare("SELECT what, job FROM notes").raw().all() as [string, string][],
  };
}

async function postgresCounters(): Promise<Counters> {
  const { service, pool, url, schema } = await openPostgresTill();
  const table = `${schema}.notes`;
  await pool.query(`CREATE TABLE ${table} (what text, caller text, job text)`);
  const query = { text: `SELECT what, job FROM ${table}`, rowMode: "array" } as const;
  return {
    service,
    parameters: (name) => [url, name, table],
    notes: async () => (await pool.query(query)).rows as unknown as [string, string][],
  };
}

describe.for([
  { name: "sqlite", open: sqliteCounters },
  { name: "postgres", open: postgresCounters },
])("keys of transactions in two processes on $name", ({ open }) => {
  it("let each job in once, and none that was rolled back", async () => {
    const { service, parameters, notes: read } = await open();
    const callers = ["one", "two"].map((name) =>
      startChild("../transactions/till-caller.ts", parameters(name)),
    );
    await Promise.all(callers.map((caller) => caller.said("ready")));
    for (const caller of callers) caller.tell("go");
    for (const caller of callers) {
      expect(await caller.ended).toMatchObject({ code: 0, errors: "" });
    }
    const notes = await read();
    expect(notes).toHaveLength(30);
    expect(new Set(notes.map(([what]) => what)).size).toBe(30);
    const counts = await service.reads.counts().orThrow();
    expect(counts.map(({ state, count }) => [state, count])).toEqual([
      ["pending", 15],
      ["pending", 15],
    ]);
    for (const [, job] of notes) expect((await service.ref(job).get()).isOk()).toBe(true);
  });
});
