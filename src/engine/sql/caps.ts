/**
 * What a claim counts before it takes jobs: the places of the worker and those that cluster-wide caps leave.
 */
import type { ClaimLane } from "../engine.js";
import type { Queries } from "../query.js";
import { queueScope, typeScope } from "./slim.js";
import { int, type Step } from "./statement.js";
import type { Transaction } from "./transaction.js";

/** A lane that can be claimed from now, with the caps that it counts against. */
export interface OpenLane {
  readonly lane: ClaimLane;
  readonly number: number;
  readonly caps: readonly string[];
  /** How many more jobs the worker can take. */
  free: number;
}

/** How many more jobs each cap lets in during this claim. */
export type CapsLeft = Map<string, number>;

/** The version at the end of a lane's name. */
export function versionOf(lane: ClaimLane): number {
  return Number(lane.lane.slice(lane.lane.lastIndexOf("@") + 1));
}

/** The caps of a lane, each with the scope of its slots. */
export function capScopes({
  service,
  type,
  queue,
  typeMaxActive,
  queueMaxActive,
}: ClaimLane): readonly string[] {
  const scopes: string[] = [];
  if (typeMaxActive !== undefined) scopes.push(typeScope(service, type));
  if (queueMaxActive !== undefined) scopes.push(queueScope(service, queue));
  return scopes;
}

/** Counts what the lane's caps leave, once per scope, and tells which caps there are. */
export function* countCaps(
  tx: Transaction,
  lane: ClaimLane,
  left: CapsLeft,
): Step<readonly string[]> {
  const { service, type, queue, typeMaxActive, queueMaxActive } = lane;
  const caps: string[] = [];
  if (typeMaxActive !== undefined) {
    const scope = typeScope(service, type);
    caps.push(scope);
    if (!left.has(scope))
      left.set(scope, typeMaxActive - (yield* activeUnder(tx.now, scope, "type", [service, type])));
  }
  if (queueMaxActive !== undefined) {
    const scope = queueScope(service, queue);
    caps.push(scope);
    if (!left.has(scope))
      left.set(
        scope,
        queueMaxActive - (yield* activeUnder(tx.now, scope, "queue", [service, queue])),
      );
  }
  return caps;
}

/** How many jobs count against a cap: those that hold a lease, and ended ones whose worker has not confirmed. */
function* activeUnder(
  now: number,
  scope: string,
  column: "type" | "queue",
  names: readonly string[],
): Step<number> {
  const [row] = yield {
    sql: `SELECT (SELECT count(*) FROM held WHERE lane IN (SELECT id FROM lanes WHERE service = ? AND ${column} = ?))
      + (SELECT count(*) FROM slots WHERE scope = ? AND until > ?) AS active`,
    values: [...names, scope, now],
    planned: true,
  };
  return row ? int(row, "active") : 0;
}

/** How many places are held under the caps of a type and of a queue, whether or not there are any. */
export function* countHeld(
  now: number,
  { service, type, queue }: Queries["held"]["ask"],
): Step<Queries["held"]["answer"]> {
  return {
    type: yield* activeUnder(now, typeScope(service, type), "type", [service, type]),
    queue: yield* activeUnder(now, queueScope(service, queue), "queue", [service, queue]),
  };
}

/** Takes a place of the worker and one of each cap, if there is one. */
export function takePlace(open: OpenLane, left: CapsLeft): boolean {
  if (open.caps.some((scope) => (left.get(scope) ?? 0) <= 0)) return false;
  for (const scope of open.caps) left.set(scope, (left.get(scope) ?? 0) - 1);
  open.free -= 1;
  return true;
}
