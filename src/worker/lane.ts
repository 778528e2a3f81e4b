/**
 * The lanes that a worker serves, one for each version of a job type, and the places in them.
 */
import type { BoundJob } from "../contract/definition.js";
import type { JobSettings } from "../contract/settings.js";
import { type Lane, laneOf } from "../core/order.js";
import type { ClaimLane } from "../engine/engine.js";
import type { ActiveJob } from "./active-job.js";
import type { Middleware } from "./middleware.js";

/** How long a killed process may take to be gone before its handler counts as one that ignored its signal. */
const killMs = 5_000;

/** The code that carries out a job. */
export type Handler = (job: ActiveJob<unknown>) => unknown | Promise<unknown>;

/** One version of a job type and the code that carries it out. */
export interface WorkerJob {
  readonly bound: BoundJob;
  readonly handler: Handler;
  /** The handler's own middleware. */
  readonly use?: Middleware;
  /** The handler only says that there is none. */
  readonly isUnrouted?: boolean;
}

/** A version of a job type in this worker. */
export interface WorkerLane extends WorkerJob {
  readonly name: Lane;
  readonly settings: JobSettings;
  /** How often its leases are renewed: as the type says, but never so rarely that one failure loses them. */
  readonly renewMs: number;
  /** What its handlers get beyond the grace time: those in processes of their own are killed when that is over. */
  readonly killMs: number;
  /** What every claim says of the lane. */
  readonly ask: Omit<ClaimLane, "free">;
  /** How many of its places are taken. */
  running: number;
  /** How many more are asked for by claims under way. */
  asked: number;
}

/** Sets up the lane of a handler. */
export function createLane(job: WorkerJob): WorkerLane {
  const { service, type, queue, definition } = job.bound;
  const { settings } = definition;
  const lane = laneOf({ service, queue, type, typeVersion: settings.version });
  const { leaseMs, maxActive } = settings;
  return {
    ...job,
    name: lane,
    settings,
    renewMs: Math.min(settings.renewMs, settings.leaseMs / 3),
    killMs: settings.isolate === undefined ? 0 : killMs,
    running: 0,
    asked: 0,
    ask: {
      lane,
      service,
      queue,
      type,
      leaseMs,
      ...(maxActive === undefined ? null : { typeMaxActive: maxActive }),
      ...(settings.queue.maxActive === undefined
        ? null
        : { queueMaxActive: settings.queue.maxActive }),
    },
  };
}
