// A shop whose handlers charge orders in transactions of their own client: of better-sqlite3 as it is,
// and of one that answers later.
import Database from "better-sqlite3";
import {
  type AsyncTransactionSource,
  betterSqliteTransactions,
  connect,
  defineJob,
  defineService,
  type Service,
  type SyncTransactionSource,
} from "millrace";
import { onTestFinished } from "vitest";
import { z } from "zod";
import { callerTransaction } from "#millrace/client/transactions/recognise.js";
import { sqliteStore } from "./shop-file.js";

const order = z.object({ orderId: z.string() });

export const contract = defineService("shop", {
  charge: defineJob({
    payload: order,
    result: z.object({ paid: z.boolean() }),
    continuations: ["ship"],
    retry: { maxTries: 3, backoff: [0] },
    timeoutMs: 5_000,
  }),
  ship: defineJob({ payload: order }),
  forgotten: defineJob({ payload: order, retention: { completed: 0 } }),
});

export type Db = Database.Database;
type Shop = Service<(typeof contract)["jobs"], Db>;

/** better-sqlite3 as if it answered later: transactions stay open while work is awaited. */
function laterTransactions(db: Db): AsyncTransactionSource<Db> {
  return {
    kind: "async",
    run: async (work) => {
      db.exec("BEGIN IMMEDIATE");
      try {
        const value = await work(db);
        db.exec("COMMIT");
        return value;
      } catch (error) {
        db.exec("ROLLBACK");
        throw error;
      }
    },
    enlist: (client) => {
      const tx = callerTransaction(client);
      if (tx instanceof Error) throw tx;
      return tx;
    },
  };
}

export const sources: readonly {
  readonly name: string;
  make(db: Db): AsyncTransactionSource<Db> | SyncTransactionSource<Db>;
}[] = [
  { name: "better-sqlite3", make: betterSqliteTransactions },
  { name: "a client that answers later", make: laterTransactions },
];

/** A service whose handlers have transactions, and a table of the shop's own to write to in them. */
export async function openShop(
  source: (typeof sources)[number],
  options: { readonly graceMs?: number } = {},
) {
  const { url, path } = await sqliteStore();
  const db = new Database(path);
  onTestFinished(() => void db.close());
  const warnings: string[] = [];
  const log = (_fields: object, message: string) => void warnings.push(message);
  const service: Shop = await connect(contract, {
    url,
    transactions: source.make(db),
    logger: { info: () => {}, warn: log, error: log },
    ...options,
  });
  onTestFinished(() => service.stop());
  db.exec("CREATE TABLE charges (id TEXT PRIMARY KEY, tries INTEGER)");
  const charge = (tx: Db, id: string, tries: number) =>
    void tx.prepare("INSERT INTO charges VALUES (?, ?)").run(id, tries);
  const charges = () =>
    db.prepare("SELECT id, tries FROM charges ORDER BY id").raw().all() as [
      id: string,
      tries: number,
    ][];
  return { service, db, charge, charges, warnings };
}

/** A job for the shop. */
export const payload = { orderId: "o-1" };
