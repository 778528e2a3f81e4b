// How graphile-worker runs in the benchmark.

/** The name of the one task. */
export const taskName = "bench";
/** How many jobs a worker process runs at once. */
export const concurrentJobs = 24;
/** How many jobs a worker process fetches at once. */
export const localQueueSize = 500;
/** Zero collects the completions of one turn of the event loop. */
export const batchDelayMs = 0;
