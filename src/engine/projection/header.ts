/**
 * The projection's own row: whose it is, how far it has come, and who leads. Whoever writes locks it first.
 */
import { int, intOrNull, type Step, text } from "../sql/statement.js";
import type { ProjectionTransaction } from "./transaction.js";

/** Whose view a projection is. */
export interface Owner {
  /** Names the deployment and the part of it that is shown. A projection of another is left alone. */
  readonly identity: string;
  /** Tells a log from one that was made anew in its place; what is left of the older one is cleared. */
  readonly origin: string;
}

/** The row. */
export interface Header {
  /** Whose it is; nobody's before the first has opened it. */
  readonly owner: Owner | null;
  readonly position: number;
  /** How many events changed nothing, because the fold ignores them. */
  readonly ignored: number;
  readonly leader: string | null;
  readonly leaderUntil: number | null;
}

const select = "SELECT identity, origin, position, ignored, leader, leader_until FROM projection";

/** Reads the row. */
export function* readHeader(lock: string): Step<Header> {
  const [row] = yield { sql: `${select} ${lock}`, values: [] };
  if (!row) throw new Error("The projection has lost its own row.");
  const owner = { identity: text(row, "identity"), origin: text(row, "origin") };
  return {
    owner: row.identity === null ? null : owner,
    position: int(row, "position"),
    ignored: int(row, "ignored"),
    leader: row.leader as string | null,
    leaderUntil: intOrNull(row, "leader_until"),
  };
}

/** Makes the projection this owner's, unless it is another's. Gives whose it is now. */
export function* enroll(tx: ProjectionTransaction, owner: Owner): Step<Owner> {
  const { owner: found } = yield* readHeader(tx.lock);
  if (found && found.identity !== owner.identity) return found;
  if (found?.origin === owner.origin) return found;
  if (found) yield* clear(tx);
  // Who leads the view of the older log may do so no more.
  yield {
    sql: "UPDATE projection SET identity = ?, origin = ?, leader = NULL, leader_until = NULL",
    values: [owner.identity, owner.origin],
  };
  return owner;
}

const tables =
  "lanes events jobs ended tags waiting ready leases slots blockers keys records delayed".split(
    " ",
  );

/** Removes everything. Whoever projects begins again from the start of the log. */
export function* clear(tx: ProjectionTransaction): Step<null> {
  yield* readHeader(tx.lock);
  for (const table of tables) yield { sql: `${tx.empty} ${table}`, values: [] };
  yield { sql: "UPDATE projection SET position = 0, ignored = 0", values: [] };
  tx.memory.forget();
  return null;
}

/** A wish to lead until a time, or, without one, to lead no more. */
export interface LeadAsk {
  readonly leader: string;
  readonly origin: string;
  readonly until: number | null;
}

/** Takes the lead, or goes on leading, unless another leads. Gives `null` when the projection has become that of another log. */
export function* lead(
  tx: ProjectionTransaction,
  { leader, origin, until }: LeadAsk,
): Step<boolean | null> {
  const header = yield* readHeader(tx.lock);
  if (header.owner?.origin !== origin) return null;
  const isFree = header.leaderUntil === null || header.leaderUntil <= tx.now;
  if (header.leader !== leader && (until === null || !isFree)) return false;
  yield {
    sql: "UPDATE projection SET leader = ?, leader_until = ?",
    values: [until === null ? null : leader, until],
  };
  return until !== null;
}

/** Whether somebody may write what the log does not order: nobody else leads. */
export function* mayMirror(tx: ProjectionTransaction, leader: string): Step<boolean> {
  const header = yield* readHeader(tx.lock);
  return header.leader === null || header.leader === leader;
}
