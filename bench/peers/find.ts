// The peers of each engine: other job systems on the same kind of store.
import type { EngineName } from "../bench.js";
import { findBullmq } from "./bullmq.js";
import { graphileWorkerPeer } from "./graphile-worker/peer.js";
import type { Peer } from "./peer.js";
import { pgBossPeer } from "./pg-boss/peer.js";
import { findPlainjob } from "./plainjob.js";

/** The peers on an engine, installed or not. */
export async function findPeers(engine: EngineName): Promise<readonly Peer[]> {
  switch (engine) {
    case "postgres":
      return [graphileWorkerPeer, pgBossPeer];
    case "file":
    case "memory":
      return [await findPlainjob(), await findBullmq("always")];
    case "nats":
      return [await findBullmq("everysec")];
    case "nats-always":
      return [await findBullmq("always")];
  }
}
