/**
 * Continuations that cannot be stored. What is wrong with most of them, another try cannot help either: the job then ends
 * as `failed` unless its handler makes it good.
 */
import { InvalidBlocker, InvalidOption, InvalidPayload } from "../client/errors.js";
import type { Hold } from "./hold.js";

/** Remembers why a continuation was refused, where the reason lasts. Gives the fault back, to be thrown. */
export function refusedContinuation(hold: Hold, fault: Error): Error {
  if (isLasting(fault)) hold.lastingFault = fault;
  return fault;
}

/** Another process may have the keys, and a blocker may come to be there, or end; its type stays, and so does a circle. */
function isLasting(fault: Error): boolean {
  if (fault instanceof InvalidBlocker) return fault.reason === "cycle" || fault.reason === "type";
  return fault instanceof InvalidPayload || fault instanceof InvalidOption;
}
