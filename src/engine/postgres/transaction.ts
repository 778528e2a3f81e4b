/**
 * A transaction of the PostgreSQL store.
 */
import { recordId } from "../record.js";
import { removeEvents } from "../sql/log.js";
import type { Step } from "../sql/statement.js";
import type { Dialect, Transaction } from "../sql/transaction.js";
import { postgresDialect } from "./dialect.js";
import { leaveRounds } from "./rounds.js";

/** What operations of one transaction share, and what is left to do after it. */
export interface PostgresTransaction extends Transaction {
  /** Keys that this transaction has locked, which is until its end, and the record of circles if it has. */
  readonly locked: Set<string>;
  /** Keys that another transaction had locked: their next jobs are let in afterwards. */
  readonly late: Set<string>;
  /** The numbers of jobs that were removed, which leave their rounds at the end. */
  readonly removed: number[];
}

/** What a transaction needs from the engine that begins it. */
export interface TransactionParts {
  readonly now: number;
  readonly eventId: () => string;
  readonly lanes: Map<string, number>;
}

/** The beginning of a transaction. */
export function newTransaction(parts: TransactionParts): PostgresTransaction {
  return new BegunTransaction(parts);
}

/** A class, because one is made for every call, and an object with an accessor of its own costs as much as the rest of it. */
class BegunTransaction implements PostgresTransaction {
  readonly now: number;
  readonly eventId: () => string;
  readonly lanes: Map<string, number>;
  /** Positions come from a sequence, so that none is counted here. */
  seq = 0;
  readonly woke = { ready: false, ended: false, cancel: false };
  readonly locked = new Set<string>();
  readonly late = new Set<string>();
  readonly removed: number[] = [];
  #dialect: Dialect | undefined;

  constructor({ now, eventId, lanes }: TransactionParts) {
    this.now = now;
    this.eventId = eventId;
    this.lanes = lanes;
  }

  /** Plain creates, claims and ends need none. */
  get dialect(): Dialect {
    this.#dialect ??= dialectOf(this.locked, this.removed);
    return this.#dialect;
  }
}

/** The dialect of one transaction, which remembers what it has locked and removed. */
function dialectOf(locked: Set<string>, removed: number[]): Dialect {
  return {
    ...postgresDialect,
    *lockKey(hash) {
      if (locked.has(hash)) return;
      yield* postgresDialect.lockKey(hash);
      locked.add(hash);
    },
    *lockCircles() {
      if (locked.has(recordId.circles)) return;
      yield* postgresDialect.lockCircles();
      locked.add(recordId.circles);
    },
    *removeLog(n) {
      yield* removeEvents(n);
      removed.push(n);
    },
  };
}

/** Carries out an operation, and then what it has left for the end of its transaction. */
export function* finished<Value>(
  tx: PostgresTransaction,
  operation: (tx: PostgresTransaction) => Step<Value>,
): Step<Value> {
  const value = yield* operation(tx);
  if (tx.removed.length > 0) yield* leaveRounds(tx.removed);
  return value;
}
