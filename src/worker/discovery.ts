/**
 * Finds the lanes that routes serve. Lanes are recorded when a job is created, so that a worker with routes reads the
 * records: now and then, and soon after it was told that there may be something to claim.
 */
import type { Client } from "../client/client.js";
import { type UnnamedLane, unnamedLanes } from "../client/unnamed-lanes.js";
import type { WorkerLane } from "./lane.js";
import type { Lanes } from "./lanes.js";
import type { Router } from "./route.js";

/** How soon after another the records are read at the earliest, and how late at the latest. */
const readMinMs = 1_000;
const readMaxMs = 5_000;

/** What the discovery needs to know and to tell. */
export interface DiscoveryOptions {
  readonly client: Client;
  readonly lanes: Lanes;
  readonly router: Router;
  /** Lanes were added that may hold jobs. */
  readonly onFound: (lanes: readonly WorkerLane[]) => void;
}

export class Discovery {
  readonly #options: DiscoveryOptions;
  #isStopped = false;
  #readAt = Number.NEGATIVE_INFINITY;
  #plannedAt = Number.POSITIVE_INFINITY;
  #callOff: (() => void) | undefined;
  #stopHints: (() => void) | undefined;
  #reading: Promise<void> = Promise.resolve();

  constructor(options: DiscoveryOptions) {
    this.#options = options;
  }

  /** Reads the records, and goes on to. */
  async start(): Promise<void> {
    const { runtime, unnamedLanes } = this.#options.client;
    this.#stopHints = runtime.engine.wake("ready", () => this.#plan(readMinMs));
    // What this process has recorded itself it need not read.
    unnamedLanes.onRecorded = (lane) => this.#addAll([lane]);
    await this.#read();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#callOff?.();
    this.#stopHints?.();
    this.#options.client.unnamedLanes.onRecorded = undefined;
    await this.#reading;
  }

  /** Plans to read when the last time is so long ago, unless it is planned for earlier. */
  #plan(afterMs: number): void {
    const { clock } = this.#options.client.runtime;
    const at = Math.max(this.#readAt + afterMs, clock.monotonic());
    if (this.#isStopped || at >= this.#plannedAt) return;
    this.#callOff?.();
    this.#plannedAt = at;
    this.#callOff = clock.after(at - clock.monotonic(), () => {
      this.#reading = this.#read();
    });
  }

  async #read(): Promise<void> {
    const { engine, service, clock, logger } = this.#options.client.runtime;
    this.#plannedAt = Number.POSITIVE_INFINITY;
    this.#readAt = clock.monotonic();
    try {
      this.#addAll(await unnamedLanes(engine, service));
    } catch (error) {
      logger.warn({ error }, "The types that routes serve could not be read.");
    }
    this.#plan(readMaxMs);
  }

  /** Adds what a route fits, and then what nobody handles in the queues that are served. */
  #addAll(found: readonly UnnamedLane[]): void {
    const { client, lanes, router, onFound } = this.#options;
    const { service } = client.runtime;
    const unnamed = found.filter(({ type }) => client.currentJob(type) === undefined);
    const added: WorkerLane[] = [];
    const unrouted = unnamed.filter((lane) => {
      const job = router.jobOf(service, lane);
      const routed = job && lanes.add(job);
      if (routed) added.push(routed);
      return job === null;
    });
    for (const lane of unrouted) {
      const unserved = lanes.serves(lane.queue) ? lanes.add(router.unrouted(service, lane)) : null;
      if (unserved) added.push(unserved);
    }
    if (added.length > 0) onFound(added);
  }
}
