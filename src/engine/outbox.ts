/**
 * An outbox: a table in the caller's own database, where creates are put down in the caller's transaction
 * until they are published to a store that cannot take part in it.
 */
import type { CallerTransaction, SyncTransaction } from "./transaction.js";

/** Something to be published for a service. */
export interface OutboxEntry {
  readonly service: string;
  /** JSON. */
  readonly body: string;
}

/** An entry as it lies in the outbox. Its number is its own for good, and grows with each entry. */
export interface OutboxRow {
  readonly n: number;
  readonly body: string;
}

/** Where creates wait to be published. */
export interface Outbox {
  /** How errors and logs name it: without user and password. */
  readonly url: string;

  /** Makes the table if there is none. Idempotent, and safe when many processes start at once. */
  provision(): Promise<void>;

  /**
   * Puts entries down in a transaction of the caller's: they are there when it commits, and never were when it
   * rolls back. A failing call leaves the transaction as it was. Throws `TransactionRefused` for one that cannot be
   * used, and `TransactionConflict` for one that must be run again.
   */
  put(entries: readonly OutboxEntry[], tx: CallerTransaction): Promise<void>;

  /** As `put`, done when the call returns. */
  putSync(entries: readonly OutboxEntry[], tx: SyncTransaction): void;

  /** The rows of a service that are committed, by number, from the first one after a number. */
  take(service: string, after: number, limit: number): Promise<readonly OutboxRow[]>;

  /** Removes rows. Those that are gone already do no harm. */
  remove(numbers: readonly number[]): Promise<void>;

  /** Calls back when entries were committed, here or in another process. Hints may be lost. Gives the way to stop. */
  wake(on: () => void): () => void;

  close(): Promise<void>;
}
