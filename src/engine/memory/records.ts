/**
 * Records: compared and set, one by one or together with an event.
 */
import { type RecordWrite, recordId, type StoredRecord, type SwapOutcome } from "../record.js";
import { copy, type Store } from "./store.js";

/** What checking a set of writes gave: the versions to be stored, or the record in the way. */
export type StagedWrites =
  | { readonly ok: true; readonly records: ReadonlyMap<string, StoredRecord | null> }
  | { readonly ok: false; readonly current: StoredRecord | null };

/** A record that has not run out. */
export function readRecord(store: Store, id: string): StoredRecord | null {
  const record = store.records.get(id);
  if (record === undefined) return null;
  return record.expiresAt !== undefined && record.expiresAt <= store.now() ? null : record;
}

/** Whether an operator has paused a queue. */
export function bodyIsPaused(record: StoredRecord | null): boolean {
  const body = record?.body;
  return typeof body === "object" && body !== null && "paused" in body && body.paused === true;
}

/** Checks writes that must take effect together, without storing anything yet. */
export function stageWrites(store: Store, writes: readonly RecordWrite[]): StagedWrites {
  const staged = new Map<string, StoredRecord | null>();
  for (const write of writes) {
    const current = staged.has(write.id)
      ? (staged.get(write.id) ?? null)
      : readRecord(store, write.id);
    if ((current?.version ?? 0) !== write.expect)
      return { ok: false, current: current && copy(current) };
    staged.set(write.id, written(write));
  }
  return { ok: true, records: staged };
}

/** Stores what was staged. */
export function storeStaged(store: Store, records: ReadonlyMap<string, StoredRecord | null>): void {
  for (const [id, record] of records) {
    if (record === null) store.records.delete(id);
    else store.records.set(id, record);
    // A queue may have been unpaused, so workers should look again.
    if (id.startsWith(recordId.queues)) store.hints.add("ready");
  }
}

/** Compares and sets one record on its own. */
export function swapRecord(store: Store, write: RecordWrite): SwapOutcome {
  const staged = stageWrites(store, [write]);
  if (!staged.ok) return { swapped: false, current: staged.current };
  storeStaged(store, staged.records);
  return { swapped: true, version: write.body === null ? 0 : write.expect + 1 };
}

function written(write: RecordWrite): StoredRecord | null {
  if (write.body === null) return null;
  const record = { id: write.id, version: write.expect + 1, body: copy(write.body) };
  return write.expiresAt === undefined ? record : { ...record, expiresAt: write.expiresAt };
}
