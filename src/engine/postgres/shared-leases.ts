/**
 * Leases that the jobs of one claim share. Most jobs of a busy lane are claimed together and end together, and nothing
 * happens to one of them in between. So a claim of many first tries writes one row for all of their leases, and their ends
 * take it away. Whatever else happens to one of the jobs spreads it first: each gets a lease of its own, and everything is
 * as it would have been. A row is put down and taken away, but never changed.
 */
import type { Step } from "../sql/statement.js";
import { array, list } from "./text.js";
import type { Transactions } from "./transactions.js";

/** How many jobs a claim must have to share a lease, and how many may: their numbers have to fit on one page. */
export const sharedMin = 32;
export const sharedMax = 800;

/** The columns of a lease, and what a shared lease `f` and the wide row `j` of a job say for them. */
const leaseColumns = `id, n, lane, rank, run_at, run, deadline, key, key_max, version, tries, token, until, capped, worker,
  started_at, updated_at, heartbeat_at, cancel, blocked, started`;
const leaseOfShared = `j.id, j.n, f.lane, -j.priority, j.run_at, 1, j.deadline, j.key_hash, j.key_max, 2, 1, 1, f.until, f.capped,
  f.worker, f.claimed_at, f.claimed_at, f.claimed_at, 0, 0, f.seq`;

/** Gives leases of their own to the jobs of the rows `freed` that meet a condition on their numbers, `m.n`. */
export function spreadFreed(condition: string): string {
  return `INSERT INTO leases (${leaseColumns})
    SELECT ${leaseOfShared} FROM freed f, unnest(f.jobs) AS m (n), LATERAL (SELECT * FROM jobs WHERE n = m.n OFFSET 0) AS j
    WHERE ${condition}`;
}

const spread = `WITH freed AS (
    DELETE FROM shared_leases WHERE seq = ANY(ARRAY(
      SELECT f.seq FROM (SELECT n FROM jobs WHERE id = ANY(${array("text")})) AS j, LATERAL (
        SELECT seq FROM shared_leases WHERE last_job >= j.n AND first_job <= j.n AND j.n = ANY(jobs) OFFSET 0
      ) AS f ORDER BY f.seq)) RETURNING *
  ),
  leased AS (${spreadFreed("true")})
  SELECT 1`;

/** Spreads the leases that jobs share with others. */
function* spreadLeases(ids: readonly string[]): Step<void> {
  yield { sql: spread, values: [list(ids)], raw: true, planned: true };
}

const lockShared = `SELECT f.seq FROM jobs j JOIN shared_leases f
    ON f.last_job >= j.n AND f.first_job <= j.n AND j.n = ANY(f.jobs)
  WHERE j.id = ANY(${array("text")}) AND current_setting('transaction_isolation') <> 'read committed' FOR KEY SHARE OF f`;

/**
 * Fails, as a conflict of transactions, where one of the caller's still sees a lease that was spread after its snapshot: it
 * cannot see the leases that came of it, and has to be begun anew.
 */
export function* refuseOldSnapshot(ids: readonly string[]): Step<void> {
  yield { sql: lockShared, values: [list(ids)] };
}

/** Where a job stands among those that share a lease. */
export interface SharedPlace {
  /** The round of their starts, which names the lease. */
  readonly seq: number;
  /** Counted from 1. */
  readonly place: number;
  /** The hash of the job's concurrency key, if it has one. */
  readonly key: string | undefined;
}

/** The most jobs that are remembered: more than a process runs at once. */
const rememberedMax = 20_000;

/** What is done to jobs that may share a lease. */
export interface OnLeases<Item, Answer> {
  readonly items: readonly Item[];
  idOf(item: Item): string;
  /** Whether the answer is that of a job which has no lease. */
  isDoubtful(item: Item, answer: Answer): boolean;
  perform(items: readonly Item[]): Promise<readonly Answer[]>;
}

/**
 * The shared leases as one process sees them. It remembers which of its jobs have one, which is a hint that saves a look: a
 * job that is not remembered, or whose lease was spread meanwhile, is looked for in the store.
 */
export class SharedLeases {
  readonly #transactions: Transactions;
  readonly #places = new Map<string, SharedPlace>();

  constructor(transactions: Transactions) {
    this.#transactions = transactions;
  }

  /** A claim has given jobs a lease that they share, in this order. Some of them may have keys. */
  remember(seq: number, ids: readonly string[], keys: ReadonlyMap<string, string>): void {
    for (const [index, id] of ids.entries())
      this.#places.set(id, { seq, place: index + 1, key: keys.get(id) });
    for (const id of this.#places.keys()) {
      if (this.#places.size <= rememberedMax) return;
      this.#places.delete(id);
    }
  }

  /** Whether a job of this process shares its lease, as far as is known. */
  has(id: string): boolean {
    return this.#places.has(id);
  }

  /** Gives where a job stands, once: after that it has a lease of its own, or none. */
  take(id: string): SharedPlace | undefined {
    const place = this.#places.get(id);
    if (place) this.#places.delete(id);
    return place;
  }

  /** Gives leases of their own to jobs that share one with others, and so to those others. Waits for who does so already. */
  async spread(ids: readonly string[]): Promise<void> {
    const known = ids.map((id) => this.#places.get(id));
    await this.#transactions.again(() => spreadLeases(ids));
    // Forgotten only now, because until the commit they have no leases of their own.
    for (const [index, id] of ids.entries())
      if (this.#places.get(id) === known[index]) this.#places.delete(id);
  }

  /**
   * Does something to jobs that have to have leases of their own for it. Those that this process knows of get them before.
   * Another process may have claimed a job whose answer is doubtful, or may spread its lease just now: it is asked again.
   */
  async on<Item, Answer>(wish: OnLeases<Item, Answer>): Promise<readonly Answer[]> {
    const { items, idOf, isDoubtful, perform } = wish;
    const known = items.map(idOf).filter((id) => this.#places.has(id));
    if (known.length > 0) await this.spread(known);
    const answers = await perform(items);
    const doubtful = items.filter((item, index) => isDoubtful(item, answers[index] as Answer));
    if (doubtful.length === 0) return answers;
    await this.spread(doubtful.map(idOf));
    const better = new Map(
      (await perform(doubtful)).map((answer, index) => [doubtful[index], answer]),
    );
    return items.map((item, index) => better.get(item) ?? (answers[index] as Answer));
  }
}
