/**
 * Keys where a projection must obey: jobs that start without a slot that was reserved for them, and jobs that take
 * along, when they are removed, what a key knows from them alone.
 */
import type { EventOf } from "../../core/event.js";
import { recordKey } from "../sql/create.js";
import { isTakeover } from "../sql/place.js";
import { readLater } from "../sql/read.js";
import { bodyIndex, type EventValues } from "../sql/rows.js";
import {
  freeSlot,
  keyScope,
  type Slim,
  slimColumns,
  slimFromRow,
  slotsTaken,
  wait,
} from "../sql/slim.js";
import { int, type SqlValue, type Step, text } from "../sql/statement.js";
import type { ProjectionTransaction } from "./transaction.js";

const lastReserved = `SELECT ${slimColumns
  .split(", ")
  .map((column) => `r.${column}`)
  .join(", ")} FROM slots s JOIN jobs j ON j.id = s.job
  JOIN ready r ON r.lane = j.lane AND r.rank = -j.priority AND r.run_at = j.run_at AND r.id = j.id AND r.token + 1 = s.token
  WHERE s.scope = ? ORDER BY r.rank DESC, r.run_at DESC, r.id DESC LIMIT 1`;

/** A job has started whose turn it was not: while its key has more slots taken than it has, the last in line waits again. */
export function* withdrawSlots(tx: ProjectionTransaction, key: string, max: number): Step<void> {
  const scope = keyScope(key);
  while ((yield* slotsTaken(scope, tx.now, max + 1)) > max) {
    const [row] = yield { sql: lastReserved, values: [scope] };
    if (!row) return;
    const slim = slimFromRow(row);
    yield { sql: deleteReady, values: readyPlace(slim) };
    yield freeSlot(scope, slim.id, slim.token + 1);
    yield* wait(slim, "key");
  }
}

/** Takes a claimable job out of its line. */
export const deleteReady =
  "DELETE FROM ready WHERE lane = ? AND rank = ? AND run_at = ? AND id = ?";

/** The values of that statement. */
export function readyPlace({ lane, rank, runAt, id }: Slim): readonly SqlValue[] {
  return [lane, rank, runAt, id];
}

/** How often the lapse of a job's lease let another take over its key. */
export function* countTakeovers(n: number): Step<number> {
  const log = yield* readLater(n);
  return log.filter(wasTakeover).length;
}

function wasTakeover(values: EventValues): boolean {
  const [name, , , , , , , , actor] = values;
  if (!String(actor).startsWith("keeper:")) return false;
  const { token } = JSON.parse(String(values[bodyIndex])) as { readonly token?: number };
  return isTakeover({ name: String(name), lapse: token !== undefined });
}

const newestOfKey = `SELECT j.n, j.created_at, j.created_body, l.service, l.type FROM jobs j JOIN lanes l ON l.id = j.lane
  WHERE j.key_hash = ? ORDER BY j.n DESC LIMIT 1`;

/**
 * A job was removed, and its log with it: its key is now what the jobs that are left say, as it would be
 * after a rebuild, which does not find the removed one any more.
 */
export function* forgetOfKey(
  tx: ProjectionTransaction,
  { n, key }: { readonly n: number; readonly key: string },
  takeovers: number,
): Step<void> {
  const [newest] = yield { sql: newestOfKey, values: [key] };
  if (!newest) {
    yield { sql: "DELETE FROM keys WHERE hash = ?", values: [key] };
    return;
  }
  if (takeovers > 0)
    yield {
      sql: "UPDATE keys SET takeovers = takeovers - ? WHERE hash = ?",
      values: [takeovers, key],
    };
  if (int(newest, "n") > n) return;
  const body = JSON.parse(text(newest, "created_body")) as Pick<
    EventOf<"created">,
    "key" | "policy"
  >;
  if (!body.key) return;
  const names = { service: text(newest, "service"), type: text(newest, "type") };
  const at = { ...tx, now: int(newest, "created_at") };
  yield* recordKey(at, names, body.key, body.policy ?? { outcome: "accepted" });
}
