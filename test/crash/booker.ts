// A caller that works in transactions of its own: each creates a few jobs, keyed and repeated ones and whole chains among
// them, or completes a chain, together with rows in the books. Some are taken back on purpose, some see the database as it was
// when they began, and those that meet others are run again, as a caller's would be.
import {
  type CreateOptions,
  JobAlreadyCompleted,
  JobNotEnqueued,
  JobNotFound,
  type Service,
  TransactionConflict,
  TransactionRefused,
} from "millrace";
import { Pool, type PoolClient } from "pg";
import type { Random } from "../simulation/random.js";
import { bookedPrefix, type Entry, enter } from "./books.js";
import { type contract, type JobType, noWork, type Work } from "./contract.js";
import { type CallerLine, faultOf } from "./lines.js";
import { pass } from "./time.js";

/** How often a transaction is run before the caller gives up. */
const runsMax = 20;

/** How many transactions a caller has open at once, and how long it rests between two. */
const linesMax = 2;
const restMs = 20;

/** How many repeated creates share a key, over all callers. */
const repeatedPerKey = 5;

/** How long a chain waits for its worker, so that the caller can complete it before. */
const chainDelayMs = 400;

/** The same until the caller has completed one: with so long a time it does, also on a slow machine. */
const firstChainDelayMs = 5_000;

const bookedTypes = [
  "quick",
  "charge",
  "capped",
  "failsStale",
  "requeues",
  "blocks",
] as const satisfies readonly JobType[];

/** What the steps of transactions are, some of them more often than others. */
const stepKinds = ["create", "create", "create", "repeat", "start", "complete"] as const;

/** What a caller needs to work in transactions. */
export interface BookerOptions {
  readonly url: string;
  readonly table: string;
  readonly service: Service<typeof contract.jobs>;
  readonly random: Random;
  readonly write: (line: CallerLine) => void;
  readonly work: (random: Random) => Work;
}

/** A transaction that is taken back on purpose. */
class Undone extends Error {}

/** What a transaction has come to so far: ids to tell of when it has committed, and those that never come to be. */
interface Doing {
  readonly client: PoolClient;
  readonly random: Random;
  readonly created: string[];
  readonly repeated: { readonly id: string; readonly idempotencyKey: string }[];
  readonly refused: string[];
  readonly chains: string[];
  hasCompleted: boolean;
  /** Whether the transaction sees the database as it was when it began. */
  readonly seesPast: boolean;
  isCommitting: boolean;
}

export class Booker {
  readonly #options: BookerOptions;
  readonly #pool: Pool;
  /** Chains that may not have been taken by a worker yet. */
  readonly #chains: string[] = [];
  /** Whether a chain was completed, and its transaction committed. */
  #hasCompleted = false;
  #count = 0;

  constructor(options: BookerOptions) {
    this.#options = options;
    this.#pool = new Pool({ connectionString: options.url, max: linesMax });
    // Whoever uses a connection that was lost is told by its statement.
    this.#pool.on("error", () => {});
    this.#pool.on("connect", (client) => client.on("error", () => {}));
  }

  /** Goes on until there is enough and a chain was completed. */
  async run(isEnough: () => boolean): Promise<void> {
    const lines = Array.from({ length: linesMax }, async () => {
      const random = this.#options.random.fork();
      while (!isEnough() || !this.#hasCompleted) {
        await this.#transaction(random);
        await pass(restMs);
      }
    });
    await Promise.all(lines);
    await this.#pool.end();
  }

  /** Runs a transaction, again and again while others get in its way. */
  async #transaction(random: Random): Promise<void> {
    const { write } = this.#options;
    const seed = random.fork();
    for (let runs = 0; runs < runsMax; runs++) {
      const error = await this.#runOnce(seed);
      if (TransactionConflict.is(error)) {
        write({ line: "again" });
        continue;
      }
      const isAnswer = error === null || error instanceof Undone || JobAlreadyCompleted.is(error);
      if (!isAnswer) write(faultOf("transaction", asFault(error)));
      return;
    }
    write(faultOf("transaction", new Error(`It met others ${runsMax} times.`)));
  }

  /** Runs a transaction once, and gives what it failed with. */
  async #runOnce(random: Random): Promise<Error | null> {
    let client: PoolClient;
    try {
      client = await this.#pool.connect();
    } catch (error) {
      return error as Error;
    }
    const doing: Doing = {
      client,
      random,
      created: [],
      repeated: [],
      refused: [],
      chains: [],
      hasCompleted: false,
      seesPast: random.chance(0.2),
      isCommitting: false,
    };
    try {
      await this.#steps(doing);
      this.#committed(doing);
      client.release();
      return null;
    } catch (error) {
      const broken = await client.query("ROLLBACK").then(
        () => undefined,
        (fault: Error) => fault,
      );
      client.release(broken);
      // Nobody knows what became of a commit that was not answered. Everything else is taken back.
      if (!(doing.isCommitting && isLoss(error)))
        for (const id of [...doing.created, ...doing.refused])
          this.#options.write({ line: "refused", id });
      return error as Error;
    }
  }

  async #steps(doing: Doing): Promise<void> {
    const { client, random, seesPast } = doing;
    await client.query(seesPast ? "BEGIN ISOLATION LEVEL REPEATABLE READ" : "BEGIN");
    const steps = random.chance(0.8) ? 1 : random.whole(2, 3);
    for (let step = 0; step < steps; step++) await this.#take(random.pick(stepKinds), doing);
    if (random.chance(0.2)) await client.query("SELECT pg_sleep($1)", [random.next() / 10]);
    if (random.chance(0.3)) throw new Undone();
    doing.isCommitting = true;
    const { command } = await client.query("COMMIT");
    if (command !== "COMMIT") throw new Error(`COMMIT was answered with ${command}.`);
  }

  #take(kind: (typeof stepKinds)[number], doing: Doing): Promise<void> {
    switch (kind) {
      case "create":
        return this.#create(doing);
      case "repeat":
        return this.#createRepeated(doing);
      case "start":
        return this.#startChain(doing);
      case "complete":
        return this.#completeChain(doing);
    }
  }

  #committed({ created, repeated, refused, chains, hasCompleted }: Doing): void {
    const { write } = this.#options;
    for (const id of created) write({ line: "acknowledged", id });
    for (const one of repeated) write({ line: "acknowledged", ...one });
    for (const id of refused) write({ line: "refused", id });
    this.#chains.push(...chains);
    this.#hasCompleted ||= hasCompleted;
  }

  /** Creates a job, now and then behind one of the same transaction. One that its key refuses leaves the others. */
  async #create(doing: Doing): Promise<void> {
    const { service, work } = this.#options;
    const { client: tx, random, created } = doing;
    const type = random.pick(bookedTypes);
    const id = this.#freshId();
    const [blocker] = random.chance(0.3) ? created : [];
    const options: CreateOptions = {
      id,
      tx,
      ...(blocker !== undefined && { blockers: [{ job: blocker, onBadEnd: "continue" }] }),
    };
    const payload = work(random);
    const made =
      type === "charge"
        ? await service.jobs.charge.create(
            { ...payload, next: random.chance(0.3) ? ["requeues"] : [] },
            options,
          )
        : await service.jobs[type].create(payload, options);
    if (made.isErr() && !JobNotEnqueued.is(made.error)) throw made.error;
    if (made.isErr()) doing.refused.push(id);
    else await this.#created(doing, id);
  }

  /** Creates a job that others create as well: whose it is, is written down by whoever made it. */
  async #createRepeated(doing: Doing): Promise<void> {
    const { service } = this.#options;
    const id = this.#freshId();
    const idempotencyKey = `booked-${Math.floor(this.#count / repeatedPerKey)}`;
    const options = { id, tx: doing.client, idempotencyKey };
    const made = await service.jobs.quick.create(noWork, options).orThrow();
    doing.repeated.push({ id: made.id, idempotencyKey });
    if (made.id === id) await this.#created(doing, id);
    else doing.refused.push(id);
  }

  async #startChain(doing: Doing): Promise<void> {
    const { service, work } = this.#options;
    const id = this.#freshId();
    const payload = { ...work(doing.random), next: ["quick" as const] };
    const delayMs = this.#hasCompleted ? chainDelayMs : firstChainDelayMs;
    const options = { id, tx: doing.client, delayMs };
    await service.chains.start("linked", payload, options).orThrow();
    await this.#created(doing, id);
    doing.chains.push(id);
  }

  /** Completes a chain that no worker has taken yet, with a continuation that may need a key. */
  async #completeChain(doing: Doing): Promise<void> {
    const { service, table } = this.#options;
    const { client: tx, random, seesPast } = doing;
    // Old ones may meet their workers. Until one was completed, the newest is the surest.
    const id = this.#hasCompleted ? this.#chains.shift() : this.#chains.pop();
    if (id === undefined) return;
    const chain = service.chains.ref("linked", id);
    let completed: string | undefined;
    const steps = service.chains.complete(
      chain,
      async ({ job, complete }) => {
        if (job.type !== "linked") return;
        completed = job.id;
        const { payload } = job;
        await complete(job, ({ continueWith }) =>
          continueWith(random.pick(["quick", "failsStale", "blocks"] as const), {
            ...payload,
            next: [],
          }),
        );
      },
      { tx },
    );
    const done = await steps;
    // It may have been started since the transaction began.
    if (done.isErr()) throw seesPast && JobNotFound.is(done.error) ? new Undone() : done.error;
    if (completed === undefined) return;
    await enter(tx, table, "completed", completed);
    doing.hasCompleted = true;
  }

  async #created({ client, created }: Doing, id: string): Promise<void> {
    const what: Entry = "created";
    created.push(id);
    await enter(client, this.#options.table, what, id);
  }

  #freshId(): string {
    return `${bookedPrefix}${process.pid}-${++this.#count}`;
  }
}

/** Whether a statement of the caller's, or of the store in its transaction, failed because the connection was lost. */
function isLoss(error: unknown): boolean {
  if (TransactionRefused.is(error)) return error.reason === "closed";
  if (!(error instanceof Error)) return false;
  const code = "code" in error ? String(error.code) : "";
  return /^(08|57P|E)/.test(code) || /Connection terminated|not queryable/.test(error.message);
}

/** An error as it is written down. */
function asFault(error: Error): Error {
  return isLoss(error)
    ? Object.assign(new Error(error.message), { name: "ConnectionLost" })
    : error;
}
