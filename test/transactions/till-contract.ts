// The service of the tests with real processes: charges, whose holds are short because their workers are killed,
// and jobs with a key of which there may be one.
import type { Database } from "better-sqlite3";
import { defineJob, defineService, type HandlerOf } from "millrace";
import type { PoolClient } from "pg";
import { z } from "zod";

export const till = defineService("till", {
  charge: defineJob({
    payload: z.object({ orderId: z.string(), mode: z.enum(["atomic", "staged"]) }),
    leaseMs: 1_000,
    // On a slow machine a lease can lapse while its worker lives, so that there are tries to spare.
    retry: { maxTries: 10, backoff: [0] },
  }),
  open: defineJob({
    payload: z.object({ counter: z.string() }),
    keyConcurrency: { key: ["/counter"] },
  }),
});

/** Where a process can be killed, in the order of an attempt. */
export const steps = [
  "prepared",
  "working",
  "written",
  "settled, not committed",
  "committed",
] as const;

export type Step = (typeof steps)[number];

interface Charge {
  readonly orderId: string;
  readonly mode: "atomic" | "staged";
}

/** The shop's own table, through whatever client. */
export interface Ledger<Tx> {
  /** Reads before the work, and writes what commits with the outcome where the client can keep a transaction open. */
  prepare(tx: Tx, charge: Charge, tries: number): unknown;
  write(tx: Tx, orderId: string, tries: number): void | Promise<void>;
}

/** Writes a charge into the shop's own table, in the transaction that completes the job. */
export function charging<Tx>(
  ledger: Ledger<Tx>,
  reached: (step: Step) => void,
): HandlerOf<typeof till.jobs.charge, typeof till.jobs, Tx> {
  return async ({ payload, prepare, complete, tries }) => {
    const { mode, orderId } = payload;
    await prepare({ mode }, ({ tx }) => ledger.prepare(tx, payload, tries));
    reached("prepared");
    await Promise.resolve();
    reached("working");
    return complete(({ tx }) => {
      const writing = ledger.write(tx, orderId, tries);
      if (!(writing instanceof Promise)) return reached("written");
      return writing.then(() => reached("written"));
    });
  };
}

/** The table in the file of the jobs. */
export const sqliteLedger: Ledger<Database> = {
  prepare: (tx) => tx.prepare("SELECT count(*) FROM charges").get(),
  write: (tx, orderId, tries) => {
    tx.prepare("INSERT INTO charges VALUES (?, ?)").run(orderId, tries);
  },
};

/** The table beside the jobs in PostgreSQL. */
export function postgresLedger(table: string): Ledger<PoolClient> {
  const write = async (tx: PoolClient, orderId: string, tries: number) => {
    await tx.query(`INSERT INTO ${table} VALUES ($1, $2)`, [orderId, tries]);
  };
  return {
    prepare: async (tx, { orderId, mode }, tries) => {
      if (mode === "atomic") await write(tx, `${orderId}-prepared`, tries);
    },
    write,
  };
}
