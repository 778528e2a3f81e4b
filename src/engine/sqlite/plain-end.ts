/**
 * Storing plain outcomes.
 */
import type { AppendOutcome } from "../engine.js";
import { insertEnded } from "../sql/place.js";
import type { PlainEnd } from "../sql/plain.js";
import { freeKeySlot } from "../sql/slim.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";
import { insertEvent } from "./dialect.js";

const takeLease = `DELETE FROM leases WHERE id = ? AND version = ? AND token = ?
  RETURNING n, lane, started_at, key, capped`;

type EndedLease = readonly [
  n: number,
  lane: number,
  startedAt: number,
  key: string | null,
  capped: number,
];

const appended: AppendOutcome = { outcome: "appended" };
const conflict: AppendOutcome = { outcome: "conflict" };

/** Ends a job under its token: the lease goes, the event and the end are written, the slot is passed on. */
export function* endPlain(tx: Transaction, item: PlainEnd): Step<AppendOutcome> {
  const [id, expected, token, detail, aggregate, name, version, run, tries, state, previous, at] =
    item;
  const rows = yield { sql: takeLease, values: [id, expected, token], raw: true };
  const lease = arrays<EndedLease>(rows)[0];
  if (!lease) return conflict;
  const [n, lane, startedAt, key, capped] = lease;
  tx.seq += 1;
  const event: SqlValue[] = [tx.seq, n, name, version, run, tries, state, previous, at];
  event.push(item[12], item[13], item[14]);
  yield { sql: insertEvent, values: event };
  yield {
    sql: insertEnded,
    values: [n, lane, state, version, run, tries, token, startedAt, at, at, detail, aggregate],
  };
  tx.woke.ended = true;
  if (capped === 1) tx.woke.ready = true;
  if (key !== null) yield* freeKeySlot(tx, key, id, token);
  return appended;
}
