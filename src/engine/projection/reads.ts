/**
 * The reading operations of a projection by name: those of every SQL engine, and where it stands.
 */
import { readItem as readShared, type Reads as SharedReads } from "../sql/reads.js";
import type { Step } from "../sql/statement.js";
import { type Header, readHeader } from "./header.js";
import { type DueTicket, dueTickets, nextDueAt, type TicketScope } from "./tickets.js";

/** What each reading operation is asked and what it answers. */
export interface Reads extends SharedReads {
  header: { readonly ask: null; readonly answer: Header };
  tickets: {
    readonly ask: { readonly scope: TicketScope; readonly now: number; readonly limit: number };
    readonly answer: readonly DueTicket[];
  };
  nextDue: { readonly ask: TicketScope; readonly answer: number | null };
}

/** A reading operation. */
export type Read = {
  [Kind in keyof Reads]: { readonly kind: Kind; readonly ask: Reads[Kind]["ask"] };
}[keyof Reads];

/** Carries out one read. */
export function readItem(now: number, read: Read): Step<unknown> {
  switch (read.kind) {
    case "header":
      return readHeader("");
    case "tickets":
      return dueTickets(read.ask.scope, read.ask.now, read.ask.limit);
    case "nextDue":
      return nextDueAt(read.ask);
    default:
      return readShared(now, read);
  }
}
