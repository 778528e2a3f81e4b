// The peer BullMQ: a job queue on Redis. It is measured only where its package and a Redis server are
// installed; Millrace does not depend on either, so the few members that are used are named here.
import { type Bench, verify } from "../bench.js";
import { concurrently } from "../concurrently.js";
import { payloadOf, payloadsBetween } from "../payload.js";
import { concurrentCallers, createBatchSize } from "../sizes.js";
import { now, ratePerSecond } from "../statistics.js";
import { importIfInstalled, type Peer } from "./peer.js";
import {
  findRedisServer,
  type RedisAddress,
  type RedisSync,
  redisSettings,
  startRedis,
} from "./redis.js";

interface Queue {
  add(name: string, data: unknown): Promise<unknown>;
  addBulk(jobs: readonly { name: string; data: unknown }[]): Promise<unknown>;
  getJobCountByTypes(...states: string[]): Promise<number>;
  obliterate(options: { force: boolean }): Promise<void>;
  close(): Promise<void>;
}

interface Worker {
  on(event: "completed", listener: () => void): void;
  on(event: "error", listener: (error: Error) => void): void;
  close(): Promise<void>;
}

interface Bullmq {
  Queue: new (name: string, options: { connection: RedisAddress }) => Queue;
  Worker: new (
    name: string,
    handler: () => Promise<void>,
    options: { connection: RedisAddress; concurrency: number },
  ) => Worker;
}

/** A queue on a server of our own. */
interface Stage {
  readonly bullmq: Bullmq;
  readonly connection: RedisAddress;
  readonly queue: Queue;
}

const packageName = "bullmq";
/** What BullMQ talks to Redis with; its newer versions do not bring it along. */
const clientName = "ioredis";
const queueName = "bench";
/** With more, and with fewer, it drains more slowly. */
const concurrency = 100;

/** BullMQ, if its package and a Redis server are installed. */
export async function findBullmq(sync: RedisSync): Promise<Peer> {
  const bullmq = await importIfInstalled<Bullmq>(packageName);
  const client = await importIfInstalled(clientName);
  const binary = findRedisServer();
  const missing = [
    ...(bullmq === null ? ["the package bullmq is not installed"] : []),
    ...(client === null ? ["the package ioredis is not installed"] : []),
    ...(binary === null ? ["no redis-server is on the PATH"] : []),
  ];
  if (bullmq === null || client === null || binary === null) {
    return { system: "bullmq", present: false, reason: missing.join(", and ") };
  }
  let address: Promise<RedisAddress> | undefined;
  async function onStage(bench: Bench, work: (stage: Stage) => Promise<number>) {
    address ??= startRedis(binary as string, bench.workspace, sync);
    return withQueue(bullmq as Bullmq, await address, work);
  }
  return {
    system: "bullmq",
    present: true,
    settings: `its own redis-server, ${redisSettings(sync)}; worker concurrency ${concurrency}; keeps finished jobs, no history`,
    drain: (bench) => onStage(bench, (stage) => drain(stage, bench)),
    createConcurrent: (bench) => onStage(bench, (stage) => create(stage, bench, concurrentCallers)),
    createSequential: (bench) => onStage(bench, (stage) => create(stage, bench, 1)),
    createMany: (bench) => onStage(bench, (stage) => createMany(stage, bench)),
  };
}

async function withQueue(
  bullmq: Bullmq,
  connection: RedisAddress,
  work: (stage: Stage) => Promise<number>,
): Promise<number> {
  const queue = new bullmq.Queue(queueName, { connection });
  try {
    return await work({ bullmq, connection, queue });
  } finally {
    await queue.obliterate({ force: true });
    await queue.close();
  }
}

async function create({ queue }: Stage, bench: Bench, callers: number): Promise<number> {
  const count = bench.sizes.bullmqCreateJobs;
  const warmUp = bench.sizes.warmUpSequentialJobs;
  const add = (number: number) => queue.add(queueName, payloadOf(number));
  await concurrently(warmUp, callers, add);
  const start = now();
  await concurrently(count, callers, add);
  const rate = ratePerSecond(count, start);
  await verifyCount(queue, "waiting", warmUp + count);
  return rate;
}

async function createMany({ queue }: Stage, bench: Bench): Promise<number> {
  const count = bench.sizes.bullmqCreateJobs;
  const warmUp = bench.sizes.warmUpJobs;
  await addInBatches(queue, warmUp);
  const start = now();
  await addInBatches(queue, count);
  const rate = ratePerSecond(count, start);
  await verifyCount(queue, "waiting", warmUp + count);
  return rate;
}

async function drain(stage: Stage, bench: Bench): Promise<number> {
  const { bullmqDrainJobs: count, warmUpJobs: warmUp } = bench.sizes;
  await drainOnce(stage, warmUp);
  const rate = await drainOnce(stage, count);
  await verifyCount(stage.queue, "completed", warmUp + count);
  return rate;
}

async function drainOnce({ bullmq, connection, queue }: Stage, count: number): Promise<number> {
  await addInBatches(queue, count);
  const start = now();
  const worker = new bullmq.Worker(queueName, async () => {}, {
    connection,
    concurrency,
  });
  await new Promise<void>((resolve, reject) => {
    let completed = 0;
    worker.on("error", reject);
    worker.on("completed", () => {
      completed += 1;
      if (completed === count) resolve();
    });
  });
  const rate = ratePerSecond(count, start);
  await worker.close();
  return rate;
}

async function addInBatches(queue: Queue, count: number): Promise<void> {
  for (let from = 0; from < count; from += createBatchSize) {
    const payloads = payloadsBetween(from, Math.min(from + createBatchSize, count));
    await queue.addBulk(payloads.map((data) => ({ name: queueName, data })));
  }
}

async function verifyCount(queue: Queue, state: string, expected: number): Promise<void> {
  const found = await queue.getJobCountByTypes(state);
  verify(found === expected, () => `bullmq: ${found} of ${expected} jobs are ${state}`);
}
