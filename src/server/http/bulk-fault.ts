/**
 * What becomes of a fault of the store in a request about many jobs. Where nothing was done it is the answer; where some was,
 * the answer counts that, and the log says what was wrong with the others.
 */
import { type EachOutcome, firstFault } from "../../client/commands.js";
import type { RouteRequest } from "./route.js";

/** Tells of the first fault among outcomes, if there is one, and whether there was. */
export function tellFault(
  { backend, requestId }: Pick<RouteRequest, "backend" | "requestId">,
  outcomes: readonly EachOutcome[],
  done: number,
): boolean {
  const error = firstFault(outcomes);
  if (error === undefined) return false;
  if (done === 0) throw error;
  backend.logger.warn({ error, requestId }, "The store failed at some jobs of a request.");
  return true;
}
