/**
 * Transactions of the caller's on this database: the check that one can be used, and what its faults mean.
 */
import {
  isStoreError,
  isTransactionError,
  TransactionConflict,
  TransactionRefused,
} from "../errors.js";
import type { SqlRow } from "../sql/statement.js";
import type { AsyncTransaction, CallerTransaction, StatementRow } from "../transaction.js";
import type { Database } from "./driver.js";
import { codeOf, detailOf, grants, isPassing } from "./faults.js";
import type { Session } from "./session.js";
import { storable } from "./storable.js";

/**
 * The last work on each client. Work waits for the one before, because all of it shares one connection: the savepoint
 * of one would otherwise undo what another has reported as done.
 */
const lastWork = new WeakMap<object, Promise<unknown>>();

/** What is known of a transaction before it is used. */
interface OpenTransaction {
  readonly xid: string;
  readonly user: string;
  /** Whether its user may read the table that says which store this is; null where there is none. */
  readonly permitted: boolean | null;
  /** How long a statement of it may take; 0 where that has no end. */
  readonly statementTimeoutMs: number;
}

/** A session in a transaction of the caller's, and what is known of its last failure. */
interface CallerSession extends Session {
  failure: { readonly error: unknown; readonly tookMs: number } | null;
}

/** How much earlier than the server's own clock that of this process may say that a statement's time was up. */
const clockSlackMs = 10;

/** The catalog, because a look by name fails for whoever may not use the schema. */
const look = `SELECT pg_current_xact_id()::text AS xid, current_user::text AS role,
    (extract(epoch FROM current_setting('statement_timeout')::interval) * 1000)::text AS timeout_ms, (
    SELECT (has_schema_privilege(space.oid, 'USAGE') AND has_table_privilege(place.oid, 'SELECT'))::text
    FROM pg_namespace AS space JOIN pg_class AS place ON place.relnamespace = space.oid
    WHERE space.nspname = ? AND place.relname = ?
  ) AS permitted`;

/** Runs work in transactions that the caller began and will end. */
export class Callers {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Runs work in a transaction that is known to be usable, one at a time. `xid` is the transaction's id. */
  async use<Value>(
    given: CallerTransaction,
    work: (session: Session, xid: string) => Promise<Value>,
  ): Promise<Value> {
    const tx = asynchronous(given);
    const before = lastWork.get(tx.client);
    const own = before ? before.then(() => this.#use(tx, work)) : this.#use(tx, work);
    // The next one waits for this one, however it ends.
    lastWork.set(
      tx.client,
      own.catch(() => {}),
    );
    return own;
  }

  async #use<Value>(
    tx: AsyncTransaction,
    work: (session: Session, xid: string) => Promise<Value>,
  ): Promise<Value> {
    const session = this.#session(tx);
    let open: OpenTransaction | null = null;
    try {
      this.#database.checkVersion();
      open = await this.#look(session);
      return await work(session, await this.#check(session, open));
    } catch (error) {
      const timedOut = timeOut(error, open, session);
      throw timedOut ?? (await this.#faultOf(error, open?.user ?? ""));
    }
  }

  #session(tx: AsyncTransaction): CallerSession {
    const session: CallerSession = {
      failure: null,
      execute: async ({ sql, values, raw }) => {
        const since = performance.now();
        const own = this.#database.textOf(sql);
        const rows = await tx.execute(own, storable(values)).catch((error: unknown) => {
          session.failure = { error, tookMs: performance.now() - since };
          throw error;
        });
        return (
          raw ? rows.map((row) => Object.values(row).map(asNumber)) : rows.map(asNamed)
        ) as readonly SqlRow[];
      },
    };
    return session;
  }

  /**
   * What the transaction sees of the store, asked in a way that never fails: a statement that does would undo what the caller
   * has done before.
   */
  async #look(session: Session): Promise<OpenTransaction> {
    const { home, schema } = this.#database;
    const [seen] = await session.execute({ sql: look, values: [schema, home] });
    const { xid, role, permitted, timeout_ms: timeout } = seen ?? {};
    return {
      xid: String(xid),
      user: String(role),
      permitted: permitted === null || permitted === undefined ? null : permitted === "true",
      statementTimeoutMs: Number(timeout ?? 0),
    };
  }

  /** Refuses a client without an open transaction and one of another database; gives the transaction's id. */
  async #check(session: Session, { xid, user, permitted }: OpenTransaction): Promise<string> {
    const { home, storeId, where } = this.#database;
    if (permitted === false) throw this.#notPermitted(user);
    const [second] = permitted
      ? await session.execute({
          sql: `SELECT id, pg_current_xact_id()::text AS xid FROM ${home}`,
          values: [],
        })
      : [];
    if (second?.id !== storeId) {
      const what = home === "store" ? "the jobs, which are" : "the outbox, which is";
      const message = `The transaction is of another database than ${what} in ${where}; begin it on a client of that database.`;
      throw new TransactionRefused({ reason: "another_store", message });
    }
    if (xid !== second?.xid) {
      const message =
        "No transaction is open on this client; begin one before, and commit it afterwards.";
      throw new TransactionRefused({ reason: "not_open", message });
    }
    return xid;
  }

  #notPermitted(user: string, detail?: string): TransactionRefused {
    const { home, schema, where } = this.#database;
    const what = home === "store" ? "the jobs" : "the outbox";
    const said = detail === undefined ? "" : ` (${detail})`;
    const message = `The transaction's user "${user}" lacks rights on the schema "${schema}" of ${where}, which holds ${what}${said}. Its owner grants them: ${grants(schema, user)}`;
    return new TransactionRefused({ reason: "not_permitted", message });
  }

  async #faultOf(error: unknown, user: string): Promise<Error> {
    if (isStoreError(error) || isTransactionError(error)) return error;
    const code = codeOf(error);
    const detail = error instanceof Error ? error.message : String(error);
    if (code === "42501") return this.#notPermitted(user, detailOf(error));
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
    if (/^[0-9A-Z]{5}$/.test(code) && !/^(08|57P)/.test(code)) return this.#database.faultOf(error);
    const message = `The client of the transaction cannot be used (${detail}); it may be closed or given back already.`;
    return new TransactionRefused({ reason: "closed", message });
  }
}

/**
 * The error of a statement that took longer than the transaction allows; `null` for every other fault. The server says the
 * same of one that somebody cancelled, but for its words, which are in a language that nobody knows here; the time that the
 * statement took tells one from the other.
 */
function timeOut(
  error: unknown,
  open: OpenTransaction | null,
  { failure }: CallerSession,
): TransactionConflict | null {
  const code = codeOf(error);
  if (code !== "57014" || failure === null || failure.error !== error) return null;
  const allowedMs = open?.statementTimeoutMs ?? 0;
  if (allowedMs === 0 || failure.tookMs < allowedMs - clockSlackMs) return null;
  const message = `A statement of the transaction took longer than its statement_timeout of ${allowedMs} ms allows, as one does that waits for another transaction. Roll the transaction back and run it again, or allow more time.`;
  return new TransactionConflict({ message, code });
}

/**
 * A row under the names of the store's columns, for clients that are told to write `run_at` as `runAt`, `RunAt` or `run-at`, or to
 * give numbers as bigints.
 */
function asNamed(row: StatementRow): StatementRow {
  const names = Object.keys(row);
  const isAsStored = (name: string) => !/[A-Z-]/.test(name) && typeof row[name] !== "bigint";
  if (names.every(isAsStored)) return row;
  return Object.fromEntries(names.map((name) => [columnName(name), asNumber(row[name])]));
}

/** A value as the store's own connections give it: no number of the store is too large for one. */
function asNumber(value: unknown): unknown {
  return typeof value === "bigint" ? Number(value) : value;
}

function columnName(name: string): string {
  const words = name.replaceAll("-", "_").replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return words.replace(/^_/, "");
}

/** Undoes what a failed operation did; a transaction that is gone has undone it already. */
export async function undo(session: Session): Promise<void> {
  try {
    await session.execute({ sql: "ROLLBACK TO SAVEPOINT millrace", values: [] });
    await session.execute({ sql: "RELEASE SAVEPOINT millrace", values: [] });
  } catch {
    return;
  }
}

/** The transaction of a client that answers later, which every client of PostgreSQL does; others are refused. */
export function asynchronous(tx: CallerTransaction): AsyncTransaction {
  if (tx.kind === "async") return tx;
  const message =
    "The transaction is of a SQLite file, and not of PostgreSQL; give a client of that database.";
  throw new TransactionRefused({ reason: "another_store", message });
}
