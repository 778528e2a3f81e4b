/**
 * What there is for a claim to do, asked for all of its lanes at once: most lanes have nothing in line most of the time,
 * and an idle worker's claim should cost one statement.
 */
import { promoteDue, sweepSlots } from "../sql/slim.js";
import { arrays, type Step } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";

/** What is known of some lanes at the moment. */
interface Outlook {
  /** The lanes that have jobs in line. */
  readonly inLine: ReadonlySet<number>;
  /** The lanes that have jobs which wait for a time that has come. */
  readonly due: readonly number[];
  /** When the next slot of an ended job lapses. */
  readonly lapsesAt: number;
  /** When there may be something new to do because of time alone. */
  readonly nextAt: number | null;
}

const select = `SELECT l.value, EXISTS (SELECT 1 FROM ready WHERE lane = l.value),
    (SELECT min(run_at) FROM waiting WHERE lane = l.value AND cause = 'due'),
    (SELECT min(until) FROM slots WHERE until IS NOT NULL)
  FROM json_each(?) AS l`;

type LaneRow = readonly [
  lane: number,
  isInLine: 0 | 1,
  dueAt: number | null,
  lapsesAt: number | null,
];

function* look(now: number, lanes: readonly number[]): Step<Outlook> {
  const inLine = new Set<number>();
  const due: number[] = [];
  let lapsesAt = Number.POSITIVE_INFINITY;
  let next = Number.POSITIVE_INFINITY;
  const rows = yield { sql: select, values: [JSON.stringify(lanes)], raw: true };
  for (const [lane, isInLine, dueAt, lapse] of arrays<LaneRow>(rows)) {
    if (isInLine === 1) inLine.add(lane);
    if (dueAt !== null && dueAt <= now) due.push(lane);
    lapsesAt = lapse ?? lapsesAt;
    next = Math.min(next, dueAt ?? next, lapsesAt);
  }
  return { inLine, due, lapsesAt, nextAt: Number.isFinite(next) ? next : null };
}

/** Looks at some lanes when what time has brought has been done. */
export function* lookInTime(tx: Transaction, lanes: readonly number[]): Step<Outlook> {
  const first = yield* look(tx.now, lanes);
  const isLapsed = first.lapsesAt <= tx.now;
  if (!isLapsed && first.due.length === 0) return first;
  if (isLapsed) yield* sweepSlots(tx);
  for (const lane of first.due) yield* promoteDue(tx, lane);
  return yield* look(tx.now, lanes);
}
