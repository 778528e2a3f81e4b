/**
 * The numbers of lanes. They are stored outside of all other transactions, because a lane is the same for everybody
 * and nobody should wait for another's transaction to learn its number.
 */
import type { Clock } from "../clock.js";
import { StoreBusy } from "../errors.js";
import { findLane, type LaneParts, laneNumber } from "../sql/log.js";
import type { Database } from "./driver.js";
import { run, type Session } from "./session.js";
import { newTransaction } from "./transaction.js";

/** How long a transaction of the caller's waits for the number of a lane that is stored outside of it. */
const insideMaxMs = 5_000;

export class Lanes {
  readonly #database: Database;
  readonly #clock: Clock;
  /** The numbers by the names of the lanes. */
  readonly numbers = new Map<string, number>();
  /** The lanes that are being stored. */
  readonly #storing = new Map<string, Promise<void>>();

  constructor(database: Database, clock: Clock) {
    this.#database = database;
    this.#clock = clock;
  }

  /** Makes sure that the numbers of lanes are known; gives nothing to wait for when they all are. */
  ensure(lanes: readonly LaneParts[]): Promise<void> | null {
    for (const lane of lanes)
      if (!this.numbers.has(nameOf(lane))) return this.#store(this.#missing(lanes));
    return null;
  }

  /**
   * Makes sure of it for a transaction of the caller's. What that can see needs no other connection, of which there may be
   * none: behind a pooler all may be taken by transactions that wait for this. So the wait for one ends.
   */
  async ensureInside(lanes: Iterable<LaneParts>, session: Session): Promise<void> {
    const missing = this.#missing(lanes);
    for (const [name, lane] of missing) {
      const number = await run(session, findLane(lane));
      if (number === null) continue;
      this.numbers.set(name, number);
      missing.delete(name);
    }
    if (missing.size === 0) return;
    let callOff = () => {};
    const tooLong = new Promise<never>((_, reject) => {
      callOff = this.#clock.after(insideMaxMs, () => reject(this.#busy([...missing.keys()])));
    });
    await Promise.race([this.#store(missing), tooLong]).finally(callOff);
  }

  #missing(lanes: Iterable<LaneParts>): Map<string, LaneParts> {
    const missing = new Map<string, LaneParts>();
    for (const lane of lanes) {
      const name = nameOf(lane);
      if (!this.numbers.has(name)) missing.set(name, lane);
    }
    return missing;
  }

  async #store(missing: ReadonlyMap<string, LaneParts>): Promise<void> {
    for (const [name, lane] of missing) {
      const storing = this.#storing.get(name) ?? this.#storeOne(lane);
      this.#storing.set(name, storing);
      await storing.finally(() => this.#storing.delete(name));
    }
  }

  async #storeOne(lane: LaneParts): Promise<void> {
    const parts = { now: 0, eventId: () => "", lanes: this.numbers };
    try {
      await this.#database.run(laneNumber(newTransaction(parts), lane));
    } catch (error) {
      // A transaction of the caller's may wait for this, and would take it for a fault of its own connection.
      throw await this.#database.faultOf(error);
    }
  }

  #busy(names: readonly string[]): StoreBusy {
    const message = `The first job of ${names.join(" and ")} needs a connection beside your transaction for a moment, and there was none for ${insideMaxMs / 1_000} s. Roll back and try again; behind a pooler, have more sessions than transactions that are open at once. Nothing of this call was stored.`;
    return new StoreBusy({ url: this.#database.where, message });
  }
}

/** The name of a lane, under which its number is known. */
function nameOf({ service, queue, type, typeVersion }: LaneParts): string {
  return `${service}/${queue}/${type}@${typeVersion}`;
}
