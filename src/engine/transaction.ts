/**
 * The caller's own transaction, as an engine sees it: something that runs one statement at a time
 * on the connection that the caller's data is written with.
 */

/** A value that can be bound to a placeholder. */
export type StatementValue = string | number | null;

/** A row as the caller's client gives it. */
export type StatementRow = Readonly<Record<string, unknown>>;

/** Runs statements inside a transaction that the caller began and will commit or roll back. */
export type CallerTransaction = AsyncTransaction | SyncTransaction;

/** A transaction whose client answers later, as every client of PostgreSQL does. */
export interface AsyncTransaction {
  readonly kind: "async";
  /** The client itself, which tells one connection from another. */
  readonly client: object;
  /** Runs one statement with placeholders `$1`, `$2`, … and gives its rows. */
  execute(sql: string, values: readonly StatementValue[]): Promise<readonly StatementRow[]>;
}

/** A transaction of a synchronous client, as better-sqlite3 is one. */
export interface SyncTransaction {
  readonly kind: "sync";
  /** The client itself, which tells one connection from another. */
  readonly client: object;
  /** Whether a transaction is open at this moment. */
  isOpen(): boolean;
  /** Runs one statement with placeholders `?` and gives its rows. */
  execute(sql: string, values: readonly StatementValue[]): readonly StatementRow[];
}
