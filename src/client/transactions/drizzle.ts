/**
 * Drizzle on PostgreSQL: the transaction that `db.transaction` hands out, together with Drizzle's own `sql`,
 * because only that can make a query of a text.
 */
import type { StatementRow, StatementValue } from "../../engine/transaction.js";
import type { AsyncTransactionSource } from "./source.js";
import type { SqlExecutor } from "./transaction-client.js";

/** What is used of Drizzle's `sql`. `Query` is what it makes. */
export interface DrizzleSql<Query> {
  (strings: TemplateStringsArray, ...values: unknown[]): Query;
  raw(text: string): Query;
  join(queries: Query[]): Query;
}

/** What is used of a Drizzle transaction. */
interface DrizzleTransaction<Query> {
  execute(query: Query): PromiseLike<unknown>;
}

/** One executor for each transaction, because the executor tells creates on one connection from those on another. */
const executors = new WeakMap<object, SqlExecutor>();

/**
 * A transaction of Drizzle as a create takes it.
 *
 * @example
 * import { sql } from "drizzle-orm";
 * await db.transaction(async (tx) => {
 *   await tx.insert(orders).values({ id });
 *   await service.jobs.ship.create({ id }, { tx: fromDrizzle(tx, sql) }).orThrow();
 * });
 */
export function fromDrizzle<Query>(
  tx: DrizzleTransaction<Query>,
  sql: DrizzleSql<Query>,
): SqlExecutor {
  const known = executors.get(tx);
  if (known !== undefined) return known;
  const executor: SqlExecutor = {
    executeSql: async (text, values) => {
      const query = queryOf(sql, text, values);
      // Drizzle wraps what the driver says, and the store goes by the driver's codes.
      const answer = await Promise.resolve(tx.execute(query)).catch((error: Error) => {
        throw error.cause ?? error;
      });
      // The drivers below Drizzle give the rows themselves, or an object that has them.
      return (Array.isArray(answer) ? answer : (answer as { rows: object[] }).rows) as object[];
    },
  };
  executors.set(tx, executor);
  return executor;
}

/** Each placeholder stands once and in order, so that what lies between them joins with the values. */
function queryOf<Query>(
  sql: DrizzleSql<Query>,
  text: string,
  values: readonly StatementValue[],
): Query {
  const [first = "", ...rest] = text.split(/\$\d+/);
  const parts = [sql.raw(first)];
  for (const [index, part] of rest.entries()) parts.push(sql`${values[index]}`, sql.raw(part));
  return sql.join(parts);
}

/**
 * Handler transactions of Drizzle.
 *
 * @example
 * const service = await connect(shop, { url, transactions: drizzleTransactions(db, sql) });
 */
export function drizzleTransactions<Query, Transaction extends DrizzleTransaction<Query>>(
  db: { transaction<Value>(work: (tx: Transaction) => Promise<Value>): Promise<Value> },
  sql: DrizzleSql<Query>,
): AsyncTransactionSource<Transaction> {
  return {
    kind: "async",
    run: (work) => db.transaction(work),
    enlist: (tx) => {
      const executor = fromDrizzle(tx, sql);
      return {
        kind: "async",
        client: executor,
        execute: async (text, values) =>
          (await executor.executeSql(text, values)) as readonly StatementRow[],
      };
    },
  };
}
