/**
 * What can go wrong with a store, each with a sentence that names the remedy.
 */
import { TaggedError } from "better-result";

type StoreFault = { readonly message: string; readonly url: string };

/** The store cannot be reached or opened. */
export class StoreUnavailable extends TaggedError("StoreUnavailable")<StoreFault> {}

/** The store has no room; nothing of the refused call was stored. */
export class StoreFull extends TaggedError("StoreFull")<StoreFault> {}

/** The store may not be written. */
export class StoreReadOnly extends TaggedError("StoreReadOnly")<StoreFault> {}

/** The store's file is damaged or is not a store at all. */
export class StoreCorrupt extends TaggedError("StoreCorrupt")<StoreFault> {}

/** The store was written by a newer version of Millrace. */
export class StoreTooNew extends TaggedError("StoreTooNew")<
  StoreFault & { readonly found: number; readonly known: number }
> {}

/** Others held the store for longer than a call waits. */
export class StoreBusy extends TaggedError("StoreBusy")<StoreFault> {}

/** The engine was closed before the call was carried out. */
export class StoreClosed extends TaggedError("StoreClosed")<StoreFault> {}

/** Something else failed inside the store's driver. */
export class StoreFailed extends TaggedError("StoreFailed")<
  StoreFault & { readonly code?: string }
> {}

/** A text that is no cursor of the store's feed. */
export class InvalidCursor extends TaggedError("InvalidCursor")<{ readonly message: string }> {}

/** The error of a text that is no cursor of a store's feed. */
export function invalidCursor(cursor: string): InvalidCursor {
  const message = `"${cursor}" is not a cursor of this store's feed; use one that an earlier answer gave.`;
  return new InvalidCursor({ message });
}

/** The store cannot take part in transactions of the caller's. */
export class TransactionsNotSupported extends TaggedError("TransactionsNotSupported")<StoreFault> {}

/** The caller's transaction cannot be used. Nothing was done in it. */
export class TransactionRefused extends TaggedError("TransactionRefused")<{
  readonly message: string;
  /**
   * `not_open`: no transaction is open on the client, or it ended too early; `closed`: the connection is;
   * `read_only`: it may not write; `another_store`: it leads to another database than the jobs';
   * `not_permitted`: its user lacks rights on the store's tables; `not_synchronous`: it cannot be used by a synchronous call.
   */
  readonly reason:
    | "not_open"
    | "closed"
    | "read_only"
    | "another_store"
    | "not_permitted"
    | "not_synchronous";
}> {}

/** The error of a transaction that would be rolled back by its commit. */
export function transactionFailed(): TransactionRefused {
  const message =
    "A statement of the transaction has failed, so that it cannot commit and everything in it is rolled back; let that failure through, or put a savepoint around the statement.";
  return new TransactionRefused({ reason: "not_open", message });
}

/** Another transaction was in the way of the caller's: roll it back and run it again. */
export class TransactionConflict extends TaggedError("TransactionConflict")<{
  readonly message: string;
  /** The driver's code, such as `40P01` or `SQLITE_BUSY`. */
  readonly code?: string;
}> {}

/** What can go wrong with a transaction of the caller's besides the store itself. */
export type TransactionError = TransactionsNotSupported | TransactionRefused | TransactionConflict;

/** Whether a caught value is about a transaction of the caller's. */
export function isTransactionError(value: unknown): value is TransactionError {
  return (
    value instanceof TransactionsNotSupported ||
    value instanceof TransactionRefused ||
    value instanceof TransactionConflict
  );
}

/** The error of a store that cannot take part in transactions of the caller's. */
export function transactionsNotSupported(url: string): TransactionsNotSupported {
  const message = `The store ${url} cannot take part in a transaction of yours; use a file: or postgres: store, create jobs through an outbox (connect(contract, { url, outbox: "postgres://…" })), or leave tx out.`;
  return new TransactionsNotSupported({ url, message });
}

/** Any fault of a store. */
export type StoreError =
  | StoreUnavailable
  | StoreFull
  | StoreReadOnly
  | StoreCorrupt
  | StoreTooNew
  | StoreBusy
  | StoreClosed
  | StoreFailed;

const storeErrors = [
  StoreUnavailable,
  StoreFull,
  StoreReadOnly,
  StoreCorrupt,
  StoreTooNew,
  StoreBusy,
  StoreClosed,
  StoreFailed,
] as const;

/** Whether a caught value is a fault of the store. */
export function isStoreError(value: unknown): value is StoreError {
  return storeErrors.some((kind) => value instanceof kind);
}
