/**
 * The writing operations of a projection by name. Each item is one transaction's worth, all or nothing.
 */
import type { StoredRecord } from "../record.js";
import { writeRecord } from "../sql/records.js";
import type { Step } from "../sql/statement.js";
import { withoutDetours } from "./detours.js";
import type { RenewedLease } from "./entry.js";
import { clear, enroll, type LeadAsk, lead, mayMirror, type Owner, readHeader } from "./header.js";
import { applyEntries } from "./obey.js";
import { type Entries, lastOf } from "./packed.js";
import type { ProjectionTransaction } from "./transaction.js";

/** Entries to apply to the projection of a log. */
export interface ApplyAsk {
  readonly origin: string;
  /** The position that the entries follow on, as far as the caller knows. */
  readonly after: number;
  readonly entries: Entries;
}

/** A record as the log's own store has it; `null` once it is removed. */
export interface MirroredRecord {
  readonly id: string;
  readonly record: StoredRecord | null;
}

/** What somebody who leads mirrors. */
export interface Mirrored<Item> {
  readonly leader: string;
  readonly items: readonly Item[];
}

/** What each writing operation is asked and what it answers. */
export interface Writes {
  enroll: { readonly ask: Owner; readonly answer: Owner };
  /** The position; `null` when the projection has become that of another log. */
  apply: { readonly ask: ApplyAsk; readonly answer: number | null };
  renew: { readonly ask: Mirrored<RenewedLease>; readonly answer: boolean };
  records: { readonly ask: Mirrored<MirroredRecord>; readonly answer: boolean };
  /** Whether who asked leads; `null` when the projection has become that of another log. */
  lead: { readonly ask: LeadAsk; readonly answer: boolean | null };
  clear: { readonly ask: null; readonly answer: null };
}

const writers: {
  readonly [Kind in keyof Writes]: (
    tx: ProjectionTransaction,
    ask: Writes[Kind]["ask"],
  ) => Step<Writes[Kind]["answer"]>;
} = { enroll, apply, renew, records, lead, clear };

/** Carries out one write. */
export function performWrite<Kind extends keyof Writes>(
  tx: ProjectionTransaction,
  kind: Kind,
  ask: Writes[Kind]["ask"],
): Step<Writes[Kind]["answer"]> {
  return writers[kind](tx, ask);
}

/** Applies the entries behind the position. Nothing is applied where the position went back: somebody has cleared. */
function* apply(
  tx: ProjectionTransaction,
  { origin, after, entries }: ApplyAsk,
): Step<number | null> {
  const header = yield* readHeader(tx.lock);
  if (header.owner?.origin !== origin) return null;
  const last = lastOf(entries);
  if (header.position < after || last <= header.position) return header.position;
  const ignored = yield* withoutDetours(applyEntries(tx, header.position, entries));
  yield {
    sql: "UPDATE projection SET position = ?, ignored = ignored + ?",
    values: [last, ignored],
  };
  tx.woke.ready = true;
  return last;
}

/** Extends leases, and the slots of ended jobs that their workers still hold. The newest renewal stands. */
function* renew(
  tx: ProjectionTransaction,
  { leader, items }: Mirrored<RenewedLease>,
): Step<boolean> {
  if (!(yield* mayMirror(tx, leader))) return false;
  for (const { jobId, token, until, at } of items) {
    tx.memory.jobs.delete(jobId);
    const [lease] = yield {
      sql: "UPDATE leases SET until = ?, heartbeat_at = ? WHERE id = ? AND token = ? AND heartbeat_at <= ? RETURNING n",
      values: [until, at, jobId, token, at],
    };
    if (lease) continue;
    yield {
      sql: "UPDATE slots SET until = ? WHERE job = ? AND token = ? AND until IS NOT NULL AND until > ? AND until < ?",
      values: [until, jobId, token, at, until],
    };
  }
  return true;
}

function* records(
  tx: ProjectionTransaction,
  { leader, items }: Mirrored<MirroredRecord>,
): Step<boolean> {
  if (!(yield* mayMirror(tx, leader))) return false;
  for (const { id, record } of items) {
    const { version = 1, body = null, expiresAt } = record ?? {};
    const expiry = expiresAt === undefined ? null : { expiresAt };
    yield* writeRecord(tx, { id, expect: version - 1, body, ...expiry });
  }
  return true;
}
