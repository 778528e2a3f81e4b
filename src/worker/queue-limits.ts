/**
 * The limits that operators give queues at run time. They are read now and then beside the claims, so that a worker
 * goes by a new one within seconds and a claim never waits for them.
 */
import type { Runtime } from "../client/runtime.js";
import { type QueueSettings, recordId } from "../engine/record.js";
import type { Lanes } from "./lanes.js";

/** How old what was read may be. */
const freshMs = 5_000;

export class QueueLimits {
  readonly #runtime: Runtime;
  readonly #lanes: Lanes;
  readonly #limits = new Map<string, number>();
  #readAt = Number.NEGATIVE_INFINITY;

  constructor(runtime: Runtime, lanes: Lanes) {
    this.#runtime = runtime;
    this.#lanes = lanes;
  }

  /** Whether no queue has a limit, as is most often so. */
  get isEmpty(): boolean {
    return this.#limits.size === 0;
  }

  /** The limit that an operator has given a queue; `undefined` where none has. */
  of(queue: string): number | undefined {
    return this.#limits.get(queue);
  }

  /** Reads the limits for the first time. */
  start(): Promise<void> {
    return this.#readOrTell();
  }

  /** Reads the limits again if what is known is old. Nobody waits for it. */
  refresh(): void {
    if (this.#runtime.clock.monotonic() - this.#readAt >= freshMs) void this.#readOrTell();
  }

  async #readOrTell(): Promise<void> {
    const { clock, logger } = this.#runtime;
    this.#readAt = clock.monotonic();
    try {
      await this.#read();
    } catch (error) {
      logger.warn({ error }, "The limits of queues could not be read; the worker keeps trying.");
    }
  }

  async #read(): Promise<void> {
    const { engine, service } = this.#runtime;
    const queues = [...new Set([...this.#lanes].map((lane) => lane.ask.queue))];
    const records = await engine.records(queues.map((queue) => recordId.queue(service, queue)));
    for (const [index, queue] of queues.entries()) {
      const settings = records[index]?.body as unknown as QueueSettings | undefined;
      if (typeof settings?.maxActive === "number") this.#limits.set(queue, settings.maxActive);
      else this.#limits.delete(queue);
    }
  }
}
