// How much of everything a run does: enough for steady numbers, or less for a quick look.

/** The amounts of a run. Slow systems get fewer jobs, so that rounds stay close in time. */
export interface Sizes {
  /** Jobs that every contender creates or runs before its timed part: a fresh process is slow at first. */
  readonly warmUpJobs: number;
  /** The same where they are created one after the other. */
  readonly warmUpSequentialJobs: number;
  readonly drainJobs: number;
  readonly drainKeyedJobs: number;
  readonly createConcurrentJobs: number;
  readonly createSequentialJobs: number;
  readonly createManyJobs: number;
  readonly pickupSamples: number;
  readonly idleMs: number;
  readonly isolatedBacklogJobs: number;
  /** Finished jobs that the file of the `-1m` measures keeps. */
  readonly keptJobs: number;
  /** Jobs that wait in another queue in the `-waiting` measure. */
  readonly waitingJobs: number;
  readonly bareClaimJobs: number;
  readonly bareSingleRows: number;
  readonly bareBatchedRows: number;
  readonly plainjobDrainJobs: number;
  readonly plainjobCreateJobs: number;
  readonly bullmqDrainJobs: number;
  readonly bullmqCreateJobs: number;
  readonly postgresPeerConcurrentJobs: number;
  readonly postgresPeerSequentialJobs: number;
  /** For a peer that polls, every half second. */
  readonly pollingPickupSamples: number;
}

/** The sizes of a full run. */
export const fullSizes: Sizes = {
  warmUpJobs: 10_000,
  warmUpSequentialJobs: 2_000,
  drainJobs: 100_000,
  drainKeyedJobs: 50_000,
  createConcurrentJobs: 50_000,
  createSequentialJobs: 4_000,
  createManyJobs: 100_000,
  pickupSamples: 1_000,
  idleMs: 30_000,
  isolatedBacklogJobs: 400,
  keptJobs: 1_000_000,
  waitingJobs: 100_000,
  bareClaimJobs: 100_000,
  bareSingleRows: 6_000,
  bareBatchedRows: 300_000,
  plainjobDrainJobs: 3_000,
  plainjobCreateJobs: 4_000,
  bullmqDrainJobs: 100_000,
  bullmqCreateJobs: 20_000,
  postgresPeerConcurrentJobs: 10_000,
  postgresPeerSequentialJobs: 2_000,
  pollingPickupSamples: 60,
};

/** The sizes of a quick look. */
export const quickSizes: Sizes = {
  warmUpJobs: 5_000,
  warmUpSequentialJobs: 1_000,
  drainJobs: 20_000,
  drainKeyedJobs: 10_000,
  createConcurrentJobs: 10_000,
  createSequentialJobs: 1_000,
  createManyJobs: 20_000,
  pickupSamples: 100,
  idleMs: 10_000,
  isolatedBacklogJobs: 100,
  keptJobs: 100_000,
  waitingJobs: 20_000,
  bareClaimJobs: 50_000,
  bareSingleRows: 2_000,
  bareBatchedRows: 100_000,
  plainjobDrainJobs: 1_000,
  plainjobCreateJobs: 1_000,
  bullmqDrainJobs: 20_000,
  bullmqCreateJobs: 5_000,
  postgresPeerConcurrentJobs: 3_000,
  postgresPeerSequentialJobs: 1_000,
  pollingPickupSamples: 10,
};

/** How many jobs one batched insert or `createMany` carries. */
export const createBatchSize = 1_000;
/** How many jobs the bare scripts claim and complete at once. */
export const bareClaimBatchSize = { sqlite: 100, postgres: 500 } as const;
/** How many callers create at the same time. */
export const concurrentCallers = 50;
/** How many concurrency keys the keyed jobs spread over. */
export const keyCount = 1_000;
/** How many jobs a worker process of Millrace runs at once: more where a claim goes to a server, and where a batch has its price there. */
export function workerConcurrencyOn(engineOrUrl: string): number {
  if (engineOrUrl.startsWith("nats")) return 3_000;
  return engineOrUrl.startsWith("postgres") ? 1_000 : 500;
}
/** How many capped jobs may run at once in the whole cluster: more than ever do. */
export const clusterCap = 5_000;
/** How often a short measure is repeated; the table shows the median. */
export const shortRounds = 3;
