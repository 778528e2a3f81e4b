/**
 * The cursor of a feed whose events have positions, as text: a whole number, counted from 1.
 */
import { invalidCursor } from "./errors.js";

/** The position that a cursor names; 0, before the first event, without one. */
export function feedPosition(cursor: string | null): number {
  if (cursor === null) return 0;
  const position = /^\d{1,16}$/.test(cursor) ? Number(cursor) : Number.NaN;
  if (Number.isSafeInteger(position)) return position;
  throw invalidCursor(cursor);
}
