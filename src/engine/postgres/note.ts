/**
 * Storing notes. Whoever changes a job has its slim row, or the row of its end; a note only looks at it, and many may at once.
 * So a note shares the row with other notes, and that of a lease also with renewals and the handler's own transaction, and
 * keeps it from being taken away until it has committed: all readers of the feed see notes and changes of a job in the same
 * order.
 */
import type { Change } from "../engine.js";
import { freeConfirmed, heldNotes, storeNote } from "../sql/append.js";
import { flatChange } from "../sql/change.js";
import { arrays, type Step, text } from "../sql/statement.js";
import { inReady } from "./job-lock.js";
import { promoteKeys } from "./keys.js";
import { array, list } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** Whether a note was stored, or the fold would ignore it, or another transaction is about to change its job. */
export type NoteAnswer = "stored" | "ignored" | "locked";

/** A note, and whether it has waited for others long enough. */
export interface PatientNote {
  readonly note: Change;
  readonly isLate: boolean;
}

const lookAtLeases = `SELECT l.id FROM leases l WHERE l.id = ANY(${array("text")})`;
const shareLeases = `${lookAtLeases} FOR KEY SHARE OF l SKIP LOCKED`;

/** Whether only who holds the lease of a job may write this note. */
export function isOfHolder({ event }: Change): boolean {
  return heldNotes.has(event.name);
}

/** What a batch of notes found of the leases of its jobs. */
interface Leases {
  readonly shared: ReadonlySet<string>;
  /** Leases that another transaction keeps for itself. */
  readonly locked: ReadonlySet<string>;
}

/** Stores notes of those who hold the jobs, each unless the fold would ignore it or its job is locked. Nobody is waited for. */
export function* storeHeldNotes(
  tx: PostgresTransaction,
  notes: readonly PatientNote[],
): Step<readonly NoteAnswer[]> {
  const { shared, locked } = yield* sharedLeases(notes.filter(({ isLate }) => !isLate));
  const answers: NoteAnswer[] = [];
  for (const { note, isLate } of notes) {
    const { id } = note.job;
    // A lease that came since is looked at again: one that the note does not share may be taken away beside it.
    if (!isLate && locked.has(id)) answers.push("locked");
    else if (!isLate && !shared.has(id)) answers.push("ignored");
    else answers.push((yield* storeNote(tx, flatChange(note))) ? "stored" : "ignored");
  }
  return answers;
}

function* sharedLeases(notes: readonly PatientNote[]): Step<Leases> {
  const left = new Set(notes.map(({ note }) => note.job.id));
  const shared = left.size === 0 ? [] : yield* idsOf(shareLeases, left);
  for (const id of shared) left.delete(id);
  const locked = left.size === 0 ? [] : yield* idsOf(lookAtLeases, left);
  return { shared: new Set(shared), locked: new Set(locked) };
}

function* idsOf(sql: string, wanted: ReadonlySet<string>): Step<readonly string[]> {
  const rows = yield { sql, values: [list([...wanted])], planned: true };
  return rows.map((row) => text(row, "id"));
}

/**
 * Shares the row that says where a job is, which is one of these, and tells whether there is such a job. That of a job which
 * waits will be changed by the note. The end of one may be changed without being taken away.
 */
const shareRow = `WITH j AS MATERIALIZED (SELECT n, id, lane, priority, run_at FROM jobs WHERE id = ?),
    l AS (SELECT l.n FROM j JOIN leases l ON l.id = j.id FOR KEY SHARE OF l SKIP LOCKED),
    d AS (SELECT d.n FROM j JOIN ended d ON d.n = j.n FOR SHARE OF d SKIP LOCKED),
    w AS (SELECT w.n FROM j JOIN waiting w ON w.n = j.n FOR NO KEY UPDATE OF w SKIP LOCKED),
    r AS (SELECT r.n FROM j JOIN ready r ON ${inReady} FOR NO KEY UPDATE OF r SKIP LOCKED)
  SELECT (SELECT count(*) FROM j) AS jobs, (SELECT count(*) FROM (
    SELECT n FROM l UNION ALL SELECT n FROM d UNION ALL SELECT n FROM w UNION ALL SELECT n FROM r) AS s) AS shared`;

/**
 * Stores a note that others write, too. Nobody is waited for, neither for the job nor for its key: whoever retries it by hand
 * has the key and waits for its notes.
 */
export function* storeOtherNote(
  tx: PostgresTransaction,
  { note, isLate }: PatientNote,
): Step<NoteAnswer> {
  const change = flatChange(note);
  // One that shares its lease has no such row, and is given one before this is asked again.
  if (!isLate && (yield* isOutOfReach(change.id))) return "locked";
  const isStored = yield* storeNote(tx, change);
  // The slots of a job that was deleted by force are still held by its worker, which confirms like this, too.
  if (change.name === "staleCompletionIgnored") {
    const keys = yield* freeConfirmed(tx, change.id, change.expectToken ?? 0);
    if (keys.length > 0) yield* promoteKeys(tx, keys);
  }
  return isStored ? "stored" : "ignored";
}

/** Whether there is such a job, and its row cannot be shared. */
function* isOutOfReach(id: string): Step<boolean> {
  type Row = readonly [jobs: number, shared: number];
  const [row] = arrays<Row>(yield { sql: shareRow, values: [id], raw: true, planned: true });
  const [jobs = 0, shared = 0] = row ?? [];
  return Number(jobs) > 0 && Number(shared) === 0;
}
