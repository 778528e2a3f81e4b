// Pickup: how soon a job starts in another process that has nothing to do.
import { type Contender, engineNames, type Measure, type SystemName } from "../bench.js";
import type { Peer } from "../peers/peer.js";
import type { Rounds } from "../rounds.js";
import { shortRounds } from "../sizes.js";
import { amountRow, below, millraceRounds, ofBestPeer } from "./contenders.js";

const medianName = "pickup-p50";
const percentile99Name = "pickup-p99";

/** Measures the time from just before a create to the entry of the handler. */
export function pickupMeasure(peers: readonly Peer[]): Measure {
  const shows = "call of create to handler, idle worker process";
  const postgres = [ofBestPeer(1)];
  const [soon, always] = [
    { nats: [below(2)], "nats-always": [below(2)] },
    { nats: [below(10)], "nats-always": [below(10)] },
  ];
  return {
    name: "pickup",
    engines: engineNames,
    rounds: shortRounds,
    rows: [
      amountRow(medianName, "ms", shows, { file: [below(2)], postgres, ...soon }),
      amountRow(percentile99Name, "ms", "the same", { file: [below(10)], postgres, ...always }),
    ],
    contenders: [
      ...contenders("millrace", millraceRounds),
      ...peers.flatMap((peer) => (peer.present ? contenders(peer.system, peer) : [])),
    ],
  };
}

function contenders(system: SystemName, { pickup }: Rounds): Contender[] {
  if (pickup === undefined) return [];
  return [
    {
      system,
      async run(bench) {
        const { medianMs, percentile99Ms } = await pickup(bench);
        return { [medianName]: medianMs, [percentile99Name]: percentile99Ms };
      },
    },
  ];
}
