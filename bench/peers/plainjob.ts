// The peer plainjob: a job queue on better-sqlite3. It sets synchronous=NORMAL itself, which is not
// durable; here FULL is set afterwards, as everything else in the table has it.
import { join } from "node:path";
import Database from "better-sqlite3";
import { type Bench, verify } from "../bench.js";
import { payloadOf, payloadsBetween } from "../payload.js";
import type { Round } from "../rounds.js";
import { createBatchSize } from "../sizes.js";
import { now, ratePerSecond } from "../statistics.js";
import { importIfInstalled, type Peer } from "./peer.js";

type Plainjob = typeof import("plainjob");
type Queue = ReturnType<Plainjob["defineQueue"]>;

const jobType = "bench";
const silent = { error() {}, warn() {}, info() {}, debug() {} };

/** plainjob, if it is installed. */
export async function findPlainjob(): Promise<Peer> {
  const plainjob = await importIfInstalled<Plainjob>("plainjob");
  if (plainjob === null) {
    return { system: "plainjob", present: false, reason: "the package plainjob is not installed" };
  }
  const createSequential = createRound(plainjob, (queue, count) => {
    for (let number = 0; number < count; number += 1) queue.add(jobType, payloadOf(number));
  });
  return {
    system: "plainjob",
    present: true,
    settings:
      "WAL, synchronous=FULL, one job at a time as it has no concurrency setting; keeps finished jobs, no history; its create is synchronous, so 50 callers are one after the other",
    drain: (bench) => drain(plainjob, bench),
    createConcurrent: createSequential,
    createSequential,
    createMany: createRound(plainjob, addInBatches),
  };
}

function createRound(plainjob: Plainjob, create: (queue: Queue, count: number) => void): Round {
  return (bench) =>
    withQueue(plainjob, bench, async (queue) => {
      const count = bench.sizes.plainjobCreateJobs;
      const warmUp = bench.sizes.warmUpSequentialJobs;
      create(queue, warmUp);
      const start = now();
      create(queue, count);
      const rate = ratePerSecond(count, start);
      verifyCount(queue, plainjob.JobStatus.Pending, warmUp + count);
      return rate;
    });
}

function drain(plainjob: Plainjob, bench: Bench): Promise<number> {
  return withQueue(plainjob, bench, async (queue) => {
    const count = bench.sizes.plainjobDrainJobs;
    await drainOnce(plainjob, queue, count);
    const rate = await drainOnce(plainjob, queue, count);
    verifyCount(queue, plainjob.JobStatus.Done, 2 * count);
    return rate;
  });
}

async function drainOnce(plainjob: Plainjob, queue: Queue, count: number): Promise<number> {
  addInBatches(queue, count);
  let completed = 0;
  const worker = plainjob.defineWorker(jobType, async () => {}, {
    queue,
    logger: silent,
    onCompleted() {
      completed += 1;
      if (completed === count) void worker.stop();
    },
  });
  const start = now();
  await worker.start();
  return ratePerSecond(count, start);
}

function withQueue<Value>(
  plainjob: Plainjob,
  bench: Bench,
  work: (queue: Queue) => Promise<Value>,
): Promise<Value> {
  return bench.workspace.inFreshFolder(async (folder) => {
    const database = new Database(join(folder, "plainjob.db"));
    const queue = plainjob.defineQueue({ connection: plainjob.better(database), logger: silent });
    database.pragma("synchronous = FULL");
    try {
      return await work(queue);
    } finally {
      queue.close();
    }
  });
}

function addInBatches(queue: Queue, count: number): void {
  for (let from = 0; from < count; from += createBatchSize) {
    queue.addMany(jobType, payloadsBetween(from, Math.min(from + createBatchSize, count)));
  }
}

function verifyCount(queue: Queue, status: number, expected: number): void {
  const found = queue.countJobs({ type: jobType, status });
  verify(found === expected, () => `plainjob: ${found} of ${expected} jobs have status ${status}`);
}
