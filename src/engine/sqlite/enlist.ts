/**
 * Operations on a connection of the caller's, inside the transaction that the caller has open there.
 * What such a transaction does is told to others only after it has ended.
 */
import type { Clock } from "../clock.js";
import type { AppendOutcome } from "../engine.js";
import type { SqlRow, Step } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";
import type { CallerTransaction, SyncTransaction } from "../transaction.js";
import { Callers } from "./caller.js";
import { sqliteDialect } from "./dialect.js";
import { createEventIds } from "./event-ids.js";
import { readHead } from "./feed.js";
import type { Woke } from "./protocol.js";
import { type Read, type Reads, readItem } from "./reads.js";
import { type Write, writeAll } from "./writes.js";

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

const holds = {
  what: "the jobs are",
  remedy: "open the jobs' own file with better-sqlite3 and keep your tables there",
} as const;

/** Runs operations in transactions of the caller's. */
export class Enlisted {
  readonly #options: EnlistOptions;
  readonly #callers: Callers;
  readonly #eventId = createEventIds();
  /** What open transactions have done so far, by connection, to be told when they end. */
  readonly #untold = new Map<object, Woke>();

  constructor(options: EnlistOptions) {
    this.#options = options;
    this.#callers = new Callers({ ...options, holds });
  }

  /** Carries out one write, all or nothing, so that a failing one leaves the caller's transaction as it was. */
  write(given: CallerTransaction, write: Write): readonly AppendOutcome[] {
    const woke = { ready: false, ended: false, cancel: false };
    return this.#callers.useAsOne(given, (tx) => {
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
      if (woke.ready || woke.ended || woke.cancel) this.#tellLater(tx, woke);
      return answer as readonly AppendOutcome[];
    });
  }

  /** Reads what the transaction is about to change: it stays as it is until that ends. */
  readToChange<Kind extends keyof Reads>(
    given: CallerTransaction,
    kind: Kind,
    ask: Reads[Kind]["ask"],
  ): Reads[Kind]["answer"] {
    // Who loads nothing changes nothing: it is looked at whether the transaction can be used.
    const isTrial = kind === "load" && (ask as Reads["load"]["ask"]).length === 0;
    if (!isTrial) this.#callers.use(given, (tx) => tx.execute(takeTurn, []));
    return this.read(given, kind, ask);
  }

  /** Carries out one read, which sees what the transaction has done. */
  read<Kind extends keyof Reads>(
    given: CallerTransaction,
    kind: Kind,
    ask: Reads[Kind]["ask"],
  ): Reads[Kind]["answer"] {
    const read = { kind, ask } as Read;
    const now = this.#options.clock.now();
    return this.#callers.use(given, (tx) => run(tx, readItem(now, read))) as never;
  }

  /** Tells what is still to be told, so that nothing is lost. */
  close(): void {
    this.#callers.close();
  }

  /** What a transaction does is told once, however much it is. */
  #tellLater(tx: SyncTransaction, woke: Woke): void {
    const told = this.#untold.get(tx.client);
    if (told === undefined) {
      this.#callers.whenEnded(tx, () => this.#tell(tx.client));
      this.#untold.set(tx.client, woke);
      return;
    }
    this.#untold.set(tx.client, {
      ready: woke.ready || told.ready,
      ended: woke.ended || told.ended,
      cancel: woke.cancel || told.cancel,
    });
  }

  #tell(client: object): void {
    const woke = this.#untold.get(client);
    this.#untold.delete(client);
    if (woke !== undefined) this.#options.onEnded(woke);
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
