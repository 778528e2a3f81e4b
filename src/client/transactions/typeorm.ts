/**
 * TypeORM: the manager that `dataSource.transaction` hands out, or a query runner with a transaction.
 */
import { TransactionRefused } from "../../engine/errors.js";
import type { AsyncTransaction, StatementRow } from "../../engine/transaction.js";
import type { AsyncTransactionSource } from "./source.js";
import { hasMethod, type Members } from "./transaction-client.js";

interface QueryRunner {
  readonly isTransactionActive: boolean;
  readonly isReleased: boolean;
  query(
    text: string,
    values: unknown[],
    structured: true,
  ): Promise<{ readonly records?: readonly object[] }>;
}

/** A query runner, or an entity manager with or without one. */
type TypeOrmClient = QueryRunner | { readonly queryRunner?: QueryRunner };

/** Whether a client is one of TypeORM. */
export function isTypeOrm(client: Members): client is Members & TypeOrmClient {
  return (
    hasMethod(client, "query") &&
    (typeof client.isTransactionActive === "boolean" || hasMethod(client, "getRepository"))
  );
}

/** The transaction of TypeORM. */
export function typeOrmTransaction(client: TypeOrmClient): AsyncTransaction | TransactionRefused {
  const runner = "isTransactionActive" in client ? client : client.queryRunner;
  if (runner?.isReleased === true) {
    const message = "The query runner of TypeORM is released; create the job before that.";
    return new TransactionRefused({ reason: "closed", message });
  }
  if (runner?.isTransactionActive !== true) {
    const message =
      "TypeORM has no transaction open here: give the manager that dataSource.transaction(async (manager) => …) hands out.";
    return new TransactionRefused({ reason: "not_open", message });
  }
  return {
    kind: "async",
    client: runner,
    execute: async (sql, values) => {
      const { records = [] } = await runner.query(sql, [...values], true);
      return records as readonly StatementRow[];
    },
  };
}

/** The manager that `transaction` hands out, whichever way it is declared. */
type ManagerOf<DataSource> = DataSource extends { readonly manager: infer Manager }
  ? Manager
  : never;

/**
 * Handler transactions of TypeORM.
 *
 * @example
 * const service = await connect(shop, { url, transactions: typeOrmTransactions(dataSource) });
 */
export function typeOrmTransactions<
  DataSource extends { readonly manager: unknown; transaction(work: never): Promise<unknown> },
>(dataSource: DataSource): AsyncTransactionSource<ManagerOf<DataSource>> {
  return {
    kind: "async",
    run: (work) => dataSource.transaction(work as never) as ReturnType<typeof work>,
  };
}
