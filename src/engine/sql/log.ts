/**
 * Writing to the log, and the lanes that jobs line up in.
 */
import { bodyIndex, type EventValues, eventColumns } from "./rows.js";
import { int, type Step, type Transaction } from "./statement.js";

/** Inserts an event: its position, its job's number, and its values. */
export const insertEvent = `INSERT INTO events (seq, job, ${eventColumns}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)`;

/** Appends an event of the job `n` to the log; gives its position. */
export function* writeEvent(tx: Transaction, n: number, values: EventValues): Step<number> {
  tx.seq += 1;
  yield { sql: insertEvent, values: [tx.seq, n, ...values] };
  return tx.seq;
}

/** Appends the `created` event, whose own position becomes the job's number. */
export function* writeCreated(
  tx: Transaction,
  values: EventValues,
  policy: object | null,
): Step<number> {
  tx.seq += 1;
  yield {
    sql: insertEvent,
    values: [tx.seq, tx.seq, ...(policy ? withPolicy(values, policy) : values)],
  };
  return tx.seq;
}

/** What the key's policy did with a create becomes known only here, so it is put into the event's text. */
function withPolicy(values: EventValues, policy: object): EventValues {
  const body = JSON.parse(String(values[bodyIndex])) as object;
  return values.with(bodyIndex, JSON.stringify({ ...body, policy })) as unknown as EventValues;
}

/** The number of a lane, which it gets when its first job comes. */
export function* laneNumber(
  tx: Transaction,
  lane: {
    readonly service: string;
    readonly queue: string;
    readonly type: string;
    readonly typeVersion: number;
  },
): Step<number> {
  const name = `${lane.service}/${lane.queue}/${lane.type}@${lane.typeVersion}`;
  const known = tx.lanes.get(name);
  if (known !== undefined) return known;
  const values = [lane.service, lane.queue, lane.type, lane.typeVersion];
  yield {
    sql: "INSERT INTO lanes (service, queue, type, type_version) VALUES (?,?,?,?) ON CONFLICT DO NOTHING",
    values,
  };
  const [row] = yield {
    sql: "SELECT id FROM lanes WHERE service = ? AND queue = ? AND type = ? AND type_version = ?",
    values,
  };
  if (!row) throw new Error(`Lane ${name} was not stored.`);
  tx.lanes.set(name, int(row, "id"));
  return int(row, "id");
}
