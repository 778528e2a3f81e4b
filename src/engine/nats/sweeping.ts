/**
 * The sweeper: a ticket that was given out for good while its job could still be claimed is gone, and a new one is written. Most jobs
 * that stand for long do so for good reason, such as a paused queue, and so each look goes on where the last one ended.
 */
import type { Projection } from "../projection/projection.js";
import type { StandingJob } from "../projection/tickets.js";
import { FirstFault } from "./first-fault.js";
import type { GivenOut } from "./given-out.js";
import type { Keys } from "./keys.js";
import type { Log } from "./log.js";
import { priorityLane, type Subjects } from "./subjects.js";

/** The most jobs that one look goes through. */
const lookMax = 500;

/** How long a job may stand in line before its ticket is looked for. */
const standingMs = 60_000;

/** Where the tickets end that consumers have given out for good; consumers that are not there, or of which nothing is known, are missing. */
type Floors = ReadonlyMap<string, number>;

/** What sweeping needs of the engine. */
export interface SweeperContext {
  readonly givenOut: GivenOut;
  readonly subjects: Subjects;
  readonly log: Log;
  readonly keys: Keys;
}

/** The sweeper of one process. */
export class Sweeper {
  readonly #context: SweeperContext;
  /** The number of the last job of each service that was looked at, unless all were. */
  readonly #lookedAt = new Map<string, number>();

  constructor(context: SweeperContext) {
    this.#context = context;
  }

  /** Looks at the next jobs of a service, and begins again with the first after the last. */
  async sweep(projection: Projection, service: string, now: number): Promise<void> {
    const after = this.#lookedAt.get(service) ?? 0;
    const ask = { service, since: now - standingMs, after, limit: lookMax };
    const found = await projection.longStanding(ask);
    // One lane that nobody answers for must not keep those of the others from being looked at.
    const [lanes, jobs] = [new FirstFault(), new FirstFault()];
    const floors = await this.#floors(found, lanes);
    for (const standing of found) {
      // A job that cannot be read must not be all that is ever looked at.
      this.#lookedAt.set(service, standing.n);
      await jobs.attempt(() => this.#look(standing, floors));
      if (jobs.isAway) break;
    }
    if (found.length < lookMax && !jobs.isAway) this.#lookedAt.delete(service);
    lanes.rethrow();
    jobs.rethrow();
  }

  /** Up to where the tickets of each lane were given out. All are asked at once, so that a server that is away is waited for once. */
  async #floors(found: readonly StandingJob[], faults: FirstFault): Promise<Floors> {
    const floors = new Map<string, number>();
    const ask = async (consumer: string) => {
      try {
        const floor = await this.#context.givenOut.upTo(consumer);
        if (floor !== null) floors.set(consumer, floor);
      } catch (error) {
        faults.note(error);
      }
    };
    await Promise.all([...new Set(found.map((each) => this.#consumer(each)))].map(ask));
    return floors;
  }

  #consumer(standing: StandingJob): string {
    return this.#context.subjects.consumer(standing, priorityLane(standing.priority));
  }

  async #look(standing: StandingJob, floors: Floors): Promise<void> {
    const { log, keys } = this.#context;
    const floor = floors.get(this.#consumer(standing));
    if (floor === undefined) return;
    const { job, ticketSeq } = await log.load(standing.id);
    const waits = job?.state === "pending" || job?.state === "retry";
    if (!waits || ticketSeq > floor) return;
    if (job.key) await keys.join(job);
    if (!job.key || (await keys.hasSlot(job))) await keys.ticket(job.id, "swept");
  }
}
