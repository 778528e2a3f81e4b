/**
 * The numbers of lanes. They are stored outside of all other transactions, because a lane is the same for everybody
 * and nobody should wait for another's transaction to learn its number.
 */
import { laneNumber } from "../sql/log.js";
import type { Database } from "./driver.js";
import { newTransaction } from "./transaction.js";

/** What makes a lane. */
export interface LaneParts {
  readonly service: string;
  readonly queue: string;
  readonly type: string;
  readonly typeVersion: number;
}

export class Lanes {
  readonly #database: Database;
  /** The numbers by the names of the lanes. */
  readonly numbers = new Map<string, number>();

  constructor(database: Database) {
    this.#database = database;
  }

  /** Makes sure that the numbers of lanes are known; gives nothing to wait for when they all are. */
  ensure(lanes: Iterable<LaneParts>): Promise<void> | null {
    const missing = new Map<string, LaneParts>();
    for (const lane of lanes) {
      const name = `${lane.service}/${lane.queue}/${lane.type}@${lane.typeVersion}`;
      if (!this.numbers.has(name)) missing.set(name, lane);
    }
    return missing.size === 0 ? null : this.#store(missing.values());
  }

  async #store(missing: Iterable<LaneParts>): Promise<void> {
    const parts = { now: 0, eventId: () => "", lanes: this.numbers };
    for (const lane of missing) await this.#database.run(laneNumber(newTransaction(parts), lane));
  }
}
