// Creates: how fast jobs are durably accepted, from one caller, from many, and in bulk.
import { engineNames, type Measure, type Targets } from "../bench.js";
import type { Peer } from "../peers/peer.js";
import type { Round, Rounds } from "../rounds.js";
import { concurrentCallers, createBatchSize, shortRounds } from "../sizes.js";
import { allContenders, ofBare, ofBestPeer, rateRow } from "./contenders.js";

/** What a create measure differs in. */
interface CreateKind {
  readonly name: string;
  readonly shows: string;
  readonly targets: Targets;
  roundOf(rounds: Rounds): Round;
}

const createKinds: readonly CreateKind[] = [
  {
    name: "create-50",
    shows: `${concurrentCallers} callers, each durable; bare: single-row commits`,
    targets: {
      file: [ofBare("create-50", 8)],
      postgres: [ofBestPeer(10), ofBare("create-many", 0.2)],
      nats: [ofBestPeer(1)],
      "nats-always": [ofBestPeer(1)],
    },
    roundOf: (rounds) => rounds.createConcurrent,
  },
  {
    name: "create-1",
    shows: "one caller, each durable; bare: single-row commits",
    targets: { file: [ofBare("create-1", 0.5)], postgres: [ofBestPeer(2)] },
    roundOf: (rounds) => rounds.createSequential,
  },
  {
    name: "create-many",
    shows: `batches of ${createBatchSize}, each durable`,
    targets: { file: [ofBare("create-many", 0.2)], postgres: [ofBestPeer(1.3)] },
    roundOf: (rounds) => rounds.createMany,
  },
];

/** Measures creates, beside bare SQL and the peers. */
export function createMeasures(peers: readonly Peer[]): Measure[] {
  return createKinds.map(({ name, shows, targets, roundOf }) => ({
    name,
    engines: engineNames,
    rounds: shortRounds,
    rows: [rateRow(name, shows, targets)],
    contenders: allContenders(peers, name, roundOf),
  }));
}
