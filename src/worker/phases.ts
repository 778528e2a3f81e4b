/**
 * The phases of a handler that works with transactions of its own database client: `prepare`, the work, `complete`.
 *
 * Staged: prepare has a transaction, complete has another, and the lease is renewed between them.
 * Atomic: one transaction from prepare to complete, which holds the lease. A synchronous client, which would stop
 * every other writer of the file, reads in prepare and writes in complete alone.
 * A handler that calls `complete` before it awaits anything is set up as atomic, every other one as staged.
 */
import { InvalidOption } from "../client/errors.js";
import { functionProblem, optionProblem } from "../client/option-checks.js";
import { atOnce } from "../client/promise-like.js";
import type { TransactionSource } from "../client/transactions/source.js";
import type { Engine } from "../engine/engine.js";
import { transactionFailed } from "../engine/errors.js";
import type { CallerTransaction } from "../engine/transaction.js";
import { lostJob } from "./abort.js";
import type { AnyPrepare, PrepareMode } from "./active-job.js";
import type { Hold } from "./hold.js";
import { ignorable } from "./notes.js";
import { begin, enlist, type OpenTransaction } from "./open-transaction.js";

type PrepareCallback = (step: { readonly tx: unknown }) => unknown;

/** How the transactions of one attempt are set up. */
export class Phases {
  readonly #hold: Hold;
  readonly #engine: Engine;
  readonly #source: TransactionSource<unknown> | undefined;
  readonly #renew: () => Promise<void>;
  #mode: PrepareMode | undefined;
  #isAutomatic = false;
  /** The transaction of atomic mode, from the moment on when it is asked for. */
  #opening: Promise<OpenTransaction> | undefined;
  /** What the store does in the transaction. One that ended under its hands would keep a part of it, statement by statement. */
  #work: Promise<unknown> | undefined;
  #isOver = false;

  /** `renew` asks the store for the hold on the job, and tells its signal what the store says. */
  constructor(
    hold: Hold,
    engine: Engine,
    source: TransactionSource<unknown> | undefined,
    renew: () => Promise<void>,
  ) {
    this.#hold = hold;
    this.#engine = engine;
    this.#source = source;
    this.#renew = renew;
  }

  /** What `job.prepare` gives. Throws once the handler has been set up without it. */
  get prepare(): AnyPrepare {
    if (this.#isAutomatic) throw latePrepare();
    return (options, callback) => ignorable(this.#prepare(options, callback)) as Promise<never>;
  }

  /** `complete` is called: without a `prepare` before it, this is how the handler is set up. */
  setUp(mode: PrepareMode): void {
    if (this.#mode !== undefined) return;
    this.#mode = mode;
    this.#isAutomatic = true;
  }

  /** The transaction to complete the job in: the one that prepare opened, or a new one. Whoever takes it ends it. */
  async take(): Promise<OpenTransaction> {
    if (this.#opening !== undefined) return this.#opening;
    if (this.#mode === "atomic" && !this.#isAutomatic) throw this.#over("that prepare opened");
    return this.#open(this.#mode === "atomic");
  }

  /** Lets the store work in the transaction that was taken, which nobody ends meanwhile. */
  async during<Value>(work: () => Value | Promise<Value>): Promise<Value> {
    if (this.#isOver) throw this.#over("of complete");
    const given = Promise.resolve(work());
    this.#work = given.catch(() => {});
    return given;
  }

  #over(which: string): Error {
    const { id } = this.#hold.job;
    return new Error(`Job ${id}: the transaction ${which} is over; let the job be tried again.`);
  }

  /** Undoes what was not committed. */
  async #end(): Promise<void> {
    const opening = this.#opening;
    this.#opening = undefined;
    this.#isOver = true;
    this.#hold.letGo = undefined;
    const open = await opening?.catch(() => undefined);
    await this.#work;
    await open?.rollback(this.#hold.abandoned);
  }

  async #prepare(
    options: { readonly mode: PrepareMode },
    callback: PrepareCallback = () => {},
  ): Promise<unknown> {
    const mode = options?.mode;
    if (mode !== "atomic" && mode !== "staged") {
      const message = 'prepare needs { mode: "atomic" } or { mode: "staged" }.';
      throw new InvalidOption({ field: "mode", message });
    }
    const problem = optionProblem("callback", callback, functionProblem);
    if (problem !== null) throw problem;
    if (this.#mode !== undefined)
      throw new Error(`Job ${this.#hold.job.id}: prepare may be called once, before complete.`);
    this.#mode = mode;
    const source = this.#source;
    if (source === undefined) return callback({ tx: undefined });
    if (source.kind === "sync") {
      const work = (tx: unknown) => givenAtOnce(callback({ tx }));
      return mode === "atomic" ? source.read(work) : source.run(work);
    }
    if (mode === "staged") {
      return source.run(async (tx) => {
        const value = await callback({ tx });
        await checkCommits(enlist(source, tx));
        return value;
      });
    }
    const { client } = await this.#open(true);
    try {
      return await callback({ tx: client });
    } catch (error) {
      await this.#end();
      throw error;
    }
  }

  /** Begins a transaction. One that is still open when the handler has returned or was abandoned is rolled back. */
  #open(locksLease: boolean): Promise<OpenTransaction> {
    this.#isOver = false;
    this.#hold.letGo = () => this.#end();
    if (locksLease) this.#hold.locksLease = true;
    this.#opening = this.#begin(locksLease);
    return this.#opening;
  }

  async #begin(locksLease: boolean): Promise<OpenTransaction> {
    const source = this.#source;
    if (source?.kind !== "async") throw new Error("Only asynchronous transactions stay open.");
    const open = await begin(source);
    try {
      if (!locksLease || (await this.#lockLease(source, open))) return open;
      throw await this.#lost();
    } catch (error) {
      await open.rollback();
      throw error;
    }
  }

  /** Why the lease could not be locked, which the signal says, too. */
  async #lost(): Promise<Error> {
    const { id } = this.#hold.job;
    await this.#renew();
    const [loaded] = await this.#engine.load([id]);
    return lostJob(id, loaded?.job ?? null);
  }

  #lockLease(source: TransactionSource<unknown>, { client }: OpenTransaction): Promise<boolean> {
    const { key: job, job: claimed } = this.#hold;
    return this.#engine.hold({ job, token: claimed.token }, enlist(source, client));
  }
}

/**
 * Throws when a statement of a transaction has failed, even if the callback has caught that: PostgreSQL rolls back
 * what is committed then, and most clients take it for a success. Without a prepare, storing the outcome shows it.
 */
async function checkCommits(tx: CallerTransaction): Promise<void> {
  try {
    await tx.execute("SELECT 1", []);
  } catch {
    throw transactionFailed();
  }
}

/** The error of a `prepare` that comes too late. */
export function latePrepare(): Error {
  return new Error("Prepare cannot be accessed after auto-setup");
}

/** What a callback gave inside a synchronous transaction, which cannot wait. */
export function givenAtOnce<Value>(value: Value): Value {
  return atOnce(
    value,
    "The callback, or the schema of its result, gave a promise, and a transaction of better-sqlite3 ends when the callback returns. It is rolled back; do what must be awaited between prepare and complete.",
  );
}
