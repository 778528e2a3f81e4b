/**
 * Carrying out operations, statement by statement.
 */
import type { SqlRow, Statement, Step } from "../sql/statement.js";

/** Runs one statement at a time. */
export interface Session {
  execute(statement: Statement): Promise<readonly SqlRow[]>;
}

/** Runs an operation on a session. */
export async function run<Value>(session: Session, step: Step<Value>): Promise<Value> {
  return runOn(session, step, step.next(noRows));
}

/** Goes on with an operation that has been begun. */
export async function runOn<Value>(
  session: Session,
  step: Step<Value>,
  first: Next<Value>,
): Promise<Value> {
  let next = first;
  while (!next.done) next = step.next(await session.execute(next.value));
  return next.value;
}

/** What an operation asks next, or gives in the end. */
type Next<Value> = ReturnType<Step<Value>["next"]>;

/** What an operation is sent to begin. */
export const noRows: readonly SqlRow[] = [];
