// Creates: how fast jobs are durably accepted, from one caller, from many, and in bulk.
import { bareCreateMany, bareCreateSequential } from "../bare.js";
import { type Bench, engineNames, type Measure } from "../bench.js";
import { concurrently } from "../concurrently.js";
import { type BenchJob, createJob, createJobs, type Stage, withStage } from "../millrace/stage.js";
import { verifyHistories } from "../millrace/verify.js";
import type { Peer } from "../peers/peer.js";
import { concurrentCallers, createBatchSize, shortRounds } from "../sizes.js";
import { now, ratePerSecond } from "../statistics.js";
import { contender, peerContenders, rateRow } from "./contenders.js";

/** What a create measure differs in. */
interface CreateKind {
  readonly name: string;
  readonly shows: string;
  readonly bareShare: number;
  readonly bare: (bench: Bench) => Promise<number>;
  readonly peerRound: Parameters<typeof peerContenders>[2];
  readonly create: (stage: Stage, bench: Bench) => Promise<readonly BenchJob[]>;
}

const createKinds: readonly CreateKind[] = [
  {
    name: "create-50",
    shows: `${concurrentCallers} callers, each durable; bare: single-row commits`,
    bareShare: 8,
    bare: bareCreateSequential,
    peerRound: (peer) => peer.createConcurrent,
    create: (stage, { sizes }) => createBy(concurrentCallers, stage, sizes.createConcurrentJobs),
  },
  {
    name: "create-1",
    shows: "one caller, each durable; bare: single-row commits",
    bareShare: 0.5,
    bare: bareCreateSequential,
    peerRound: (peer) => peer.createSequential,
    create: (stage, { sizes }) => createBy(1, stage, sizes.createSequentialJobs),
  },
  {
    name: "create-many",
    shows: `batches of ${createBatchSize}, each durable`,
    bareShare: 0.2,
    bare: bareCreateMany,
    peerRound: (peer) => peer.createMany,
    create: (stage, { sizes }) => createJobs(stage, "plain", sizes.createManyJobs),
  },
];

/** Measures creates, beside bare SQLite and the peers. */
export function createMeasures(peers: readonly Peer[]): Measure[] {
  return createKinds.map((kind) => ({
    name: kind.name,
    engines: engineNames,
    rounds: shortRounds,
    rows: [rateRow(kind.name, kind.shows, kind.bareShare)],
    contenders: [
      contender("bare", kind.name, kind.bare),
      contender("millrace", kind.name, (bench) => createOnStage(kind, bench)),
      ...peerContenders(peers, kind.name, kind.peerRound),
    ],
  }));
}

function createOnStage(kind: CreateKind, bench: Bench): Promise<number> {
  return withStage(bench, async (stage) => {
    const start = now();
    const jobs = await kind.create(stage, bench);
    const rate = ratePerSecond(jobs.length, start);
    await verifyHistories(stage, jobs, ["created"]);
    return rate;
  });
}

async function createBy(callers: number, stage: Stage, count: number): Promise<BenchJob[]> {
  const jobs: BenchJob[] = [];
  await concurrently(count, callers, async (number) => {
    jobs.push(await createJob(stage, "plain", number));
  });
  return jobs;
}
