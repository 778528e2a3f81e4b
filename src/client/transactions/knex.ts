/**
 * Knex: the transaction that `knex.transaction` hands out.
 */
import { TransactionRefused } from "../../engine/errors.js";
import type { AsyncTransaction } from "../../engine/transaction.js";
import { type PgClient, pgExecution } from "./node-postgres.js";
import type { AsyncTransactionSource } from "./source.js";
import { hasMethod, type Members } from "./transaction-client.js";

interface KnexClient {
  readonly isTransaction?: boolean;
  isCompleted?(): boolean;
  readonly client: { acquireConnection(): Promise<PgClient> };
}

/** Whether a client is one of Knex. */
export function isKnex(client: Members): client is Members & KnexClient {
  const { client: own } = client;
  const connects =
    typeof own === "object" && own !== null && hasMethod(own as Members, "acquireConnection");
  return connects && hasMethod(client, "raw");
}

/** The transaction of Knex. */
export function knexTransaction(trx: KnexClient): AsyncTransaction | TransactionRefused {
  if (trx.isTransaction !== true) {
    const message =
      "This knex has no transaction open: give the trx that knex.transaction(async (trx) => …) hands out.";
    return new TransactionRefused({ reason: "not_open", message });
  }
  if (trx.isCompleted?.() === true) {
    const message = "The transaction of Knex has ended; create the job before it commits.";
    return new TransactionRefused({ reason: "closed", message });
  }
  return {
    kind: "async",
    client: trx,
    // Its connection is asked, because raw() would take every "?" for a binding and rename columns as configured.
    execute: async (sql, values) =>
      pgExecution(await trx.client.acquireConnection()).execute(sql, values),
  };
}

/** The transaction that `transaction` hands out, whichever way it is declared. */
type TransactionOf<Knex> = Knex extends {
  transaction: {
    (config?: never): Promise<infer Transaction>;
    (work: never, config?: never): unknown;
  };
}
  ? Transaction
  : never;

/**
 * Handler transactions of Knex.
 *
 * @example
 * const service = await connect(shop, { url, transactions: knexTransactions(knex({ client: "pg", connection: url })) });
 */
export function knexTransactions<Knex extends { transaction(work: never): unknown }>(
  knex: Knex,
): AsyncTransactionSource<TransactionOf<Knex>> {
  return {
    kind: "async",
    run: (work) => knex.transaction(work as never) as ReturnType<typeof work>,
  };
}
