/**
 * What the operations of one transaction share, and where stores differ in how they write and lock.
 */
import type { EventValues } from "./rows.js";
import type { SqlValue, Step } from "./statement.js";

/** Where the slim row of a job that is not active is found. */
export interface Place {
  readonly n: number;
  readonly id: string;
  readonly lane: number;
  readonly rank: number;
  readonly runAt: number;
}

/** Where stores differ in how they write and lock. Locks last until the end of the transaction. */
export interface Dialect {
  /** Appends an event of the job `n` to the log. */
  appendEvent(tx: Transaction, n: number, values: EventValues): Step<void>;
  /** Writes the wide row of a new job, whose number is the position of its creation in the log. Gives the number. */
  insertJob(tx: Transaction, values: readonly SqlValue[]): Step<number>;
  /** Reads the events of the job `n` since its creation, oldest first. */
  readLater(n: number): Step<readonly EventValues[]>;
  /** Keeps what the lease of a job tells of its log, before the lease goes. */
  keepLogOfLease(id: string): Step<void>;
  /** Keeps what the end of the job `n` tells of its log, before the end goes. */
  keepLogOfEnd(n: number): Step<void>;
  /** Removes the events of the job `n` but the `deleted` one, after its lease or its end has gone. */
  removeLog(n: number): Step<void>;
  /** Ends a SELECT whose rows stay as they are for this transaction; rows that another has locked are not seen. */
  readonly forUpdate: string;
  /** The same where a row that somebody else has locked is a fault. */
  readonly forUpdateAtOnce: string;
  /** Ends a SELECT whose rows must not be removed before the end of this transaction. */
  readonly forKeyShare: string;
  /**
   * Refuses, as busy, to touch a job that another transaction has locked, whether it waits or has a lease. Gives whether it has
   * a lease, which then is this transaction's, and no note is on its way beside it.
   */
  refuseLocked(at: Place): Step<boolean>;
  /** Lets no other transaction look for places of a key. */
  lockKey(hash: string): Step<void>;
  /** Lets no other transaction look for circles of blockers, and lets this one see what those before have stored. */
  lockCircles(): Step<void>;
  /** Lets no other transaction look at a record, also at one that is not there. */
  lockRecord(id: string): Step<void>;
}

/** What operations of one transaction share. */
export interface Transaction {
  readonly dialect: Dialect;
  /** The store's clock when the transaction was asked for. */
  readonly now: number;
  /** The position of the newest event, where the transaction is the only one that writes; grows with each event. */
  seq: number;
  /** Fresh ids for events that the store writes itself. */
  readonly eventId: () => string;
  /** The numbers of lanes that are known to be stored. */
  readonly lanes: Map<string, number>;
  /** What the transaction did that others may wait for. */
  readonly woke: { ready: boolean; ended: boolean; cancel: boolean };
}
