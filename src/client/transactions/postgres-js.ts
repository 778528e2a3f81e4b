/**
 * postgres.js: the `sql` that `sql.begin` hands out.
 */
import { TransactionRefused } from "../../engine/errors.js";
import type { AsyncTransaction, StatementRow } from "../../engine/transaction.js";
import type { AsyncTransactionSource } from "./source.js";
import { hasMethod, type Members } from "./transaction-client.js";

type Unsafe = { unsafe(text: string, values: unknown[]): PromiseLike<readonly object[]> };

/** Whether a client is one of postgres.js. */
export function isPostgresJs(client: Members): client is Members & Unsafe {
  return typeof client === "function" && hasMethod(client, "unsafe");
}

/** The transaction behind a `sql` of postgres.js. */
export function postgresJsTransaction(
  sql: Members & Unsafe,
): AsyncTransaction | TransactionRefused {
  // Inside a transaction there are savepoints; a reserved connection can be released.
  if (!hasMethod(sql, "savepoint") && !hasMethod(sql, "release")) {
    const message =
      "This sql of postgres.js is a pool, which has no transaction: give the one that sql.begin(async (sql) => …) hands out.";
    return new TransactionRefused({ reason: "not_open", message });
  }
  return {
    kind: "async",
    client: sql,
    execute: async (text, values) =>
      (await sql.unsafe(text, [...values])) as readonly StatementRow[],
  };
}

/** The `sql` that `begin` hands out, whichever way it is declared. */
type TransactionOf<Sql> = Sql extends {
  begin: {
    (work: (sql: infer Transaction) => never): unknown;
    (options: string, work: never): unknown;
  };
}
  ? Transaction
  : never;

/**
 * Handler transactions of postgres.js.
 *
 * @example
 * const service = await connect(shop, { url, transactions: postgresJsTransactions(postgres(url)) });
 */
export function postgresJsTransactions<Sql extends { begin(work: never): unknown }>(
  sql: Sql,
): AsyncTransactionSource<TransactionOf<Sql>> {
  return { kind: "async", run: (work) => sql.begin(work as never) as ReturnType<typeof work> };
}
