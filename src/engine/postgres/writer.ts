/**
 * Writing to the PostgreSQL store. Calls become batches, each kind on its own, so that what may wait for a lock
 * (keys, records, leases that others hold) never holds up what does not. A batch is one transaction;
 * what fails in it is tried alone.
 */
import type { EventOf } from "../../core/event.js";
import type { Clock } from "../clock.js";
import type {
  AppendOutcome,
  Change,
  ClaimAnswer,
  ClaimAsk,
  HeldLease,
  RenewOutcome,
} from "../engine.js";
import type { RecordWrite, SwapOutcome } from "../record.js";
import { settleChange } from "../sql/append.js";
import { versionOf } from "../sql/caps.js";
import { flatChange } from "../sql/change.js";
import type { LaneParts } from "../sql/log.js";
import { plainEnd } from "../sql/plain.js";
import { swapRecord } from "../sql/records.js";
import type { Step } from "../sql/statement.js";
import { appendEach } from "./append-each.js";
import { Claimer } from "./claimer.js";
import { Creates } from "./creates.js";
import type { Database } from "./driver.js";
import { Ender } from "./ender.js";
import { isOfOneItem } from "./faults.js";
import { pruneDeleted } from "./feed.js";
import type { KeyedCreate } from "./keyed-create.js";
import { Lanes } from "./lanes.js";
import { renewLeases } from "./lease.js";
import { type Answers, type Calls, calls, type Perform, parted, withRest } from "./lines.js";
import { keysOf, lockInOrder, lockLeases, looksForCircle } from "./lock-order.js";
import { Noting } from "./noting.js";
import { unblockPlain } from "./plain-unblock.js";
import type { Session } from "./session.js";
import { SharedLeases } from "./shared-leases.js";
import type { PostgresTransaction } from "./transaction.js";
import { type Hints, Transactions } from "./transactions.js";

export class Writer {
  readonly #database: Database;
  readonly #lanes: Lanes;
  readonly #transactions: Transactions;
  readonly #creates: Creates;
  readonly #ends: Calls<Change, AppendOutcome | null>;
  readonly #appends: Calls<Change, AppendOutcome>;
  readonly #locking: Calls<Change, AppendOutcome>;
  readonly #commands: Calls<Change, AppendOutcome | null>;
  readonly #keyedCommands: Calls<Change, AppendOutcome>;
  readonly #settles: Calls<Change, AppendOutcome | null>;
  readonly #lockingSettles: Calls<Change, AppendOutcome>;
  readonly #unblocks: Calls<Change, AppendOutcome | null>;
  readonly #noting: Noting;
  readonly #renewals: Calls<HeldLease, RenewOutcome>;
  readonly #claimer: Claimer;
  readonly #ender: Ender;
  readonly #sharedLeases: SharedLeases;
  /** What was asked and has no answer yet. */
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(database: Database, clock: Clock, hints: Hints) {
    this.#database = database;
    this.#lanes = new Lanes(database, clock);
    this.#transactions = new Transactions(database, this.#lanes.numbers, hints);
    this.#sharedLeases = new SharedLeases(this.#transactions);
    this.#claimer = new Claimer(this.#transactions, this.#sharedLeases);
    this.#ender = new Ender(this.#transactions, this.#sharedLeases);
    this.#creates = new Creates(this.#transactions, database.poolMax);
    this.#ends = calls((batch) => this.#endBatch(batch));
    this.#appends = calls((batch) => this.#appendBatch(batch, appendEach));
    this.#locking = calls((batch) => this.#appendBatch(batch, appendInOrder));
    this.#commands = calls((batch) => this.#unkeyedBatch(batch, appendEach));
    this.#keyedCommands = calls((batch) => this.#appendBatch(batch, appendInOrder));
    this.#settles = calls((batch) => this.#unkeyedBatch(batch, settleEach));
    this.#lockingSettles = calls((batch) => this.#appendBatch(batch, settleInOrder));
    this.#unblocks = calls((batch) => this.#unblockBatch(batch));
    this.#noting = new Noting(this.#transactions, this.#sharedLeases);
    this.#renewals = calls((batch) => this.#renewBatch(batch));
  }

  /** How many calls wait for the batch of their kind that is under way. */
  get waiting(): number {
    const kinds: readonly { readonly waiting: number }[] = [
      ...[this.#creates, this.#appends, this.#locking],
      ...[this.#commands, this.#keyedCommands, this.#unblocks],
      ...[this.#ends, this.#settles, this.#lockingSettles, this.#noting, this.#renewals],
    ];
    return kinds.reduce((sum, { waiting }) => sum + waiting, 0);
  }

  /** Creates plain jobs. */
  create(changes: readonly Change[]): Promise<readonly AppendOutcome[]> {
    return this.#withLanes(changes.map(createdLane), () => this.#creates.plain(changes));
  }

  /** Creates jobs under keys. */
  createKeyed(changes: readonly KeyedCreate[]): Promise<readonly AppendOutcome[]> {
    return this.#withLanes(changes.map(createdLane), () => this.#creates.keyed(changes));
  }

  /** Appends changes of any kind. */
  append(changes: readonly Change[]): Promise<readonly AppendOutcome[]> {
    return this.#withLanes(lanesOf(changes), () => this.#appendLike(changes));
  }

  /**
   * Records, keys and ids that the caller chose may be locked for as long as a transaction of somebody's is open, and only who
   * needs them waits.
   */
  #appendLike(changes: readonly Change[]): Promise<readonly AppendOutcome[]> {
    if (changes.some((change) => bringsLock(change) || choosesId(change)))
      return this.#locking.call(changes);
    const areNew = changes.every(({ event }) => event.name === "created");
    return areNew ? this.#appends.call(changes) : this.#command(changes);
  }

  /** Changes existing jobs: first those without keys, and then the others, which may wait for theirs. */
  #command(changes: readonly Change[]): Promise<readonly AppendOutcome[]> {
    const done = this.#commands.call(changes);
    return done.then((known) => withRest(changes, known, this.#keyedCommands));
  }

  /** Ends jobs under their tokens. What has to be looked at alone may wait for somebody, and is settled apart from the others. */
  end(changes: readonly Change[]): Promise<readonly AppendOutcome[]> {
    const ended = this.#ends.call(changes);
    return this.#track(ended.then((known) => withRest(changes, known, this.#lockingSettles)));
  }

  /** Settles attempts in any way. Those of jobs with keys may wait for these, and are settled apart from the others. */
  settle(changes: readonly Change[]): Promise<readonly AppendOutcome[]> {
    if (changes.some(bringsLock)) return this.#track(this.#lockingSettles.call(changes));
    const settled = this.#settles.call(changes);
    return this.#track(settled.then((known) => withRest(changes, known, this.#lockingSettles)));
  }

  /** Lets blocked jobs go on. What is not plain is looked at as any other change is. */
  unblock(changes: readonly Change[]): Promise<readonly AppendOutcome[]> {
    const unblocked = this.#unblocks.call(changes);
    const line = { call: (rest: readonly Change[]) => this.#command(rest) };
    return this.#track(unblocked.then((known) => withRest(changes, known, line)));
  }

  /** Stores notes; gives which of them the fold takes. */
  note(notes: readonly Change[]): Promise<readonly boolean[]> {
    return this.#track(Promise.all(notes.map((note) => this.#noting.note(note))));
  }

  /** Extends leases. */
  renew(held: readonly HeldLease[]): Promise<readonly RenewOutcome[]> {
    return this.#track(this.#renewals.call(held));
  }

  /** Compares and sets each record on its own. */
  swap(writes: readonly RecordWrite[]): Promise<readonly SwapOutcome[]> {
    const swapOne = (write: RecordWrite) => this.#transactions.again((tx) => swapRecord(tx, write));
    return this.#track(Promise.all(writes.map(swapOne)));
  }

  /** Claims jobs. */
  claim(ask: ClaimAsk): Promise<ClaimAnswer> {
    const { numbers } = this.#lanes;
    if (ask.lanes.every(({ lane }) => numbers.has(lane)))
      return this.#track(this.#claimer.claim(ask));
    const lanes = ask.lanes.map((lane) => ({ ...lane, typeVersion: versionOf(lane) }));
    return this.#withLanes(lanes, () => this.#claimer.claim(ask));
  }

  /** Forgets what is old. */
  prune(before: number): Promise<number> {
    return this.#track(this.#transactions.again((tx) => pruneDeleted(tx.now, before)));
  }

  /** What an operation in a transaction of the caller's begins with. */
  begin(): PostgresTransaction {
    return this.#transactions.begin(this.#database.now());
  }

  /** A transaction of the caller's that did this has committed. */
  after(tx: PostgresTransaction): void {
    this.#transactions.after(tx);
  }

  /** Sees to it that jobs have leases of their own before a transaction of the caller's looks for them. */
  async ownLeases(
    jobs: readonly { readonly id: string; readonly token: number | undefined }[],
  ): Promise<void> {
    // Who names a token has claimed the job; others cannot know whether anybody has.
    const ids = jobs.flatMap(({ id, token }) =>
      token === undefined || this.#sharedLeases.has(id) ? [id] : [],
    );
    if (ids.length > 0) await this.#track(this.#sharedLeases.spread(ids));
  }

  /** Makes sure that the lanes of new jobs are known before a transaction of the caller's stores them. */
  knowLanes(changes: readonly Change[], session: Session): Promise<void> {
    return this.#lanes.ensureInside(lanesOf(changes), session);
  }

  /** Waits for everything that was asked, and leaves what can wait to others. */
  async close(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
    await this.#transactions.close();
  }

  /** Goes on at once where the lanes are known, as they are but for the first time. */
  #withLanes<Value>(lanes: readonly LaneParts[], go: () => Promise<Value>): Promise<Value> {
    const stored = this.#lanes.ensure(lanes);
    return this.#track(stored === null ? go() : stored.then(go));
  }

  /** Remembers a call until it is answered; its faults become the store's. */
  #track<Value>(work: Promise<Value>): Promise<Value> {
    const answered = work.then(
      (value) => {
        this.#underWay.delete(answered);
        return value;
      },
      async (error: unknown) => {
        const fault = await this.#database.faultOf(error);
        this.#underWay.delete(answered);
        throw fault;
      },
    );
    this.#underWay.add(answered);
    return answered;
  }

  /** Ends jobs together; `null` stands for those that have to be looked at alone. */
  async #endBatch(batch: readonly (readonly Change[])[]): Promise<Answers<AppendOutcome | null>> {
    return parted(batch, await this.#ender.end(batch.flat().map(plainEnd)));
  }

  /** Lets blocked jobs go on in one statement; `null` stands for those that it could not take. */
  async #unblockBatch(
    batch: readonly (readonly Change[])[],
  ): Promise<Answers<AppendOutcome | null>> {
    const changes = batch.flat();
    try {
      return parted(batch, await this.#transactions.again((tx) => unblockPlain(tx, changes)));
    } catch (error) {
      if (!isOfOneItem(error)) throw error;
      return parted(batch, Array<null>(changes.length).fill(null));
    }
  }

  /** Changes existing jobs that have no keys, so that nobody is waited for; `null` stands for those that have. */
  async #unkeyedBatch(
    batch: readonly (readonly Change[])[],
    perform: Perform<Change>,
  ): Promise<Answers<AppendOutcome | null>> {
    const changes = batch.flat();
    const keyed = await this.#database.run(keysOf(changes));
    const free = changes.filter(({ job }) => !keyed.has(job.id));
    const outcomes = (await this.#appendShared(free, perform)).values();
    const known = changes.map(({ job }) =>
      keyed.has(job.id) ? null : (outcomes.next().value as AppendOutcome),
    );
    return parted(batch, known);
  }

  async #appendBatch(
    batch: readonly (readonly Change[])[],
    perform: Perform<Change>,
  ): Promise<Answers<AppendOutcome>> {
    return parted(batch, await this.#appendShared(batch.flat(), perform));
  }

  /** Appends changes of jobs that may share leases. */
  #appendShared(
    changes: readonly Change[],
    perform: Perform<Change>,
  ): Promise<readonly AppendOutcome[]> {
    return this.#sharedLeases.on<Change, AppendOutcome>({
      items: changes,
      idOf: idOfChange,
      isDoubtful: ({ event }, { outcome }) => outcome === "conflict" && event.name !== "created",
      perform: (some) => this.#appendAll(some, perform),
    });
  }

  async #appendAll(
    changes: readonly Change[],
    perform: Perform<Change>,
  ): Promise<readonly AppendOutcome[]> {
    if (changes.length > 1) {
      try {
        return await this.#transactions.once((tx) => perform(tx, changes));
      } catch (error) {
        if (!isOfOneItem(error)) throw error;
      }
    }
    return this.#transactions.apart(changes, perform);
  }

  async #renewBatch(batch: readonly (readonly HeldLease[])[]): Promise<Answers<RenewOutcome>> {
    const outcomes = await this.#sharedLeases.on<HeldLease, RenewOutcome>({
      items: batch.flat(),
      idOf: ({ job }) => job.id,
      isDoubtful: (_, { outcome }) => outcome === "lost",
      perform: (held) => this.#transactions.again((tx) => renewLeases(tx, held)),
    });
    return parted(batch, outcomes);
  }
}

const idOfChange = ({ job }: Change) => job.id;

/** Appends any changes. Who has a key waits for no job, so that keys come first. */
function* appendInOrder(
  tx: PostgresTransaction,
  changes: readonly Change[],
): Step<readonly AppendOutcome[]> {
  yield* lockInOrder(tx, changes);
  return yield* appendEach(tx, changes);
}

/** Settles attempts that wait for no key and no record. */
function* settleEach(
  tx: PostgresTransaction,
  changes: readonly Change[],
): Step<readonly AppendOutcome[]> {
  const outcomes: AppendOutcome[] = [];
  for (const change of changes) outcomes.push(yield* settleChange(tx, flatChange(change)));
  return outcomes;
}

/** Settles any attempts. Who has their leases locked is waited for before there is a key, and who has no lease needs none. */
function* settleInOrder(
  tx: PostgresTransaction,
  changes: readonly Change[],
): Step<readonly AppendOutcome[]> {
  yield* lockInOrder(tx, yield* lockLeases(changes));
  return yield* settleEach(tx, changes);
}

/** Whether a change locks a record, the key of a job that it creates, or what circles of blockers are looked for under. */
function bringsLock(change: Change): boolean {
  const { event, records, follow } = change;
  if (records !== undefined || (event.name === "created" && event.key !== undefined)) return true;
  return looksForCircle(change) || (follow?.some(bringsLock) ?? false);
}

/** Whether a change creates a job under an id that another transaction may be about to store, too. */
function choosesId({ event, isFresh }: Change): boolean {
  return event.name === "created" && !isFresh;
}

/** The lane of the job that a plain create makes, to which nothing is added and of which nothing follows. */
const createdLane = ({ event }: Change) => event as EventOf<"created">;

/** The lanes of the jobs that changes create. */
function lanesOf(changes: readonly Change[]): readonly LaneParts[] {
  const lanes: LaneParts[] = [];
  for (const { event, follow } of changes) {
    if (event.name === "created") lanes.push(event);
    if (follow) lanes.push(...lanesOf(follow));
  }
  return lanes;
}
