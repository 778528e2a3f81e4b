/**
 * Carries out operations in transactions: again where others got in the way, and afterwards tells what was done
 * and does what had to be left.
 */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { AppendOutcome } from "../engine.js";
import type { StoreError } from "../errors.js";
import type { Step } from "../sql/statement.js";
import type { Database, Notice, OperateOptions } from "./driver.js";
import { isOfOneItem, isPassing } from "./faults.js";
import { promoteKeys } from "./keys.js";
import type { Perform } from "./lines.js";
import { Promoter } from "./promoter.js";
import { finished, newTransaction, type PostgresTransaction } from "./transaction.js";

/** How often a transaction is carried out while others keep getting in its way. */
const triesMax = 10;

/** The longest pause between two of them. The others are as real as the server, and so is the time that they need. */
const pauseMaxMs = 50;

/** An operation that is begun anew each time that it is carried out. */
export type Operation<Value> = (tx: PostgresTransaction) => Step<Value>;

/** How others are told what a committed transaction did. */
export interface Hints {
  tell(woke: PostgresTransaction["woke"]): void;
  /**
   * The notification that something may be claimable, for whoever sends it with the statement that makes it so. None while
   * notifications rest, and then this is told as everything else is.
   */
  ready(): Notice | null;
  /** Such a statement is under way. */
  creating(): void;
  /** It has been answered. */
  created(): void;
  /** Other processes were told of this by that notification. */
  told(woke: PostgresTransaction["woke"], notice: Notice): void;
}

export class Transactions {
  readonly #database: Database;
  readonly #lanes: Map<string, number>;
  readonly #hints: Hints;
  readonly #promoter = new Promoter((keys) => this.#promote(keys));
  readonly #idStart = randomBytes(9).toString("hex");
  #idCount = 0;

  constructor(database: Database, lanes: Map<string, number>, hints: Hints) {
    this.#database = database;
    this.#lanes = lanes;
    this.#hints = hints;
  }

  /** What an operation begins with. */
  begin(now: number): PostgresTransaction {
    const eventId = () => `${this.#idStart}${(this.#idCount++).toString(36)}`;
    return newTransaction({ now, eventId, lanes: this.#lanes });
  }

  /** Carries out an operation once. What it throws is as the driver gave it. */
  async once<Value>(operation: Operation<Value>, options?: OperateOptions): Promise<Value> {
    let tx: PostgresTransaction | undefined;
    const value = await this.#database.operate((now) => {
      tx = this.begin(now);
      return finished(tx, operation);
    }, options);
    if (tx) this.after(tx);
    return value;
  }

  /** Carries out an operation that is a single statement, which needs no transaction around it, and makes jobs claimable. */
  async statement<Value>(operation: Operation<Value>): Promise<Value> {
    const tx = this.begin(this.#database.now());
    const notice = this.#hints.ready();
    this.#hints.creating();
    try {
      const value = await this.#database.runAndNotify(operation(tx), notice);
      if (notice) this.#hints.told(tx.woke, notice);
      else this.#hints.tell(tx.woke);
      return value;
    } finally {
      this.#hints.created();
    }
  }

  /** Carries out an operation, again if others got in its way. */
  async again<Value>(operation: Operation<Value>, options?: OperateOptions): Promise<Value> {
    for (let tries = 1; ; tries++) {
      try {
        return await this.once(operation, options);
      } catch (error) {
        if (tries === triesMax || !isPassing(error)) throw error;
        await sleep(Math.random() * Math.min(2 ** tries, pauseMaxMs));
      }
    }
  }

  /** Like `again`; what cannot be carried out is the item's own fault, or the store's, which is thrown. */
  async #alone<Value>(
    operation: Operation<Value>,
  ): Promise<{ readonly value: Value } | { readonly fault: StoreError }> {
    try {
      return { value: await this.again(operation) };
    } catch (error) {
      const fault = await this.#database.faultOf(error);
      if (isOfOneItem(error)) return { fault };
      throw fault;
    }
  }

  /** Each change gets a transaction of its own, so that only what is at fault fails. */
  async apart<Item>(
    changes: readonly Item[],
    perform: Perform<Item>,
  ): Promise<readonly AppendOutcome[]> {
    const outcomes: AppendOutcome[] = [];
    for (const change of changes) {
      const done = await this.#alone((tx) => perform(tx, [change]));
      if ("fault" in done) outcomes.push({ outcome: "faulted", error: done.fault });
      else outcomes.push(...done.value);
    }
    return outcomes;
  }

  /** What a caller sees of a fault. */
  faultOf(error: unknown): Promise<StoreError> {
    return this.#database.faultOf(error);
  }

  /** Tells what a committed transaction did, and does what it had to leave. */
  after({ woke, late }: PostgresTransaction): void {
    this.#hints.tell(woke);
    if (late.size > 0) this.#promoter.add(late);
  }

  /** Does what can be done of what was left, without waiting for anybody. */
  close(): Promise<void> {
    return this.#promoter.close();
  }

  /** Lets the next jobs of keys in. Gives the keys that are locked; where one is at fault, it does not hold up the others. */
  async #promote(keys: readonly string[]): Promise<readonly string[]> {
    try {
      return await this.again((tx) => promoteUnlocked(tx, keys));
    } catch (error) {
      if (keys.length === 1 || !isOfOneItem(error)) return keys;
    }
    const locked: string[] = [];
    for (const key of keys) locked.push(...(await this.#promote([key])));
    return locked;
  }
}

/** Lets the next jobs of keys in, and gives the keys that are locked. Whoever asked for this keeps them. */
function* promoteUnlocked(
  tx: PostgresTransaction,
  keys: readonly string[],
): Step<readonly string[]> {
  yield* promoteKeys(tx, keys);
  const locked = [...tx.late];
  tx.late.clear();
  return locked;
}
