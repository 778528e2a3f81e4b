/**
 * A projection in a schema of a PostgreSQL database.
 */
import type { Clock } from "../clock.js";
import { addressOf } from "../postgres/address.js";
import { Database } from "../postgres/driver.js";
import { isPassing } from "../postgres/faults.js";
import { migrate } from "../postgres/migrate.js";
import { loadDriver } from "../postgres/module.js";
import { run } from "../postgres/session.js";
import { channelOf, Wake } from "../postgres/wake.js";
import { BulkSession } from "./bulk.js";
import { Memory } from "./known.js";
import { type Read, type Reads, readItem } from "./reads.js";
import type { ProjectionStore } from "./store.js";
import { type ProjectionTransaction, projectionDialect } from "./transaction.js";
import { performWrite, type Writes } from "./writes.js";

/** How often a transaction is carried out while others keep getting in its way. */
const triesMax = 10;

export class PostgresProjectionStore implements ProjectionStore {
  readonly url: string;
  readonly #database: Database;
  readonly #wake: Wake;
  #last: Promise<unknown> = Promise.resolve();

  private constructor(database: Database, wake: Wake) {
    this.url = database.where;
    this.#database = database;
    this.#wake = wake;
  }

  /** Prepares to connect. */
  static async to(url: string, clock: Clock): Promise<PostgresProjectionStore> {
    const address = addressOf(url);
    const pg = await loadDriver(address.where);
    const database = new Database(pg, address, () => clock.now());
    const wake = new Wake({
      clock,
      channel: channelOf(address.schema),
      connect: () => database.listener(),
      notify: (notice) => database.notify(notice),
    });
    return new PostgresProjectionStore(database, wake);
  }

  open(): Promise<void> {
    return this.#guard(() =>
      this.#database.provision((client, address) => migrate(client, address, "projection")),
    );
  }

  /** Writes of this process follow each other: they would only wait for the same row. */
  write<Kind extends keyof Writes>(
    kind: Kind,
    ask: Writes[Kind]["ask"],
  ): Promise<Writes[Kind]["answer"]> {
    const turn = this.#last.then(() => this.#guard(() => this.#again(kind, ask)));
    this.#last = turn.catch(() => {});
    return turn;
  }

  async read<Kind extends keyof Reads>(
    kind: Kind,
    ask: Reads[Kind]["ask"],
  ): Promise<Reads[Kind]["answer"]> {
    const step = readItem(this.#database.now(), { kind, ask } as Read);
    return (await this.#guard(() => this.#database.run(step))) as Reads[Kind]["answer"];
  }

  listen(on: () => void): void {
    this.#wake.listen("ready", on);
  }

  async close(): Promise<void> {
    await this.#last;
    await this.#wake.close();
    await this.#database.close();
  }

  async #again<Kind extends keyof Writes>(
    kind: Kind,
    ask: Writes[Kind]["ask"],
  ): Promise<Writes[Kind]["answer"]> {
    for (let tries = 1; ; tries++) {
      try {
        const { tx, answer } = await this.#database.transaction(async (session, now) => {
          const begun = begin(now);
          const bulk = new BulkSession(session);
          const given = await run(bulk, performWrite(begun, kind, ask));
          await bulk.flush();
          return { tx: begun, answer: given };
        });
        if (tx.woke.ready) this.#wake.hint({ ready: true, ended: false, cancel: false });
        return answer;
      } catch (error) {
        if (tries === triesMax || !isPassing(error)) throw error;
      }
    }
  }

  async #guard<Value>(work: () => Promise<Value>): Promise<Value> {
    try {
      return await work();
    } catch (error) {
      throw await this.#database.faultOf(error);
    }
  }
}

function begin(now: number): ProjectionTransaction {
  // Another process may have cleared the projection and numbered the lanes anew, so that nothing is remembered.
  const memory = new Memory();
  return {
    dialect: projectionDialect,
    now,
    seq: 0,
    eventId: () => "",
    memory,
    lanes: memory.lanes,
    woke: { ready: false, ended: false, cancel: false },
    nextAt: Number.POSITIVE_INFINITY,
    lock: "FOR UPDATE",
    empty: "TRUNCATE",
  };
}
