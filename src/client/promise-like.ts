/**
 * What is waited for and what is a value. A promise of any library has a function `then`; data may have a member of that name.
 */
import { TransactionRefused } from "../engine/errors.js";

/** Whether a value must be waited for. */
export function isPromiseLike(value: unknown): value is PromiseLike<unknown> {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  return typeof (value as Partial<PromiseLike<unknown>>).then === "function";
}

/** Gives a value where nobody can wait, and refuses a promise with a message. */
export function atOnce<Value>(value: Value, message: string): Value {
  if (!isPromiseLike(value)) return value;
  // It is refused here, whatever it comes to.
  if (value instanceof Promise) value.catch(() => {});
  throw new TransactionRefused({ reason: "not_synchronous", message });
}
