// Shorthands for the parts that most measures are made of.
import type { Bench, Contender, Row, SystemName } from "../bench.js";
import type { Peer, PeerRound, PresentPeer } from "../peers/peer.js";

/** A system that takes part in a row with one number per round. */
export function contender(
  system: SystemName,
  row: string,
  round: (bench: Bench) => Promise<number>,
): Contender {
  return { system, run: async (bench) => ({ [row]: await round(bench) }) };
}

/** The installed peers, each with one of its rounds. */
export function peerContenders(
  peers: readonly Peer[],
  row: string,
  roundOf: (peer: PresentPeer) => PeerRound,
): Contender[] {
  return peers.flatMap((peer) =>
    peer.present ? [contender(peer.system, row, roundOf(peer))] : [],
  );
}

/** A row of rates whose ratios are to bare SQLite, with the share of it that Millrace wants. */
export function rateRow(name: string, shows: string, bareShare: number): Row {
  const base = { system: "bare", row: name } as const;
  return {
    name,
    unit: "jobs/s",
    better: "higher",
    shows,
    base,
    targets: [{ kind: "share", of: base, atLeast: bareShare }],
  };
}

/** A row of amounts that Millrace wants to keep below a limit. */
export function limitRow(name: string, unit: string, shows: string, limit: number): Row {
  return { name, unit, better: "lower", shows, targets: [{ kind: "below", limit }] };
}
