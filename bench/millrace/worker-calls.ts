// What a worker process of the benchmark can be asked, and what it says by itself.

/** How a drain went, as the worker's own process saw it. */
export interface DrainReport {
  readonly jobsPerSecond: number;
  /** The 99th percentile of the delay of the process's event loop. */
  readonly loopDelayMs: number;
  /** The most memory that the process has held so far. */
  readonly memoryMaxMb: number;
}

/** A handler was entered: for which job, and when on the clock that all processes share. */
export interface Entry {
  readonly number: number;
  readonly at: bigint;
}

/** The questions by name. */
export interface WorkerCalls {
  /** Starts the worker, and answers when that many jobs have durably completed. */
  drain(jobs: number): Promise<DrainReport>;
  /** Starts the worker. From then on every entry into a handler is told. */
  listen(): Promise<void>;
  /** The processor time that the process has used so far, in milliseconds. */
  processorMs(): Promise<number>;
  /** Stops the worker and lets go of the store. */
  stop(): Promise<void>;
}
