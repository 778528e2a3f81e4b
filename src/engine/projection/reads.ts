/**
 * The reading operations of a projection by name: those of every SQL engine, and where it stands.
 */
import { readItem as readShared, type Reads as SharedReads } from "../sql/reads.js";
import type { Step } from "../sql/statement.js";
import { type Header, readHeader } from "./header.js";
import {
  type DueTicket,
  type DueTicketsAsk,
  dueTickets,
  lapsedKeys,
  longStanding,
  nextDueAt,
  type StandingAsk,
  type StandingJob,
  type TicketScope,
} from "./tickets.js";

/**
 * How long what continues a chain may be missing before it counts as removed: a server that cannot store both together stores first
 * that a job was continued. Whoever dies in between leaves it to the keeper, who does it within seconds.
 */
export const continuesMaxMs = 60_000;

/** What each reading operation is asked and what it answers. */
export interface Reads extends SharedReads {
  header: { readonly ask: null; readonly answer: Header };
  tickets: {
    readonly ask: DueTicketsAsk;
    readonly answer: readonly DueTicket[];
  };
  nextDue: {
    readonly ask: { readonly scope: TicketScope; readonly now: number };
    readonly answer: number | null;
  };
  lapsedKeys: {
    readonly ask: { readonly service: string; readonly now: number; readonly limit: number };
    readonly answer: readonly string[];
  };
  longStanding: {
    readonly ask: StandingAsk;
    readonly answer: readonly StandingJob[];
  };
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
      return dueTickets(read.ask);
    case "nextDue":
      return nextDueAt(read.ask.scope, read.ask.now);
    case "lapsedKeys":
      return lapsedKeys(read.ask.service, read.ask.now, read.ask.limit);
    case "longStanding":
      return longStanding(read.ask);
    default:
      return readShared(now, read, continuesMaxMs);
  }
}
