/**
 * Operations inside a transaction of the caller's, on whatever client it was begun with.
 * What such a transaction does is told to others only after it has committed.
 */
import { fold } from "../../core/evolve.js";
import type { AppendOutcome, Change, LoadedJob, TokenLease } from "../engine.js";
import {
  isStoreError,
  isTransactionError,
  TransactionConflict,
  TransactionRefused,
} from "../errors.js";
import { appendChange, settleChange } from "../sql/append.js";
import { flatChange } from "../sql/change.js";
import { isPlainCreate, plainCreate } from "../sql/plain.js";
import { eventFrom, headOf } from "../sql/rows.js";
import type { SqlRow, Step } from "../sql/statement.js";
import type { AsyncTransaction, CallerTransaction } from "../transaction.js";
import type { CommitWatch } from "./commit-watch.js";
import { type Database, run, type Session } from "./driver.js";
import { codeOf, isPassing } from "./faults.js";
import { createPlain } from "./plain-create.js";
import { readLogs } from "./read.js";
import type { PostgresTransaction } from "./transaction.js";
import type { Writer } from "./writer.js";

/** How often an operation is carried out while others get in its way. */
const triesMax = 3;

/** What enlisting needs of the engine. */
export interface EnlistOptions {
  readonly database: Database;
  readonly writer: Writer;
  readonly commitWatch: CommitWatch;
}

/** Runs operations in transactions of the caller's. */
export class Enlisted {
  readonly #options: EnlistOptions;

  constructor(options: EnlistOptions) {
    this.#options = options;
  }

  /** Appends changes; a failing call leaves the caller's transaction as it was. */
  async append(
    changes: readonly Change[],
    given: CallerTransaction,
  ): Promise<readonly AppendOutcome[]> {
    await this.#options.writer.knowLanes(changes);
    return this.#write(given, (tx) =>
      changes.every(isPlainCreate)
        ? createPlain(tx, changes.map(plainCreate))
        : each(changes, (change) => appendChange(tx, flatChange(change))),
    );
  }

  /** Settles attempts; a failing call leaves the caller's transaction as it was. */
  async settle(
    changes: readonly Change[],
    given: CallerTransaction,
  ): Promise<readonly AppendOutcome[]> {
    await this.#options.writer.knowLanes(changes);
    return this.#write(given, (tx) =>
      each(changes, (change) => settleChange(tx, flatChange(change))),
    );
  }

  /** Loads jobs as the transaction sees them. */
  async load(
    ids: readonly string[],
    history: boolean,
    given: CallerTransaction,
  ): Promise<readonly (LoadedJob | null)[]> {
    const session = this.#session(asynchronous(given));
    return this.#guard(async () => {
      await this.#check(session);
      const logs = await run(session, readLogs(ids));
      return logs.map((log) => {
        const head = log && headOf(log.head);
        const events = log ? log.events.map((values) => eventFrom(head, values)) : [];
        const job = fold(events);
        return job && (history ? { job, events } : { job });
      });
    });
  }

  /** Locks the lease of a token until the transaction ends. */
  async hold({ job, token }: TokenLease, given: CallerTransaction): Promise<boolean> {
    const session = this.#session(asynchronous(given));
    return this.#guard(async () => {
      await this.#check(session);
      const rows = await session.execute({
        sql: "SELECT id FROM leases WHERE id = ? AND token = ? FOR UPDATE",
        values: [job.id, token],
      });
      return rows.length > 0;
    });
  }

  async #write<Value>(
    given: CallerTransaction,
    operation: (tx: PostgresTransaction) => Step<Value>,
  ): Promise<Value> {
    const { writer, commitWatch } = this.#options;
    const session = this.#session(asynchronous(given));
    return this.#guard(async () => {
      const xid = await this.#check(session);
      for (let tries = 1; ; tries++) {
        const tx = writer.begin();
        await session.execute({ sql: "SAVEPOINT millrace", values: [] });
        try {
          const value = await run(session, operation(tx));
          await session.execute({ sql: "RELEASE SAVEPOINT millrace", values: [] });
          commitWatch.add(xid, () => writer.after(tx));
          return value;
        } catch (error) {
          await undo(session);
          if (tries === triesMax || !isPassing(error) || codeOf(error).startsWith("40"))
            throw error;
        }
      }
    });
  }

  #session(tx: AsyncTransaction): Session {
    return {
      execute: async ({ sql, values, raw }) => {
        const rows = await tx.execute(this.#options.database.textOf(sql), values);
        return (raw ? rows.map((row) => Object.values(row)) : rows) as readonly SqlRow[];
      },
    };
  }

  /** Refuses a client without an open transaction and one of another database; gives the transaction's id. */
  async #check(session: Session): Promise<string> {
    const { database } = this.#options;
    const [first] = await session.execute({
      sql: "SELECT to_regclass(?)::text AS found, pg_current_xact_id()::text AS xid",
      values: [database.storeTable],
    });
    const [second] = first?.found
      ? await session.execute({
          sql: "SELECT id, pg_current_xact_id()::text AS xid FROM store",
          values: [],
        })
      : [];
    if (second?.id !== database.storeId) {
      const message = `The transaction is of another database than the jobs, which are in ${database.where}; begin it on a client of that database.`;
      throw new TransactionRefused({ reason: "another_store", message });
    }
    if (first?.xid !== second?.xid) {
      const message =
        "No transaction is open on this client; begin one before, and commit it afterwards.";
      throw new TransactionRefused({ reason: "not_open", message });
    }
    return String(second?.xid);
  }

  async #guard<Value>(work: () => Promise<Value>): Promise<Value> {
    try {
      return await work();
    } catch (error) {
      throw this.#faultOf(error);
    }
  }

  #faultOf(error: unknown): Error {
    if (isStoreError(error) || isTransactionError(error)) return error;
    const code = codeOf(error);
    const detail = error instanceof Error ? error.message : String(error);
    if (isPassing(error) || code === "55P03") {
      const message = `Another transaction got in the way (${detail}). Roll the transaction back and run it again.`;
      return new TransactionConflict(code === "" ? { message } : { message, code });
    }
    if (code === "25P02") {
      const message = "The transaction has failed before this call: roll it back and begin anew.";
      return new TransactionRefused({ reason: "not_open", message });
    }
    if (code === "25006") {
      const message = "The transaction may only read; begin one that may write.";
      return new TransactionRefused({ reason: "read_only", message });
    }
    if (/^[0-9A-Z]{5}$/.test(code) && !/^(08|57P)/.test(code))
      return this.#options.database.storeError(error);
    const message = `The client of the transaction cannot be used (${detail}); it may be closed or given back already.`;
    return new TransactionRefused({ reason: "closed", message });
  }
}

/** Undoes what a failed operation did; a transaction that is gone has undone it already. */
async function undo(session: Session): Promise<void> {
  try {
    await session.execute({ sql: "ROLLBACK TO SAVEPOINT millrace", values: [] });
    await session.execute({ sql: "RELEASE SAVEPOINT millrace", values: [] });
  } catch {
    return;
  }
}

function asynchronous(tx: CallerTransaction): AsyncTransaction {
  if (tx.kind === "async") return tx;
  const message =
    "The transaction is of a SQLite file, and the jobs are in PostgreSQL; give a client of that database.";
  throw new TransactionRefused({ reason: "another_store", message });
}

function* each(
  changes: readonly Change[],
  perform: (change: Change) => Step<AppendOutcome>,
): Step<readonly AppendOutcome[]> {
  const outcomes: AppendOutcome[] = [];
  for (const change of changes) outcomes.push(yield* perform(change));
  return outcomes;
}
