/**
 * What the bodies of many routes share: names, times, pages, and how a stored time becomes text.
 */
import { z } from "zod";
import { integerMax, jobStates } from "../../../core/job.js";
import { type NameKind, nameRule } from "../../../core/names.js";
import { priorityMax, priorityMin } from "../../../core/order.js";
import { type Page, pageDefault, pageMax } from "../../../engine/query.js";
import { timeOf, timePattern } from "../../time-text.js";
import { stateAliases, stateOf } from "../state-aliases.js";

/** A time as text. */
export function timeText(ms: number): string {
  return new Date(ms).toISOString();
}

/** A time that a request names, in milliseconds once it is read. */
export const time = z
  .string()
  .regex(timePattern, "must be a time such as 2030-01-31T12:00:00Z (RFC 3339)")
  .refine((text) => timeOf(text) !== null, "is not a time of the calendar")
  .transform((text) => timeOf(text) ?? Number.NaN)
  .meta({ format: "date-time" });

/** A time in an answer. */
export const timeOut = z
  .string()
  .meta({ format: "date-time", examples: ["2030-01-31T12:00:00.000Z"] });

/** A name of some kind, as core takes it. */
export function name(kind: NameKind): z.ZodString {
  const { pattern, rule } = nameRule(kind);
  return z.string().regex(pattern, `must be ${rule}`);
}

/** Any JSON value. */
export const anyJson = z.unknown().meta({ description: "Any JSON value." });

/** The largest delay or duration that a request may name. */
export const durationMaxMs = 365 * 24 * 60 * 60 * 1_000;

/** A duration in milliseconds. */
export const durationMs = z.number().int().min(0).max(durationMaxMs);

/** The version of a job type. */
export const typeVersion = z.number().int().min(1).max(integerMax);

/** A priority: higher goes first. */
export const priority = z.number().int().min(priorityMin).max(priorityMax);

/** A state in an answer. */
export const stateOut = z.enum(jobStates);

/** States in a filter: core's, or a word of another system for one of them. */
export const statesIn = z
  .array(z.enum([...jobStates, ...(Object.keys(stateAliases) as (keyof typeof stateAliases)[])]))
  .min(1)
  .max(jobStates.length * 2)
  .transform((words) => [...new Set(words.map(stateOf))])
  .meta({
    description:
      "One or several, separated by commas or repeated. Words of other systems are accepted.",
  });

/** The parts of a page that a request names. */
export const pageQuery = {
  limit: z.number().int().min(1).max(pageMax).default(pageDefault),
  offset: z.number().int().min(0).max(Number.MAX_SAFE_INTEGER).optional(),
};

/** A place in a deep list. */
export const cursorQuery = z
  .string()
  .regex(/^\d{1,16}$/, "must be a cursor as an earlier answer gave it")
  .refine(
    (text) => Number.isSafeInteger(Number(text)),
    "must be a cursor as an earlier answer gave it",
  );

/** A page of entries. */
export function pageOf<Entry extends z.ZodType>(entry: Entry) {
  return z.object({
    entries: z.array(entry),
    count: z.number().int().meta({ description: "How many match in all." }),
    offset: z.number().int(),
    limit: z.number().int(),
    nextOffset: z.number().int().optional(),
    nextCursor: z.string().optional(),
  });
}

/** A list that is given whole. */
export function listOf<Entry extends z.ZodType>(entry: Entry) {
  return z.object({ entries: z.array(entry) });
}

/** How much of what one job has written one answer holds. */
const partMax = 1_000;
const partDefault = 100;

/** The part of what one job has written that a request names. */
export const partQuery = z.object({
  limit: z.number().int().min(1).max(partMax).default(partDefault),
  cursor: cursorQuery.optional(),
});

/** Part of what one job has written. */
export function partOf<Entry extends z.ZodType>(entry: Entry) {
  return z.object({ entries: z.array(entry), nextCursor: z.string().optional() });
}

/** An answer whose `Link` header leads on while there is more. */
interface LinkedAnswer {
  readonly status: 200;
  readonly body: unknown;
  readonly headers?: { readonly Link: string };
}

/** A part for the wire, with the link to the next one. What a job has written stays, so that a place in it is a cursor. */
export function partAnswer<Row>(
  rows: readonly Row[],
  request: { readonly path: string; readonly query: z.output<typeof partQuery> },
  bodyOf: (row: Row) => unknown,
): LinkedAnswer {
  const { path, query } = request;
  const from = Number(query.cursor ?? 0);
  const until = from + query.limit;
  const entries = rows.slice(from, until).map(bodyOf);
  if (until >= rows.length) return { status: 200, body: { entries } };
  const nextCursor = String(until);
  const Link = `<${path}?limit=${query.limit}&cursor=${nextCursor}>; rel="next"`;
  return { status: 200, body: { entries, nextCursor }, headers: { Link } };
}

/** A page for the wire, with the link to the next one. */
export function pageAnswer<Row>(
  page: Page<Row>,
  { path, search }: { readonly path: string; readonly search: string },
  bodyOf: (row: Row) => unknown,
): LinkedAnswer {
  const { entries, count, offset, limit, nextOffset, nextCursor } = page;
  const body = {
    ...{ entries: entries.map(bodyOf), count, offset, limit },
    ...(nextOffset === undefined ? null : { nextOffset }),
    ...(nextCursor === undefined ? null : { nextCursor }),
  };
  const next = new URLSearchParams(search);
  const byCursor = next.has("cursor") || nextOffset === undefined;
  if (byCursor && nextCursor !== undefined) {
    next.delete("offset");
    next.set("cursor", nextCursor);
  } else if (nextOffset === undefined) return { status: 200, body };
  else next.set("offset", String(nextOffset));
  return { status: 200, body, headers: { Link: `<${path}?${next}>; rel="next"` } };
}
