/**
 * Long lists, page after page: up to a limit, or all of them.
 */
import type { PageAnswer } from "./answers.js";
import { type Api, ask, type Query } from "./api.js";
import { option } from "./define.js";
import type { Session } from "./session.js";
import type { Column } from "./table.js";
import { wholeNumber } from "./values.js";

/** The largest page that the API gives. */
const pageMax = 100;
const limitDefault = 20;

/** How much of a list is wanted. */
export interface ListOptions {
  readonly limit?: number;
  readonly offset?: number;
  readonly all?: boolean;
}

/** The options of every long list; one that goes by cursor only has no offset. */
export const listOptions = (by: "offset" | "cursor" = "offset") => [
  option("--limit <number>", `how many at most (default ${limitDefault})`, wholeNumber(1)),
  ...(by === "offset"
    ? [option("--offset <number>", "how many to leave out at the beginning", wholeNumber(0))]
    : []),
  option("--all", "all of them"),
];

/** Reads a list and prints it. Without a limit, lines of JSON come as the pages do. */
export async function printList<Row>(
  session: Session,
  path: string,
  query: Query,
  options: ListOptions,
  columns: readonly Column<Row>[],
): Promise<void> {
  const { output } = session;
  const isStreamed = options.all === true && output.format === "ndjson";
  const rows: Row[] = [];
  let count: number | undefined;
  for await (const page of pages<Row>(await session.api(), path, query, options, session.signal)) {
    count = page.count;
    if (isStreamed) output.list(page, columns);
    else rows.push(...page.entries);
    if (options.all) output.progress(`${rows.length} of ${count ?? "many"} read`);
  }
  if (isStreamed) return;
  output.list({ entries: rows, ...(count !== undefined && { count }) }, columns);
  const left = (count ?? 0) - rows.length - (options.offset ?? 0);
  if (left > 0 && output.format === "text")
    output.note(`${rows.length} of ${count}; --all or --limit shows more.`);
}

/** The pages of a list. Deep ones go by cursor, which stays true while the list changes. */
export async function* pages<Row>(
  api: Api,
  path: string,
  query: Query,
  { limit = limitDefault, offset, all = false }: ListOptions,
  signal: AbortSignal,
): AsyncGenerator<PageAnswer<Row>> {
  let left = all ? Number.POSITIVE_INFINITY : limit;
  let from: Query = offset === undefined ? {} : { offset };
  while (left > 0) {
    const page = await ask<PageAnswer<Row>>(api, "GET", path, {
      query: { ...query, ...from, limit: Math.min(left, pageMax) },
      signal,
    });
    yield page;
    left -= page.entries.length;
    const { nextCursor, nextOffset } = page;
    if (nextCursor === undefined && nextOffset === undefined) return;
    from = nextCursor === undefined ? { offset: nextOffset } : { cursor: nextCursor };
  }
}
