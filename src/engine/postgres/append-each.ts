/**
 * Changes one after the other in one transaction, each as the first that is looked at.
 */
import type { AppendOutcome, Change } from "../engine.js";
import { appendChange } from "../sql/append.js";
import { flatChange } from "../sql/change.js";
import type { Step } from "../sql/statement.js";
import type { PostgresTransaction } from "./transaction.js";

/** Appends changes; gives what became of each. */
export function* appendEach(
  tx: PostgresTransaction,
  changes: readonly Change[],
): Step<readonly AppendOutcome[]> {
  const outcomes: AppendOutcome[] = [];
  for (const change of changes) outcomes.push(yield* appendChange(tx, flatChange(change)));
  return outcomes;
}
