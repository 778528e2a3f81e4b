/**
 * Leaves out detours: a row that a batch of events puts down and takes away again is never written. A job that starts
 * and ends within a batch needs no lease, and one that was created in it no place in line. What is held back is written
 * before anything that speaks of the same tables, and at the end.
 */
import { insertLease, insertReady } from "../sql/slim.js";
import type { Statement, Step } from "../sql/statement.js";
import { deleteReady } from "./keys.js";
import { deleteLease, selectKnown } from "./known.js";

/** Where the id of the row stands among the values of each statement that is held back, or that takes such a row away. */
const puts = new Map([
  [insertReady, 1],
  [insertLease, 0],
]);
const takes = new Map([
  [deleteReady, { put: insertReady, id: 3 }],
  [deleteLease, { put: insertLease, id: 0 }],
]);

/** Whether a statement speaks of these tables, by its text: there are few. Jobs that are new to the batch have no row held back. */
const concerned = new Map<string, boolean>([[selectKnown, false]]);

function concerns({ sql }: Statement): boolean {
  let concern = concerned.get(sql);
  if (concern === undefined) {
    concern = /\b(?:ready|leases)\b/.test(sql);
    concerned.set(sql, concern);
  }
  return concern;
}

/** Carries out steps without their detours. */
export function* withoutDetours<Result>(steps: Step<Result>): Step<Result> {
  const held = new Map([...puts.keys()].map((put) => [put, new Map<unknown, Statement>()]));
  let next = steps.next();
  while (!next.done) {
    const statement = next.value;
    const place = puts.get(statement.sql);
    if (place !== undefined) {
      held.get(statement.sql)?.set(statement.values[place], statement);
      next = steps.next([]);
      continue;
    }
    const taken = takes.get(statement.sql);
    if (taken) {
      const wasHeld = held.get(taken.put)?.delete(statement.values[taken.id]) === true;
      next = steps.next(wasHeld ? [] : yield statement);
      continue;
    }
    if (concerns(statement)) yield* release(held);
    next = steps.next(yield statement);
  }
  yield* release(held);
  return next.value;
}

function* release(held: ReadonlyMap<string, Map<unknown, Statement>>): Step<void> {
  for (const rows of held.values()) {
    for (const statement of rows.values()) yield statement;
    rows.clear();
  }
}
