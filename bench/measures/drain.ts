// Drain: how fast one worker process, or two, run a backlog of jobs whose handlers do nothing.
import { engineNames, type Measure } from "../bench.js";
import type { Peer } from "../peers/peer.js";
import { shortRounds } from "../sizes.js";
import { allContenders, ofBare, ofBestPeer, rateRow } from "./contenders.js";

const name = "drain";
const nameByTwo = "drain-2";

/** Measures the drain, beside bare SQL and the peers. */
export function drainMeasures(peers: readonly Peer[]): Measure[] {
  return [
    {
      name,
      engines: engineNames,
      rounds: shortRounds,
      rows: [
        rateRow(name, "backlog, one worker process", {
          file: [
            ofBare(name, 0.25),
            { kind: "share", of: { system: "bullmq", row: name }, atLeast: 2.5 },
          ],
          postgres: [ofBestPeer(1)],
          nats: [ofBestPeer(1)],
          "nats-always": [ofBestPeer(1)],
        }),
      ],
      contenders: allContenders(peers, name, (rounds) => rounds.drain),
    },
    {
      name: nameByTwo,
      engines: ["postgres"],
      rounds: shortRounds,
      rows: [rateRow(nameByTwo, "backlog, two worker processes", { postgres: [ofBestPeer(1)] })],
      contenders: allContenders(peers, nameByTwo, (rounds) => rounds.drainByTwo),
    },
  ];
}
