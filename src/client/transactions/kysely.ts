/**
 * Kysely: the transaction that `db.transaction().execute` hands out, or a controlled one.
 */
import { TransactionRefused } from "../../engine/errors.js";
import type { AsyncTransaction, StatementRow } from "../../engine/transaction.js";
import type { AsyncTransactionSource } from "./source.js";
import { hasMethod, type Members } from "./transaction-client.js";

interface KyselyClient {
  readonly isTransaction: boolean;
  withoutPlugins(): {
    executeQuery(query: object): Promise<{ readonly rows: readonly object[] }>;
  };
}

/** Whether a client is one of Kysely. */
export function isKysely(client: Members): client is Members & KyselyClient {
  return (
    hasMethod(client, "executeQuery") &&
    hasMethod(client, "withoutPlugins") &&
    typeof client.isTransaction === "boolean"
  );
}

/** The transaction of Kysely. */
export function kyselyTransaction(client: KyselyClient): AsyncTransaction | TransactionRefused {
  if (!client.isTransaction) {
    const message =
      "This Kysely has no transaction open: give the trx that db.transaction().execute(async (trx) => …) hands out.";
    return new TransactionRefused({ reason: "not_open", message });
  }
  return {
    kind: "async",
    client,
    execute: async (sql, values) => {
      // Plugins would rename the columns of the store's own tables.
      const { rows } = await client.withoutPlugins().executeQuery(compiled(sql, values));
      return rows as readonly StatementRow[];
    },
  };
}

/** A query as `CompiledQuery.raw` of Kysely makes it. */
function compiled(sql: string, parameters: readonly unknown[]): object {
  return {
    sql,
    parameters,
    query: { kind: "RawNode", sqlFragments: [sql], parameters: [] },
    queryId: { queryId: "millrace" },
  };
}

/**
 * Handler transactions of Kysely.
 *
 * @example
 * const service = await connect(shop, { url, transactions: kyselyTransactions(db) });
 */
export function kyselyTransactions<Transaction>(db: {
  transaction(): {
    execute<Value>(work: (trx: Transaction) => Promise<Value>): Promise<Value>;
  };
}): AsyncTransactionSource<Transaction> {
  return { kind: "async", run: (work) => db.transaction().execute(work) };
}
