/**
 * A transaction that is begun now and ended later, made of a source that runs work from beginning to end.
 */
import { callerTransaction } from "../client/transactions/recognise.js";
import {
  type AsyncTransactionSource,
  abandonedTransaction,
  type TransactionSource,
} from "../client/transactions/source.js";
import type { CallerTransaction } from "../engine/transaction.js";

/** A transaction of a handler that stays open while it works. */
export interface OpenTransaction {
  /** The user's own client. */
  readonly client: unknown;
  /** Resolves when everything is durable; rejects when it is not. */
  commit(): Promise<void>;
  /** Undoes everything. An abandoned handler may still use its client, which nobody else may get then. */
  rollback(isAbandoned?: boolean): Promise<void>;
}

/** What a source's work fails with to be rolled back. */
const rolledBack = new Error("The transaction is rolled back.");

/** Begins a transaction. */
export function begin(source: AsyncTransactionSource<unknown>): Promise<OpenTransaction> {
  return new Promise((resolve, reject) => {
    const ended = source.run(
      (client) =>
        new Promise<void>((commit, fail) => {
          resolve({
            client,
            commit: () => {
              commit();
              return ended;
            },
            rollback: async (isAbandoned) => {
              fail(isAbandoned ? abandonedTransaction : rolledBack);
              await ended.catch(() => {});
            },
          });
        }),
    );
    // What fails before the work begins is the beginning's; later it is told by commit.
    ended.catch(reject);
  });
}

/** The user's client as the store uses it. */
export function enlist(source: TransactionSource<unknown>, client: unknown): CallerTransaction {
  const tx = source.enlist ? source.enlist(client) : callerTransaction(client);
  if (tx instanceof Error) throw tx;
  return tx;
}
