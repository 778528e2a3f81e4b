/**
 * What a projection needs of the database that it lies in.
 */
import type { Reads } from "./reads.js";
import type { Writes } from "./writes.js";

/** A database that a projection lies in. */
export interface ProjectionStore {
  /** How errors name it: without user and password. */
  readonly url: string;

  /** Makes the database usable. One that is something else than a projection is refused. */
  open(): Promise<void>;

  /** Carries out one write in a transaction; no other writes at the same time. */
  write<Kind extends keyof Writes>(
    kind: Kind,
    ask: Writes[Kind]["ask"],
  ): Promise<Writes[Kind]["answer"]>;

  /** Carries out one read, beside whoever writes. */
  read<Kind extends keyof Reads>(
    kind: Kind,
    ask: Reads[Kind]["ask"],
  ): Promise<Reads[Kind]["answer"]>;

  /** Calls back when a process has applied something. Calls may be lost. */
  listen(on: () => void): void;

  /** Carries out what was asked before, then lets go of the database. */
  close(): Promise<void>;
}
