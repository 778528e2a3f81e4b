/**
 * Notes. Whoever changes a job has its slim row; a note only looks at it, and many may at once. So a note shares the row
 * with other notes, renewals and the handler's own transaction, and keeps it from being taken away until it has committed:
 * all readers of the feed see notes and changes of a job in the same order.
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
export function isOfHolder({ note }: PatientNote): boolean {
  return heldNotes.has(note.event.name);
}

/** Stores notes, each unless the fold would ignore it or its job is locked. Jobs are locked without waiting for anybody. */
export function* storeNotes(
  tx: PostgresTransaction,
  notes: readonly PatientNote[],
): Step<readonly NoteAnswer[]> {
  const early = notes.filter(({ isLate }) => !isLate);
  const others = early.filter((note) => !isOfHolder(note));
  const locked = new Set(yield* lockedOf(leases, shareLeases, early));
  for (const id of yield* lockedOf(ends, shareEnds, others)) locked.add(id);
  const answers: NoteAnswer[] = [];
  for (const { note, isLate } of notes) {
    if (!isLate && locked.has(note.job.id)) answers.push("locked");
    else answers.push((yield* noteChange(tx, flatChange(note))) ? "stored" : "ignored");
  }
  return answers;
}

/** Shares the rows of jobs; gives the jobs whose rows another transaction keeps for itself. */
function* lockedOf(
  look: string,
  share: string,
  notes: readonly PatientNote[],
): Step<readonly string[]> {
  if (notes.length === 0) return [];
  const wanted = new Set(notes.map(({ note }) => note.job.id));
  for (const row of yield { sql: share, values: [list([...wanted])] })
    wanted.delete(text(row, "id"));
  if (wanted.size === 0) return [];
  return (yield { sql: look, values: [list([...wanted])] }).map((row) => text(row, "id"));
}
