/**
 * Changes that wait for what somebody's open transaction has locked. Those that need the same wait together, and all take
 * turns on a few connections, so that a lock that is held for long holds up nobody who needs another one.
 */
import { type AppendOutcome, batchMax, type Change } from "../engine.js";
import { isLockTimeout, isOfOneItem } from "./faults.js";
import type { Perform } from "./lines.js";
import { lockTimeoutMs } from "./settings.js";
import type { Transactions } from "./transactions.js";

/**
 * How long all turns of a round wait for their locks on one connection, and the shortest of them. A turn stands in the server's line, and
 * whoever gives up begins again at its end, so that nobody does as long as there is a connection left for whoever comes next.
 */
const roundMs = 1_000;
const turnMinMs = 5;

/** How long the first of some waits that are each tried alone before they are told. All have waited. */
const aloneMs = 100;

/** A change that waits for its turn, up to a time of the monotonic clock: who has the lock is as real as the server. */
interface Waiting<Item> {
  readonly item: Item;
  readonly until: number;
  readonly resolve: (outcome: AppendOutcome) => void;
  readonly reject: (error: unknown) => void;
}

export interface PatientLineOptions<Item> {
  readonly transactions: Transactions;
  /** What an item needs and others may have locked. */
  readonly needOf: (item: Item) => string;
  readonly perform: Perform<Item>;
  /** How many turns there may be at once, each on a connection of its own. */
  readonly turnsMax: number;
}

export class PatientLine<Item extends Change> {
  readonly #options: PatientLineOptions<Item>;
  /** Who waits for what, in the order of turns. */
  readonly #waiting = new Map<string, Waiting<Item>[]>();
  /** What those need whose turn it is. */
  readonly #served = new Set<string>();

  constructor(options: PatientLineOptions<Item>) {
    this.#options = options;
  }

  /** How many changes wait. */
  get waiting(): number {
    let count = 0;
    for (const line of this.#waiting.values()) count += line.length;
    return count;
  }

  /** Whether somebody waits for what an item needs, behind whom it has to wait, too. */
  isWaitedFor(item: Item): boolean {
    return this.#waiting.has(this.#options.needOf(item));
  }

  /** Carries out changes, each by itself. One that gets no lock for too long is told so. */
  call(items: readonly Item[]): Promise<readonly AppendOutcome[]> {
    return Promise.all(items.map((item) => this.#wait(item)));
  }

  #wait(item: Item): Promise<AppendOutcome> {
    const need = this.#options.needOf(item);
    return new Promise((resolve, reject) => {
      const waiting = { item, until: performance.now() + lockTimeoutMs, resolve, reject };
      const line = this.#waiting.get(need);
      if (line) line.push(waiting);
      else this.#waiting.set(need, [waiting]);
      if (this.#served.size < this.#options.turnsMax) void this.#serve();
    });
  }

  /** One turn after the other, until nobody waits. */
  async #serve(): Promise<void> {
    for (;;) {
      const next = this.#next();
      if (next === undefined) return;
      const [need, line] = next;
      this.#served.add(need);
      const served = await this.#turn(line.slice(0, batchMax));
      this.#served.delete(need);
      const left = line.filter((waiting) => !served.has(waiting));
      // Whoever goes on waiting does so behind those who need something else.
      this.#waiting.delete(need);
      if (left.length > 0) this.#waiting.set(need, left);
    }
  }

  /** Whose turn is next. */
  #next(): readonly [need: string, line: readonly Waiting<Item>[]] | undefined {
    for (const next of this.#waiting) if (!this.#served.has(next[0])) return next;
    return undefined;
  }

  /** Carries out changes that need the same, if they get it within a turn. Gives those that were answered. */
  async #turn(
    line: readonly Waiting<Item>[],
    lockMs = this.#turnMs(line),
  ): Promise<ReadonlySet<Waiting<Item>>> {
    const { transactions, perform } = this.#options;
    const items = line.map(({ item }) => item);
    try {
      const outcomes = await transactions.again((tx) => perform(tx, items), { lockMs });
      for (const [place, { resolve }] of line.entries()) resolve(outcomes[place] as AppendOutcome);
      return new Set(line);
    } catch (error) {
      return await this.#failed(line, error);
    }
  }

  async #failed(
    line: readonly Waiting<Item>[],
    error: unknown,
  ): Promise<ReadonlySet<Waiting<Item>>> {
    if (!isOfOneItem(error)) {
      for (const { reject } of line) reject(error);
      return new Set(line);
    }
    const now = performance.now();
    const over = isLockTimeout(error) ? line.filter(({ until }) => until <= now) : line;
    if (line.length === 1) {
      const fault = await this.#options.transactions.faultOf(error);
      for (const { resolve } of over) resolve({ outcome: "faulted", error: fault });
      return new Set(over);
    }
    // It may lie with one of them, so that each is tried alone before it is told. All need the same, which the first has waited
    // for, and whoever needs something else does not wait for all of them.
    const served = new Set<Waiting<Item>>();
    let lockMs = aloneMs;
    for (const waiting of over) {
      for (const each of await this.#turn([waiting], lockMs)) served.add(each);
      lockMs = turnMinMs;
      if (performance.now() >= now + roundMs) break;
    }
    return served;
  }

  /** All the time that the one who came first has left, or a share of the round where somebody may have to wait for that. */
  #turnMs([first]: readonly Waiting<Item>[]): number {
    const { turnsMax } = this.#options;
    const leftMs = (first?.until ?? 0) - performance.now();
    const shareMs = Math.min((roundMs * turnsMax) / this.#waiting.size, roundMs);
    const turnMs = this.#waiting.size < turnsMax ? leftMs : Math.min(shareMs, leftMs);
    return Math.max(turnMinMs, Math.floor(turnMs));
  }
}
