/**
 * The log beyond its single events, and the lanes that jobs line up in.
 */
import { readLater } from "./read.js";
import { bodyIndex, type EventValues } from "./rows.js";
import { int, type Step } from "./statement.js";
import type { Dialect, Transaction } from "./transaction.js";

/** What the key's policy did with a create becomes known only when it is stored, so it is put into the event's text. */
export function withPolicy(values: EventValues, policy: object): EventValues {
  const body = JSON.parse(String(values[bodyIndex])) as object;
  return values.with(bodyIndex, JSON.stringify({ ...body, policy })) as unknown as EventValues;
}

/** What makes a lane. */
export interface LaneParts {
  readonly service: string;
  readonly queue: string;
  readonly type: string;
  readonly typeVersion: number;
}

/** The number of a lane; `null` where none of its jobs has come yet. */
export function* findLane({ service, queue, type, typeVersion }: LaneParts): Step<number | null> {
  const [row] = yield {
    sql: "SELECT id FROM lanes WHERE service = ? AND queue = ? AND type = ? AND type_version = ?",
    values: [service, queue, type, typeVersion],
  };
  return row ? int(row, "id") : null;
}

/** The number of a lane, which it gets when its first job comes. */
export function* laneNumber(tx: Transaction, lane: LaneParts): Step<number> {
  const name = `${lane.service}/${lane.queue}/${lane.type}@${lane.typeVersion}`;
  const known = tx.lanes.get(name);
  if (known !== undefined) return known;
  const values = [lane.service, lane.queue, lane.type, lane.typeVersion];
  yield {
    sql: "INSERT INTO lanes (service, queue, type, type_version) VALUES (?,?,?,?) ON CONFLICT DO NOTHING",
    values,
  };
  const number = yield* findLane(lane);
  if (number === null) throw new Error(`Lane ${name} was not stored.`);
  tx.lanes.set(name, number);
  return number;
}

/** The log of a store in which every event has a row of its own. */
export const ownRows = {
  readLater,
  *keepLogOfLease() {},
  *keepLogOfEnd() {},
  removeLog: removeEvents,
} satisfies Partial<Dialect>;

/** Removes the rows of a job's events but the `deleted` one. */
export function* removeEvents(n: number): Step<void> {
  yield { sql: "DELETE FROM events WHERE job = ? AND name <> 'deleted'", values: [n] };
}
