/**
 * Operations on a connection of the caller's, inside the transaction that the caller has open there.
 * What such a transaction does is told to others only after it has ended.
 */
import { type BigIntStats, statSync } from "node:fs";
import type { Clock } from "../clock.js";
import type { AppendOutcome } from "../engine.js";
import { TransactionConflict, TransactionRefused } from "../errors.js";
import type { SqlRow, Step } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";
import type { CallerTransaction, SyncTransaction } from "../transaction.js";
import { sqliteDialect } from "./dialect.js";
import { createEventIds } from "./event-ids.js";
import { faultOf, storeError } from "./faults.js";
import { readHead } from "./feed.js";
import type { Woke } from "./protocol.js";
import { type Read, type Reads, readItem } from "./reads.js";
import { type Write, writeAll } from "./writes.js";

/** How often to look whether a transaction that outlives its turn has ended. */
const lookMs = 20;

/**
 * Writes nothing, and so waits for the right to write: a transaction that reads first loses that right
 * for good when somebody else writes before it does.
 */
const takeTurn = "UPDATE pruned SET seq = seq WHERE seq < 0";

/** What enlisting needs of the engine. */
export interface EnlistOptions {
  readonly url: string;
  readonly path: string;
  readonly clock: Clock;
  /** A transaction that did something for others to see has ended. */
  readonly onEnded: (woke: Woke) => void;
}

/** Runs operations in transactions of the caller's. */
export class Enlisted {
  readonly #options: EnlistOptions;
  readonly #eventId = createEventIds();
  /** Connections that are known to lead to this store. */
  readonly #known = new WeakSet<object>();
  /** What open transactions have done so far, by connection, to be told when they end. */
  readonly #untold = new Map<object, { woke: Woke; callOff: () => void }>();

  constructor(options: EnlistOptions) {
    this.#options = options;
  }

  /** Carries out one write, all or nothing, so that a failing one leaves the caller's transaction as it was. */
  write(given: CallerTransaction, write: Write): readonly AppendOutcome[] {
    const tx = this.#checked(given);
    const woke = { ready: false, ended: false, cancel: false };
    const answers = this.#guard(tx, () => {
      tx.execute("SAVEPOINT millrace", []);
      try {
        tx.execute(takeTurn, []);
        const seq = run(tx, readHead());
        const now = this.#options.clock.now();
        // Lanes that this transaction stores are gone if the caller rolls back, so nobody remembers them.
        const own: Transaction = {
          dialect: sqliteDialect,
          now,
          seq,
          eventId: this.#eventId,
          lanes: new Map(),
          woke,
        };
        const [answer] = run(tx, writeAll(own, [write]));
        tx.execute("RELEASE millrace", []);
        return answer as readonly AppendOutcome[];
      } catch (error) {
        if (tx.isOpen()) {
          tx.execute("ROLLBACK TO millrace", []);
          tx.execute("RELEASE millrace", []);
        }
        throw error;
      }
    });
    if (woke.ready || woke.ended || woke.cancel) this.#tellLater(tx, woke);
    return answers;
  }

  /** Carries out one read, which sees what the transaction has done. */
  read<Kind extends keyof Reads>(
    given: CallerTransaction,
    kind: Kind,
    ask: Reads[Kind]["ask"],
  ): Reads[Kind]["answer"] {
    const tx = this.#checked(given);
    const read = { kind, ask } as Read;
    return this.#guard(tx, () => run(tx, readItem(this.#options.clock.now(), read))) as never;
  }

  /** Tells what is still to be told, so that nothing is lost. */
  close(): void {
    for (const { woke, callOff } of this.#untold.values()) {
      callOff();
      this.#options.onEnded(woke);
    }
    this.#untold.clear();
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
    const message = `The transaction is of ${found}, the jobs are in ${this.#options.path}; open the jobs' own file with better-sqlite3 and keep your tables there.`;
    return new TransactionRefused({ reason: "another_store", message });
  }

  #guard<Value>(tx: SyncTransaction, work: () => Value): Value {
    try {
      return work();
    } catch (error) {
      const fault = faultOf(error, this.#options.path);
      const code = fault.code ? { code: fault.code } : null;
      if (fault.kind === "read_only") {
        const message = `${fault.message} Open the connection without readonly and query_only.`;
        throw new TransactionRefused({ reason: "read_only", message });
      }
      if (fault.kind !== "busy") throw storeError(fault, this.#options.url);
      const again = tx.isOpen() ? "Roll the transaction back and run it again" : "Run it again";
      const message = `Another connection has written to ${this.#options.path} meanwhile. ${again}; one begun with BEGIN IMMEDIATE (db.transaction(…).immediate()) waits for its turn instead.`;
      throw new TransactionConflict({ message, ...code });
    }
  }

  /** A synchronous transaction has ended by the next turn; one that is opened by hand is looked at until it has. */
  #tellLater(tx: SyncTransaction, woke: Woke): void {
    const untold = this.#untold.get(tx.client);
    if (untold === undefined) {
      this.#untold.set(tx.client, { woke, callOff: () => {} });
      queueMicrotask(() => this.#look(tx));
      return;
    }
    const { ready, ended, cancel } = untold.woke;
    untold.woke = {
      ready: woke.ready || ready,
      ended: woke.ended || ended,
      cancel: woke.cancel || cancel,
    };
  }

  #look(tx: SyncTransaction): void {
    const untold = this.#untold.get(tx.client);
    if (untold === undefined) return;
    if (tx.isOpen()) {
      untold.callOff = this.#options.clock.after(lookMs, () => this.#look(tx));
      return;
    }
    this.#untold.delete(tx.client);
    this.#options.onEnded(untold.woke);
  }
}

/** Runs an operation on the caller's connection. */
function run<Value>(tx: SyncTransaction, step: Step<Value>): Value {
  let rows: readonly SqlRow[] = [];
  for (;;) {
    const next = step.next(rows);
    if (next.done) return next.value;
    const { sql, values, raw } = next.value;
    const found = tx.execute(sql, values);
    rows = (raw ? found.map((row) => Object.values(row)) : found) as readonly SqlRow[];
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
