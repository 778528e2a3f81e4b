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
