/**
 * What a caller may give as `tx`: the transaction of its own database client, told apart by structure,
 * so that no client is a dependency.
 */

/** A method of a client, whatever it takes. */
type Method = (...values: never[]) => unknown;

/**
 * Runs one statement, with placeholders `$1`, `$2`, …, and gives its rows. For clients that are not known by structure.
 * Creates that run at the same time in one transaction take the same executor, so that they wait for each other.
 */
export interface SqlExecutor {
  executeSql(
    text: string,
    values: readonly (string | number | null)[],
  ): Promise<readonly object[]> | readonly object[];
}

/**
 * A transaction of the caller's: a node-postgres client, a transaction of postgres.js, Kysely, Knex, TypeORM or Prisma,
 * a better-sqlite3 connection, or anything with `executeSql` (`fromDrizzle(tx, sql)` gives one).
 */
export type TransactionClient =
  | SqlExecutor
  /** node-postgres and TypeORM. */
  | { readonly query: Method }
  /** postgres.js. */
  | { readonly unsafe: Method }
  /** Kysely. */
  | { readonly executeQuery: Method }
  /** Knex. */
  | { readonly raw: Method }
  /** Prisma. */
  | { readonly $queryRawUnsafe: Method }
  /** better-sqlite3. */
  | { readonly prepare: Method; readonly inTransaction: boolean };

/** The members of a client, which may be a function with members as well as an object. */
export type Members = { readonly [name: string]: unknown };

/** The methods of which a client of a database has one at least. */
const clientMethods = [
  "executeSql",
  "query",
  "unsafe",
  "executeQuery",
  "raw",
  "$queryRawUnsafe",
  "prepare",
  "transaction",
] as const;

/** Whether a value looks like a client of a database, whether or not it can be used as one. */
export function isLikeClient(value: unknown): boolean {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  return clientMethods.some((name) => hasMethod(value as Members, name));
}

/** Whether a client has a method of this name. */
export function hasMethod<Name extends string>(
  client: Members,
  name: Name,
): client is Members & { readonly [N in Name]: (...values: unknown[]) => unknown } {
  return typeof client[name] === "function";
}
