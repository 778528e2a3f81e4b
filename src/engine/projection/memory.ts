/**
 * A projection in the memory of this process, for tests: the same tables and statements as in a file, carried out at
 * once and in this thread, so that a simulation with a clock of its own stays repeatable.
 */
import type { Clock } from "../clock.js";
import { type Connection, openWriter } from "../sqlite/driver.js";
import { createEventIds } from "../sqlite/event-ids.js";
import { faultOf, storeError } from "../sqlite/faults.js";
import { type Read, type Reads, readItem } from "./reads.js";
import type { ProjectionStore } from "./store.js";
import { onSqlite } from "./transaction.js";
import { performWrite, type Writes } from "./writes.js";

const url = "memory:";

/** The memory that a projection lies in. Several stores may have it open, as processes have a file. */
export class ProjectionMemory {
  readonly connection: Connection = openWriter(":memory:", "projection");
  readonly listeners = new Set<() => void>();
}

export class MemoryProjectionStore implements ProjectionStore {
  readonly url = url;
  readonly #clock: Clock;
  readonly #memory: ProjectionMemory;
  readonly #eventId = createEventIds();
  #listener: (() => void) | null = null;

  constructor(clock: Clock, memory: ProjectionMemory = new ProjectionMemory()) {
    this.#clock = clock;
    this.#memory = memory;
  }

  async open(): Promise<void> {}

  async write<Kind extends keyof Writes>(
    kind: Kind,
    ask: Writes[Kind]["ask"],
  ): Promise<Writes[Kind]["answer"]> {
    const { connection, listeners } = this.#memory;
    const woke = { ready: false, ended: false, cancel: false };
    const shared = { seq: 0, eventId: this.#eventId, woke };
    try {
      connection.exec("BEGIN IMMEDIATE");
      const tx = onSqlite({ ...shared, now: this.#clock.now() });
      const answer = connection.run(performWrite(tx, kind, ask));
      connection.exec("COMMIT");
      if (woke.ready) for (const listener of [...listeners]) listener();
      return answer;
    } catch (error) {
      connection.exec("ROLLBACK");
      throw storeError(faultOf(error, url), url);
    }
  }

  async read<Kind extends keyof Reads>(
    kind: Kind,
    ask: Reads[Kind]["ask"],
  ): Promise<Reads[Kind]["answer"]> {
    const step = readItem(this.#clock.now(), { kind, ask } as Read);
    return this.#memory.connection.run(step) as Reads[Kind]["answer"];
  }

  listen(on: () => void): void {
    this.#listener = on;
    this.#memory.listeners.add(on);
  }

  async close(): Promise<void> {
    if (this.#listener) this.#memory.listeners.delete(this.#listener);
  }
}
