/**
 * The sweeper: a ticket that was acknowledged while its job could still be claimed is gone, and a new one is written. Most jobs
 * that stand for long do so for good reason, such as a paused queue, and so each look goes on where the last one ended.
 */
import type { Projection } from "../projection/projection.js";
import type { StandingJob } from "../projection/tickets.js";
import type { Keys } from "./keys.js";
import type { Log } from "./log.js";
import type { Port } from "./port.js";
import { priorityLane, type Subjects } from "./subjects.js";

/** The most jobs that one look goes through. */
const lookMax = 500;

/** How long a job may stand in line before its ticket is looked for. */
const standingMs = 60_000;

/** What sweeping needs of the engine. */
export interface SweeperContext {
  readonly port: Port;
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
    const floors = new Map<string, Promise<number | null>>();
    for (const standing of found) {
      // A job that cannot be read must not be all that is ever looked at.
      this.#lookedAt.set(service, standing.n);
      await this.#look(standing, floors);
    }
    if (found.length < lookMax) this.#lookedAt.delete(service);
  }

  async #look(standing: StandingJob, floors: Map<string, Promise<number | null>>): Promise<void> {
    const { port, subjects, log, keys } = this.#context;
    const consumer = subjects.consumer(standing, priorityLane(standing.priority));
    const asked = floors.get(consumer) ?? port.acknowledgedUpTo(consumer);
    floors.set(consumer, asked);
    const floor = await asked;
    if (floor === null) return;
    const { job, ticketSeq } = await log.load(standing.id);
    const waits = job?.state === "pending" || job?.state === "retry";
    if (!waits || ticketSeq > floor) return;
    if (job.key) await keys.join(job);
    if (!job.key || (await keys.hasSlot(job))) await keys.ticket(job.id, "swept");
  }
}
