/**
 * The log's own time. What time brings (jobs become due, slots of ended jobs lapse) is done before the next event
 * that is later, so that the view follows from the log alone, in whatever batches it comes and however late.
 */
import { promoteDue, sweepSlots } from "../sql/slim.js";
import { int, intOrNull, type Step } from "../sql/statement.js";
import type { ProjectionTransaction } from "./transaction.js";

/** Learns when time brings something next. */
export function* lookAhead(tx: ProjectionTransaction): Step<void> {
  const [row] = yield {
    sql: `SELECT (SELECT min(due) FROM (SELECT (SELECT min(w.run_at) FROM waiting w WHERE w.lane = l.id AND w.cause = 'due') AS due
        FROM lanes l) AS times) AS due, (SELECT min(until) FROM slots WHERE until IS NOT NULL) AS lapse`,
    values: [],
  };
  const times = [row && intOrNull(row, "due"), row && intOrNull(row, "lapse")];
  tx.nextAt = Math.min(...times.map((time) => time ?? Number.POSITIVE_INFINITY));
}

/** Brings the projection to the time of the next event. */
export function* passTime(tx: ProjectionTransaction): Step<void> {
  while (tx.nextAt <= tx.now) {
    yield* sweepSlots(tx);
    for (const lane of yield { sql: "SELECT id FROM lanes ORDER BY id", values: [] })
      yield* promoteDue(tx, int(lane, "id"));
    yield* lookAhead(tx);
  }
}

/** Remembers a time at which there will be something to do. */
export function expect(tx: ProjectionTransaction, at: number): void {
  if (at > tx.now && at < tx.nextAt) tx.nextAt = at;
}
