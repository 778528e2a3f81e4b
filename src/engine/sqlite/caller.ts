/**
 * Transactions of the caller's on this file: the check that one can be used, what its faults mean, and when it has ended.
 */
import { type BigIntStats, statSync } from "node:fs";
import type { Clock } from "../clock.js";
import { TransactionConflict, TransactionRefused } from "../errors.js";
import type { CallerTransaction, SyncTransaction } from "../transaction.js";
import { faultOf, storeError } from "./faults.js";

/** How soon to look whether a transaction that outlives its turn has ended, and how rarely at most. */
const lookMinMs = 1;
const lookMaxMs = 20;

/** What is known of the file. */
export interface CallersOptions {
  readonly url: string;
  readonly path: string;
  readonly clock: Clock;
  /** What lies in the file and how to get there, as parts of a sentence. */
  readonly holds: { readonly what: string; readonly remedy: string };
}

/** Runs work in transactions that the caller began and will end. */
export class Callers {
  readonly #options: CallersOptions;
  /** Connections that are known to lead to this file. */
  readonly #known = new WeakSet<object>();
  /** What is to be done when open transactions end, by connection. */
  readonly #ending = new Map<object, { readonly calls: (() => void)[]; callOff: () => void }>();

  constructor(options: CallersOptions) {
    this.#options = options;
  }

  /** Runs work in a transaction that is known to be usable. */
  use<Value>(given: CallerTransaction, work: (tx: SyncTransaction) => Value): Value {
    const tx = this.#checked(given);
    return this.#guard(tx, () => work(tx));
  }

  /** Runs work as one: a failing one leaves the caller's transaction as it was. */
  useAsOne<Value>(given: CallerTransaction, work: (tx: SyncTransaction) => Value): Value {
    return this.use(given, (tx) => {
      tx.execute("SAVEPOINT millrace", []);
      try {
        const value = work(tx);
        tx.execute("RELEASE millrace", []);
        return value;
      } catch (error) {
        if (tx.isOpen()) {
          tx.execute("ROLLBACK TO millrace", []);
          tx.execute("RELEASE millrace", []);
        }
        throw error;
      }
    });
  }

  /**
   * Calls back when the transaction has ended, one way or the other. A synchronous one has by the next turn;
   * one that is opened by hand is looked at until it has.
   */
  whenEnded(tx: SyncTransaction, call: () => void): void {
    const ending = this.#ending.get(tx.client);
    if (ending !== undefined) {
      ending.calls.push(call);
      return;
    }
    this.#ending.set(tx.client, { calls: [call], callOff: () => {} });
    queueMicrotask(() => this.#look(tx));
  }

  /** Does at once what was to be done later, so that nothing is lost. */
  close(): void {
    const endings = [...this.#ending.values()];
    this.#ending.clear();
    for (const { calls, callOff } of endings) {
      callOff();
      for (const call of calls) call();
    }
  }

  #look(tx: SyncTransaction, nextMs = lookMinMs): void {
    const ending = this.#ending.get(tx.client);
    if (ending === undefined) return;
    if (tx.isOpen()) {
      const laterMs = Math.min(nextMs * 2, lookMaxMs);
      ending.callOff = this.#options.clock.after(nextMs, () => this.#look(tx, laterMs));
      return;
    }
    this.#ending.delete(tx.client);
    for (const call of ending.calls) call();
  }

  #checked(tx: CallerTransaction): SyncTransaction {
    if (tx.kind === "async") throw this.#foreign("a client of another kind of database");
    if (!tx.isOpen()) {
      const message =
        "No transaction is open on this connection; call within db.transaction(() => …), or after BEGIN.";
      throw new TransactionRefused({ reason: "not_open", message });
    }
    if (!this.#known.has(tx.client)) {
      const file = this.#guard(tx, () => mainFile(tx));
      if (!isSameFile(file, this.#options.path)) throw this.#foreign(file || "a store in memory");
      this.#known.add(tx.client);
    }
    return tx;
  }

  #foreign(found: string): TransactionRefused {
    const { path, holds } = this.#options;
    const message = `The transaction is of ${found}, ${holds.what} in ${path}; ${holds.remedy}.`;
    return new TransactionRefused({ reason: "another_store", message });
  }

  #guard<Value>(tx: SyncTransaction, work: () => Value): Value {
    try {
      return work();
    } catch (error) {
      const { path, url } = this.#options;
      const fault = faultOf(error, path);
      const code = fault.code ? { code: fault.code } : null;
      if (fault.kind === "read_only") {
        const message = `${fault.message} Open the connection without readonly and query_only.`;
        throw new TransactionRefused({ reason: "read_only", message });
      }
      if (fault.kind !== "busy") throw storeError(fault, url);
      const again = tx.isOpen() ? "Roll the transaction back and run it again" : "Run it again";
      const message = `Another connection has written to ${path} meanwhile. ${again}; one begun with BEGIN IMMEDIATE (db.transaction(…).immediate()) waits for its turn instead.`;
      throw new TransactionConflict({ message, ...code });
    }
  }
}

/** The file that a connection has open, empty for one in memory. */
function mainFile(tx: SyncTransaction): string {
  const databases = tx.execute("PRAGMA database_list", []);
  return String(databases.find(({ name }) => name === "main")?.file ?? "");
}

/** Whether two paths lead to one file, through whatever links. */
function isSameFile(path: string, other: string): boolean {
  if (path === "") return false;
  const [one, two] = [path, other].map((each): BigIntStats | undefined =>
    statSync(each, { bigint: true, throwIfNoEntry: false }),
  );
  return one !== undefined && two !== undefined && one.dev === two.dev && one.ino === two.ino;
}
