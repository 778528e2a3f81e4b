// The list of all measures, in the order in which they run.
import type { Measure } from "../bench.js";
import type { Peer } from "../peers/peer.js";
import { createMeasures } from "./create.js";
import { drainMeasure } from "./drain.js";
import { drainKeyedMeasure } from "./drain-keyed.js";
import { idleCpuMeasure } from "./idle-cpu.js";
import { keptMeasures } from "./kept.js";
import { loopDelayMeasure } from "./loop-delay.js";
import { memoryMeasure } from "./memory.js";
import { pickupMeasure } from "./pickup.js";

/** Every measure, with the peers that take part. */
export function allMeasures(peers: readonly Peer[]): Measure[] {
  return [
    drainMeasure(peers),
    ...createMeasures(peers),
    drainKeyedMeasure,
    pickupMeasure,
    idleCpuMeasure,
    loopDelayMeasure,
    memoryMeasure,
    ...keptMeasures,
  ];
}

/** What `--only` may name. */
export const measureNames: readonly string[] = allMeasures([]).map(({ name }) => name);
