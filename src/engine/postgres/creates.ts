/**
 * Creates of one process. Those that cannot wait for anybody are one statement for many. Those that may (an id that the caller
 * chose, a key) go in lines of their own: what meets a lock there waits for it apart from the others.
 */
import type { AppendOutcome, Change } from "../engine.js";
import { plainCreate } from "../sql/plain.js";
import { Wakeful } from "../wakeful.js";
import { appendEach } from "./append-each.js";
import { isLockTimeout, isOfOneItem } from "./faults.js";
import { createKeyed, type KeyedCreate } from "./keyed-create.js";
import { lookAtLocks } from "./keys.js";
import { type Answers, type Calls, calls, parted, withRest } from "./lines.js";
import { PatientLine } from "./patient-line.js";
import { createAllFresh, createAllPlain, createPlain } from "./plain-create.js";
import type { PostgresTransaction } from "./transaction.js";
import type { Transactions } from "./transactions.js";

/** How long the answer to a single create is waited for without sleeping. Beyond a network it takes longer, and nobody waits. */
const answerMaxMs = 1;

/** How long a batch waits for locks that others hold for a moment. Whoever holds one for longer is waited for apart. */
const lockSoonMs = 100;

/** Of so many connections one may wait for a lock of one kind. */
const connectionsPerTurn = 3;

/** How often a batch of keyed creates is carried out without some of them. */
const keyedRoundsMax = 3;

export class Creates {
  readonly #transactions: Transactions;
  readonly #fresh: Calls<Change, AppendOutcome>;
  readonly #chosen: Calls<Change, AppendOutcome | null>;
  readonly #patientChosen: PatientLine<Change>;
  readonly #keyed: Calls<KeyedCreate, AppendOutcome | null>;
  readonly #patientKeyed: PatientLine<KeyedCreate>;
  readonly #wakeful = new Wakeful(answerMaxMs);

  /** The process has so many connections. */
  constructor(transactions: Transactions, connections: number) {
    this.#transactions = transactions;
    const turnsMax = Math.max(1, Math.floor(connections / connectionsPerTurn));
    this.#fresh = calls((batch) => this.#freshBatch(batch));
    this.#chosen = calls((batch) => this.#chosenBatch(batch));
    this.#patientChosen = new PatientLine({
      transactions,
      needOf: ({ job }) => job.id,
      perform: (tx, changes) => createPlain(tx, changes.map(plainCreate)),
      turnsMax,
    });
    this.#keyed = calls((batch) => this.#keyedBatch(batch));
    this.#patientKeyed = new PatientLine({
      transactions,
      needOf: ({ event }) => event.key.hash,
      perform: (tx, changes) => createKeyed(tx, changes, false),
      turnsMax,
    });
  }

  /** How many calls wait for the batch of their kind that is under way, and how many changes wait for locks. */
  get waiting(): number {
    const lines = [this.#fresh, this.#chosen, this.#patientChosen, this.#keyed, this.#patientKeyed];
    return lines.reduce((sum, { waiting }) => sum + waiting, 0);
  }

  /** Creates plain jobs. One whose id the caller chose waits for whoever has stored the same id and not committed yet. */
  plain(changes: readonly Change[]): Promise<readonly AppendOutcome[]> {
    if (changes.every(({ isFresh }) => isFresh)) return this.#fresh.call(changes);
    const created = this.#chosen.call(changes);
    return created.then((known) => withRest(changes, known, this.#patientChosen));
  }

  /** Creates jobs under keys. */
  keyed(changes: readonly KeyedCreate[]): Promise<readonly AppendOutcome[]> {
    const created = this.#keyed.call(changes);
    return created.then((known) => withRest(changes, known, this.#patientKeyed));
  }

  /** Plain creates of many callers are one statement. */
  async #freshBatch(batch: readonly (readonly Change[])[]): Promise<Answers<AppendOutcome>> {
    const changes = batch.flat();
    // Whoever creates one job after the other finds this process awake when the answer comes.
    if (changes.length === 1) this.#wakeful.asked();
    try {
      return parted(batch, await this.#createFresh(changes));
    } finally {
      this.#wakeful.answered();
    }
  }

  async #createFresh(changes: readonly Change[]): Promise<readonly AppendOutcome[]> {
    const items = changes.map(plainCreate);
    // An id that is taken is rare: all are stored at once, and only if that fails each is looked at.
    for (const create of [createAllFresh, createPlain]) {
      try {
        return await this.#transactions.statement((tx) => create(tx, items));
      } catch (error) {
        if (!isOfOneItem(error)) throw error;
      }
    }
    return this.#transactions.apart(changes, appendEach);
  }

  /** The same, if nobody is in the way; `null` stands for those that have to be looked at alone. */
  async #chosenBatch(
    batch: readonly (readonly Change[])[],
  ): Promise<Answers<AppendOutcome | null>> {
    const changes = batch.flat();
    const open = changes.filter((change) => !this.#patientChosen.isWaitedFor(change));
    const items = open.map(plainCreate);
    for (const create of open.length > 0 ? [createAllPlain, createPlain] : []) {
      try {
        const options = { lockMs: lockSoonMs };
        const outcomes = await this.#transactions.once((tx) => create(tx, items), options);
        return parted(batch, withNull(changes, open, outcomes));
      } catch (error) {
        if (!isOfOneItem(error)) throw error;
        if (isLockTimeout(error)) break;
      }
    }
    return parted(batch, withNull(changes, [], []));
  }

  /**
   * Creates under keys of many callers are a handful of statements; `null` stands for those that have to be looked at alone. Where a
   * key is locked for longer the others go without it: at first all whose keys nobody has locked, and if that does not help,
   * because somebody is about to make a key, those whose keys are there.
   */
  async #keyedBatch(
    batch: readonly (readonly KeyedCreate[])[],
  ): Promise<Answers<AppendOutcome | null>> {
    const changes = batch.flat();
    let open: readonly KeyedCreate[] = changes.filter(
      (change) => !this.#patientKeyed.isWaitedFor(change),
    );
    let tries = 0;
    for (let round = 1; open.length > 0 && round <= keyedRoundsMax; round++) {
      const some = open;
      try {
        const create = (tx: PostgresTransaction) => createKeyed(tx, some, tries++ === 0);
        const outcomes = await this.#transactions.again(create, { lockMs: lockSoonMs });
        return parted(batch, withNull(changes, some, outcomes));
      } catch (error) {
        if (!isOfOneItem(error)) throw error;
        if (!isLockTimeout(error)) break;
        open = await this.#unlockedOf(some, round === 1);
      }
    }
    return parted(batch, withNull(changes, [], []));
  }

  /** Those whose keys nobody has locked; with `orNew` also those whose keys are not there, if that leaves some out. */
  async #unlockedOf(
    changes: readonly KeyedCreate[],
    orNew: boolean,
  ): Promise<readonly KeyedCreate[]> {
    const hashes = [...new Set(changes.map(({ event }) => event.key.hash))];
    const { free, locked } = await this.#transactions.once(() => lookAtLocks(hashes));
    return orNew && locked.size > 0
      ? changes.filter(({ event }) => !locked.has(event.key.hash))
      : changes.filter(({ event }) => free.has(event.key.hash));
  }
}

/** Outcomes of all changes, `null` for those that are not among the ones that have some. */
function withNull<Item extends Change>(
  changes: readonly Item[],
  done: readonly Item[],
  outcomes: readonly AppendOutcome[],
): readonly (AppendOutcome | null)[] {
  if (done.length === changes.length) return outcomes;
  const known = new Map(done.map((change, place) => [change, outcomes[place]]));
  return changes.map((change) => known.get(change) ?? null);
}
