/**
 * All lanes of a worker. Those of handlers are there from the start; those of routes are added when they are found.
 */
import { createLane, type WorkerJob, type WorkerLane } from "./lane.js";

export class Lanes {
  readonly #byName = new Map<string, WorkerLane>();
  #concurrency = 0;

  /** Throws when two handlers are given for the same version of a type. */
  constructor(jobs: readonly WorkerJob[]) {
    for (const job of jobs) {
      const { type, definition } = job.bound;
      const { version } = definition.settings;
      if (this.add(job) === null)
        throw new Error(`Version ${version} of ${type} has two handlers; give each version one.`);
    }
  }

  [Symbol.iterator](): Iterator<WorkerLane> {
    return this.#byName.values();
  }

  get(name: string): WorkerLane | undefined {
    return this.#byName.get(name);
  }

  /** Adds a lane, unless it is there. */
  add(job: WorkerJob): WorkerLane | null {
    const lane = createLane(job);
    if (this.#byName.has(lane.name)) return null;
    this.#byName.set(lane.name, lane);
    this.#concurrency += lane.settings.concurrency;
    return lane;
  }

  /** How many jobs all lanes together may run. */
  get concurrency(): number {
    return this.#concurrency;
  }

  /** Whether a lane of the queue is handled here. */
  serves(queue: string): boolean {
    for (const { bound, isUnrouted } of this) {
      if (!isUnrouted && bound.queue === queue) return true;
    }
    return false;
  }
}
