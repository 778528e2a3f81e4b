/**
 * The reading operations of the SQLite engine by name, as its thread is asked for them.
 */
import { readItem as readShared, type Reads as SharedReads } from "../sql/reads.js";
import type { Step } from "../sql/statement.js";
import { type FeedRow, readFeed, readHead } from "./feed.js";

/** What each reading operation is asked and what it answers. */
export interface Reads extends SharedReads {
  feed: {
    readonly ask: { readonly after: number; readonly limit: number };
    readonly answer: readonly FeedRow[];
  };
  head: { readonly ask: null; readonly answer: number };
}

/** A reading operation. */
export type Read = {
  [Kind in keyof Reads]: { readonly kind: Kind; readonly ask: Reads[Kind]["ask"] };
}[keyof Reads];

/** Carries out one read. */
export function readItem(now: number, read: Read): Step<unknown> {
  switch (read.kind) {
    case "feed":
      return readFeed(read.ask.after, read.ask.limit);
    case "head":
      return readHead();
    default:
      return readShared(now, read);
  }
}
