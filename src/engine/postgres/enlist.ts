/**
 * Operations inside a transaction of the caller's, on whatever client it was begun with.
 * What such a transaction does is told to others only after it has committed.
 */
import { fold } from "../../core/evolve.js";
import type { AppendOutcome, Change, JobHold, LoadedJob } from "../engine.js";
import { appendChange, settleChange } from "../sql/append.js";
import { flatChange } from "../sql/change.js";
import { isPlainCreate, plainCreate } from "../sql/plain.js";
import { eventFrom, headOf } from "../sql/rows.js";
import type { Step } from "../sql/statement.js";
import type { CallerTransaction } from "../transaction.js";
import { Callers, undo } from "./caller.js";
import type { CommitWatch } from "./commit-watch.js";
import type { Database } from "./driver.js";
import { codeOf, isPassing } from "./faults.js";
import { lockJob } from "./job-lock.js";
import { createPlain } from "./plain-create.js";
import { readLogs } from "./read.js";
import { run, type Session } from "./session.js";
import { refuseOldSnapshot } from "./shared-leases.js";
import { finished, type PostgresTransaction } from "./transaction.js";
import { refuseUnseenBlockers } from "./unseen.js";
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
  readonly #callers: Callers;

  constructor(options: EnlistOptions) {
    this.#options = options;
    this.#callers = new Callers(options.database);
  }

  /** Appends changes; a failing call leaves the caller's transaction as it was. */
  async append(
    changes: readonly Change[],
    given: CallerTransaction,
  ): Promise<readonly AppendOutcome[]> {
    return this.#write(changes, given, (tx) =>
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
    return this.#write(changes, given, (tx) =>
      each(changes, (change) => settleChange(tx, flatChange(change))),
    );
  }

  /** Loads jobs as the transaction sees them. */
  load(
    ids: readonly string[],
    history: boolean,
    given: CallerTransaction,
  ): Promise<readonly (LoadedJob | null)[]> {
    return this.#callers.use(given, async (session) => {
      const logs = await run(session, readLogs(ids));
      return logs.map((log) => {
        const head = log && headOf(log.head);
        const events = log ? log.events.map((values) => eventFrom(head, values)) : [];
        const job = fold(events);
        return job && (history ? { job, events } : { job });
      });
    });
  }

  /** Locks the lease of a token, or without one the job wherever it stands, until the transaction ends. */
  async hold({ job, token }: JobHold, given: CallerTransaction): Promise<boolean> {
    if (token === undefined) return this.#holdAnywhere(job.id, given);
    const { writer } = this.#options;
    await writer.ownLeases([{ id: job.id, token }]);
    return this.#callers.use(given, async (session) => {
      const sql = "SELECT id FROM leases WHERE id = ? AND token = ? FOR NO KEY UPDATE";
      const look = async () => (await session.execute({ sql, values: [job.id, token] })).length > 0;
      if (await look()) return true;
      // Another process may have claimed it, or spread its lease just now.
      await writer.ownLeases([{ id: job.id, token: undefined }]);
      if (await look()) return true;
      await run(session, refuseOldSnapshot([job.id]));
      return false;
    });
  }

  async #holdAnywhere(id: string, given: CallerTransaction): Promise<boolean> {
    for (let tries = 0; tries < triesMax; tries++) {
      // A claim may give it a lease that it shares, and such a one cannot be locked for one job.
      await this.#options.writer.ownLeases([{ id, token: undefined }]);
      if (await this.#perform([], given, (tx) => lockJob(tx, id))) return true;
    }
    await this.#callers.use(given, (session) => run(session, refuseOldSnapshot([id])));
    return false;
  }

  async #write(
    changes: readonly Change[],
    given: CallerTransaction,
    operation: (tx: PostgresTransaction) => Step<readonly AppendOutcome[]>,
  ): Promise<readonly AppendOutcome[]> {
    const existing = changes.filter(({ event }) => event.name !== "created");
    await this.#options.writer.ownLeases(
      existing.map(({ job, expect }) => ({ id: job.id, token: expect.token })),
    );
    const { database } = this.#options;
    return this.#perform(changes, given, operation, (outcomes, session) =>
      refuseUnseenBlockers(changes, outcomes, session, database),
    );
  }

  /**
   * Carries out an operation that stores these changes, behind a savepoint, and again where others got in its way. What `check`
   * throws undoes it.
   */
  async #perform<Value>(
    changes: readonly Change[],
    given: CallerTransaction,
    operation: (tx: PostgresTransaction) => Step<Value>,
    check?: (value: Value, session: Session) => Promise<void>,
  ): Promise<Value> {
    const { writer, commitWatch } = this.#options;
    return this.#callers.use(given, async (session, xid) => {
      await writer.knowLanes(changes, session);
      for (let tries = 1; ; tries++) {
        const tx = writer.begin();
        await session.execute({ sql: "SAVEPOINT millrace", values: [] });
        try {
          const value = await run(session, finished(tx, operation));
          await check?.(value, session);
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
}

function* each(
  changes: readonly Change[],
  perform: (change: Change) => Step<AppendOutcome>,
): Step<readonly AppendOutcome[]> {
  const outcomes: AppendOutcome[] = [];
  for (const change of changes) {
    const outcome = yield* perform(change);
    if (outcome.outcome === "conflict" && change.event.name !== "created")
      yield* refuseOldSnapshot([change.job.id]);
    outcomes.push(outcome);
  }
  return outcomes;
}
