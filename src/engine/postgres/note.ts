/**
 * Storing notes. Whoever changes a job has its slim row; a note only looks at it, and many may at once. So a note shares the
 * row with other notes, renewals and the handler's own transaction, and keeps it from being taken away until it has
 * committed: all readers of the feed see notes and changes of a job in the same order.
 */
import type { Change } from "../engine.js";
import { heldNotes, noteChange } from "../sql/append.js";
import { flatChange } from "../sql/change.js";
import { type Step, text } from "../sql/statement.js";
import { array, list } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** Whether a note was stored, or the fold would ignore it, or another transaction is about to change its job. */
export type NoteAnswer = "stored" | "ignored" | "locked";

/** A note, and whether it has waited for others long enough. */
export interface PatientNote {
  readonly note: Change;
  readonly isLate: boolean;
}

const ids = array("text");
const leases = `SELECT l.id FROM leases l WHERE l.id = ANY(${ids})`;
const ends = `SELECT j.id FROM jobs j JOIN ended d ON d.n = j.n WHERE j.id = ANY(${ids})`;

const shareLeases = `${leases} FOR KEY SHARE OF l SKIP LOCKED`;
const shareEnds = `${ends} FOR KEY SHARE OF d SKIP LOCKED`;

/** Whether only who holds the lease of a job may write this note. */
export function isOfHolder({ event }: Change): boolean {
  return heldNotes.has(event.name);
}

/** What a batch of notes found of the rows of its jobs. */
interface Rows {
  readonly shared: ReadonlySet<string>;
  /** Rows that another transaction keeps for itself. */
  readonly locked: ReadonlySet<string>;
}

/** Stores notes, each unless the fold would ignore it or its job is locked. Rows are shared without waiting for anybody. */
export function* storeNotes(
  tx: PostgresTransaction,
  notes: readonly PatientNote[],
): Step<readonly NoteAnswer[]> {
  const early = notes.flatMap(({ note, isLate }) => (isLate ? [] : [note]));
  const ofLeases = yield* shareRows(leases, shareLeases, early);
  const others = early.filter((note) => !isOfHolder(note));
  const ofEnds = yield* shareRows(ends, shareEnds, others);
  const answers: NoteAnswer[] = [];
  for (const { note, isLate } of notes) {
    const { id } = note.job;
    const isLocked = !isLate && (ofLeases.locked.has(id) || ofEnds.locked.has(id));
    // A lease that came since is looked at again: one that the note does not share may be taken away beside it.
    const isUnseen = !isLate && isOfHolder(note) && !ofLeases.shared.has(id);
    if (isLocked) answers.push("locked");
    else if (isUnseen) answers.push("ignored");
    else answers.push((yield* noteChange(tx, flatChange(note))) ? "stored" : "ignored");
  }
  return answers;
}

function* shareRows(look: string, share: string, notes: readonly Change[]): Step<Rows> {
  const left = new Set(notes.map(({ job }) => job.id));
  const shared = left.size === 0 ? [] : yield* idsOf(share, left);
  for (const id of shared) left.delete(id);
  const locked = left.size === 0 ? [] : yield* idsOf(look, left);
  return { shared: new Set(shared), locked: new Set(locked) };
}

function* idsOf(sql: string, wanted: ReadonlySet<string>): Step<readonly string[]> {
  const rows = yield { sql, values: [list([...wanted])], planned: true };
  return rows.map((row) => text(row, "id"));
}
