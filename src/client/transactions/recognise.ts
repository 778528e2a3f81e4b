/**
 * Recognises the caller's transaction by structure, and says what is wrong with one that cannot be used.
 */
import type { TransactionRefused } from "../../engine/errors.js";
import type { CallerTransaction, StatementRow } from "../../engine/transaction.js";
import { InvalidOption } from "../errors.js";
import { kindOf } from "../option-checks.js";
import { betterSqliteTransaction, isBetterSqlite } from "./better-sqlite.js";
import { isKnex, knexTransaction } from "./knex.js";
import { isKysely, kyselyTransaction } from "./kysely.js";
import { isNodePostgres, nodePostgresTransaction } from "./node-postgres.js";
import { isPostgresJs, postgresJsTransaction } from "./postgres-js.js";
import { isPrisma, prismaTransaction } from "./prisma.js";
import { hasMethod, type Members, type SqlExecutor } from "./transaction-client.js";
import { isTypeOrm, typeOrmTransaction } from "./typeorm.js";

const accepted =
  "a node-postgres client after BEGIN, the transaction of postgres.js, Kysely, Knex, TypeORM or Prisma, fromDrizzle(tx, sql), a better-sqlite3 connection, or an object with executeSql(text, values)";

/** The caller's transaction as the store uses it, or why it cannot. */
export function callerTransaction(
  client: unknown,
): CallerTransaction | InvalidOption | TransactionRefused {
  if ((typeof client !== "object" && typeof client !== "function") || client === null) {
    return unknownClient(`it is ${kindOf(client)}`);
  }
  const members = client as Members;
  if (isExecutor(members)) return executorTransaction(members);
  if (isBetterSqlite(members)) return betterSqliteTransaction(members);
  if (isKysely(members)) return kyselyTransaction(members);
  if (isKnex(members)) return knexTransaction(members);
  if (isPostgresJs(members)) return postgresJsTransaction(members);
  if (isPrisma(members)) return prismaTransaction(members);
  if (isTypeOrm(members)) return typeOrmTransaction(members);
  if (isNodePostgres(members)) return nodePostgresTransaction(members);
  if (hasMethod(members, "select") && hasMethod(members, "transaction")) {
    return unknownClient("it looks like Drizzle's, which needs fromDrizzle(tx, sql)");
  }
  return unknownClient("it is none of them");
}

function isExecutor(client: Members): client is Members & SqlExecutor {
  return hasMethod(client, "executeSql");
}

function executorTransaction(executor: SqlExecutor): CallerTransaction {
  return {
    kind: "async",
    client: executor,
    execute: async (sql, values) =>
      (await executor.executeSql(sql, values)) as readonly StatementRow[],
  };
}

/** The error of a synchronous call without options, and so without the transaction in which it answers. */
export function noTransaction(call: string): InvalidOption {
  const message = `${call} answers at once inside the transaction that it is given; give { tx }.`;
  return new InvalidOption({ field: "tx", message });
}

function unknownClient(what: string): InvalidOption {
  const message = `tx must be a transaction of your database client, and ${what}. Accepted are: ${accepted}.`;
  return new InvalidOption({ field: "tx", message });
}
