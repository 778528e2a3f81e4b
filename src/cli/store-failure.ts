/**
 * Faults of a store as failures of a command.
 */
import { isStoreError, StoreBusy, StoreUnavailable } from "../engine/errors.js";
import { Failure, messageOf } from "./failure.js";

/** The failure that something thrown while a store was opened or asked stands for. */
export function storeFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  const isAway = error instanceof StoreUnavailable || error instanceof StoreBusy;
  const code = isStoreError(error) ? { code: error._tag } : {};
  return new Failure(isAway ? "unavailable" : "failure", messageOf(error), code);
}
