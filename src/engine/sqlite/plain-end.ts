/**
 * Storing plain outcomes, many in few statements.
 */
import type { AppendOutcome } from "../engine.js";
import { insertEnded } from "../sql/place.js";
import type { PlainEnd } from "../sql/plain.js";
import { freeKeySlot } from "../sql/slim.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";
import { insertEvent } from "./dialect.js";
import { insertMany } from "./insert.js";

const takeLease = `DELETE FROM leases WHERE id = ? AND version = ? AND token = ?
  RETURNING n, lane, started_at, key, capped`;

type EndedLease = readonly [
  n: number,
  lane: number,
  startedAt: number,
  key: string | null,
  capped: number,
];

const insertEvents = insertMany(insertEvent);
const insertEnds = insertMany(insertEnded);

const appended: AppendOutcome = { outcome: "appended" };
const conflict: AppendOutcome = { outcome: "conflict" };

/** Ends jobs under their tokens: the leases go, the events and the ends are written, the slots are passed on. */
export function* endPlain(
  tx: Transaction,
  items: readonly PlainEnd[],
): Step<readonly AppendOutcome[]> {
  const outcomes: AppendOutcome[] = [];
  const events: SqlValue[] = [];
  const ends: SqlValue[] = [];
  const keyed: { readonly key: string; readonly item: PlainEnd }[] = [];
  for (const item of items) {
    const [id, expected, token, detail, aggregate, name, version, run, tries, state, previous, at] =
      item;
    const rows = yield { sql: takeLease, values: [id, expected, token], raw: true };
    const lease = arrays<EndedLease>(rows)[0];
    outcomes.push(lease ? appended : conflict);
    if (!lease) continue;
    const [n, lane, startedAt, key, capped] = lease;
    tx.seq += 1;
    events.push(tx.seq, n, name, version, run, tries, state, previous, at);
    events.push(item[12], item[13], item[14]);
    ends.push(n, lane, state, version, run, tries, token, startedAt, at, at, detail, aggregate);
    if (capped === 1) tx.woke.ready = true;
    if (key !== null) keyed.push({ key, item });
  }
  yield* insertEvents(events);
  yield* insertEnds(ends);
  if (ends.length > 0) tx.woke.ended = true;
  for (const { key, item } of keyed) yield* freeKeySlot(tx, key, item[0], item[2]);
  return outcomes;
}
