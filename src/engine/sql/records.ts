/**
 * Records in SQL: one row each, compared and set by version.
 */
import type { Json } from "../../core/json.js";
import { type RecordWrite, recordId, type StoredRecord, type SwapOutcome } from "../record.js";
import { int, intOrNull, optional, type SqlRow, type Step, text } from "./statement.js";
import type { Transaction } from "./transaction.js";

const selectRecord =
  "SELECT id, version, body, expires_at FROM records WHERE id = ? AND (expires_at IS NULL OR expires_at > ?)";

/** A record from its row. */
export function recordFromRow(row: SqlRow): StoredRecord {
  return {
    id: text(row, "id"),
    version: int(row, "version"),
    body: JSON.parse(text(row, "body")) as Json,
    ...optional<"expiresAt", number>("expiresAt", intOrNull(row, "expires_at")),
  };
}

/** Reads a record that has not run out. */
export function* readRecord(now: number, id: string): Step<StoredRecord | null> {
  const [row] = yield { sql: selectRecord, values: [id, now], planned: true };
  return row ? recordFromRow(row) : null;
}

/** The record that stands in the way of a write, `null` if the expected one is missing, or `"free"`. */
export function* blockingRecord(
  tx: Transaction,
  write: RecordWrite,
): Step<StoredRecord | null | "free"> {
  yield* tx.dialect.lockRecord(write.id);
  const current = yield* readRecord(tx.now, write.id);
  return (current?.version ?? 0) === write.expect ? "free" : current;
}

/** Writes a record that was found at the expected version. */
export function* writeRecord(tx: Transaction, write: RecordWrite): Step<void> {
  // A queue may have been unpaused, so workers should look again.
  if (write.id.startsWith(recordId.queues)) tx.woke.ready = true;
  if (write.body === null) {
    yield { sql: "DELETE FROM records WHERE id = ?", values: [write.id] };
    return;
  }
  yield {
    sql: `INSERT INTO records (id, version, body, expires_at) VALUES (?,?,?,?)
      ON CONFLICT (id) DO UPDATE SET version = excluded.version, body = excluded.body, expires_at = excluded.expires_at`,
    values: [write.id, write.expect + 1, JSON.stringify(write.body), write.expiresAt ?? null],
  };
}

/** Compares and sets one record. */
export function* swapRecord(tx: Transaction, write: RecordWrite): Step<SwapOutcome> {
  const current = yield* blockingRecord(tx, write);
  if (current !== "free") return { swapped: false, current };
  yield* writeRecord(tx, write);
  return { swapped: true, version: write.body === null ? 0 : write.expect + 1 };
}
