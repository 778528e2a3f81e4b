// Drain: how fast one worker process runs a backlog of jobs whose handlers do nothing.
import { bareDrain } from "../bare.js";
import { engineNames, type Measure } from "../bench.js";
import { drainFresh } from "../millrace/drain.js";
import type { Peer } from "../peers/peer.js";
import { shortRounds } from "../sizes.js";
import { contender, peerContenders, rateRow } from "./contenders.js";

const name = "drain";
const bareShare = 0.25;
const bullmqShare = 2.5;

/** Measures the drain, beside bare SQLite and the peers. */
export function drainMeasure(peers: readonly Peer[]): Measure {
  const row = rateRow(name, "backlog, one worker process", bareShare);
  const bullmq = { system: "bullmq", row: name } as const;
  return {
    name,
    engines: engineNames,
    rounds: shortRounds,
    rows: [
      { ...row, targets: [...row.targets, { kind: "share", of: bullmq, atLeast: bullmqShare }] },
    ],
    contenders: [
      contender("bare", name, bareDrain),
      contender("millrace", name, async (bench) => {
        const report = await drainFresh(bench, "plain", bench.sizes.drainJobs);
        return report.jobsPerSecond;
      }),
      ...peerContenders(peers, name, (peer) => peer.drain),
    ],
  };
}
