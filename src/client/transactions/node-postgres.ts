/**
 * node-postgres: a client with `BEGIN` behind it. A pool has no transaction.
 */
import { TransactionRefused, transactionFailed } from "../../engine/errors.js";
import type { AsyncTransaction, StatementRow } from "../../engine/transaction.js";
import { type AsyncTransactionSource, abandonedTransaction } from "./source.js";
import { hasMethod, type Members } from "./transaction-client.js";

/** What is used of a node-postgres client. */
export interface PgClient {
  query(
    text: string,
    values?: unknown[],
  ): Promise<{ readonly rows: readonly object[]; readonly command?: string }>;
}

/** A client that a pool lends. */
interface PooledClient extends PgClient {
  release(error?: Error | boolean): void;
}

/** Whatever tells of a lost connection by an event. */
interface Emitter {
  on(event: "error", listener: () => void): unknown;
}

/** Whether a client is one of node-postgres, or a pool of them. */
export function isNodePostgres(client: Members): client is Members & PgClient {
  return hasMethod(client, "query") && (hasMethod(client, "escapeIdentifier") || isPool(client));
}

function isPool(client: Members): boolean {
  return hasMethod(client, "connect") && typeof client.totalCount === "number";
}

/** The transaction that is open on a node-postgres client. */
export function nodePostgresTransaction(
  client: Members & PgClient,
): AsyncTransaction | TransactionRefused {
  if (isPool(client)) {
    const message =
      "A node-postgres pool has no transaction: take a client with pool.connect(), begin there, and give the client.";
    return new TransactionRefused({ reason: "not_open", message });
  }
  // Newer versions know from the server whether a transaction is open ("T"), idle ("I") or failed ("E"). A failed one
  // is told by the server, because a create before this one may be about to undo its own failure.
  const status = hasMethod(client, "getTransactionStatus") ? client.getTransactionStatus() : "T";
  if (status === "I") {
    const message =
      'No transaction is open on the node-postgres client: await client.query("BEGIN") before.';
    return new TransactionRefused({ reason: "not_open", message });
  }
  return pgExecution(client);
}

/** Runs statements on a node-postgres connection. */
export function pgExecution(client: PgClient): AsyncTransaction {
  return {
    kind: "async",
    client,
    execute: async (sql, values) => (await client.query(sql, [...values])).rows as StatementRow[],
  };
}

/** The client that a pool lends, whichever way its `connect` is declared. */
type ClientOf<Pool> = Pool extends {
  connect: { (): Promise<infer Client>; (callback: never): void };
}
  ? Client
  : Pool extends { connect: () => Promise<infer Client> }
    ? Client
    : PgClient;

/**
 * Handler transactions on clients of a node-postgres pool.
 *
 * @example
 * const service = await connect(shop, { url, transactions: pgTransactions(new Pool({ connectionString: url })) });
 */
export function pgTransactions<Pool extends { connect(): Promise<PgClient> }>(
  pool: Pool,
): AsyncTransactionSource<ClientOf<Pool>> {
  const heard = new WeakSet<object>();
  // A connection may be lost while nobody asks anything of it. Where nobody hears of that either, it ends the process, and
  // whoever uses the client is told by the next statement.
  const hear = (emitter: object) => {
    if (heard.has(emitter) || !hasMethod(emitter as Members, "on")) return;
    heard.add(emitter);
    (emitter as Emitter).on("error", () => {});
  };
  hear(pool);
  return {
    kind: "async",
    run: async (work) => {
      const client = (await pool.connect()) as PooledClient;
      hear(client);
      let broken: Error | undefined;
      try {
        await client.query("BEGIN");
        try {
          const value = await work(client as ClientOf<Pool>);
          const { command } = await client.query("COMMIT");
          // The server answers so where a statement has failed before: nothing is stored.
          if (command === "ROLLBACK") throw transactionFailed();
          return value;
        } catch (error) {
          // The server rolls back what was open on a connection that is closed, and takes nothing more from its handler.
          if (error === abandonedTransaction) broken = abandonedTransaction;
          else
            await client.query("ROLLBACK").catch((fault: Error) => {
              broken = fault;
            });
          throw error;
        }
      } finally {
        // A client that could not even roll back is not lent again, nor is one that somebody may still use.
        client.release(broken);
      }
    },
  };
}
