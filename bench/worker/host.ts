// The worker of a system with a handler that does nothing, as a worker process of the benchmark holds it.

/** The systems whose workers run in processes of their own. */
export const hostNames = ["millrace", "graphile-worker", "pg-boss"] as const;
export type HostName = (typeof hostNames)[number];

/** A worker that is connected and waits to be started. */
export interface WorkerHost {
  /** Starts to take jobs. */
  start(): Promise<void>;
  /** Finishes what runs, records it, and lets go of the store. */
  stop(): Promise<void>;
}

/** Connects a worker to a store. Its handler tells the number in the payload of every job that it is entered for. */
export type HostOpener = (url: string, onEntry: (number: number) => void) => Promise<WorkerHost>;
