// How pg-boss runs in the benchmark.

/** The name of the one queue. */
export const queueName = "bench";
/** How many jobs a worker takes, handles and completes at once. */
export const batchSize = 1_000;
/** How many workers a process runs. */
export const workersPerProcess = 2;
/** How often a worker looks for jobs when it has found less than a batch; it cannot be less. */
export const pollingIntervalSeconds = 0.5;
