// The list of all measures, in the order in which they run.
import type { Measure } from "../bench.js";
import type { Peer } from "../peers/peer.js";
import { burdenedMeasures } from "./burdened.js";
import { createMeasures } from "./create.js";
import { drainMeasures } from "./drain.js";
import { drainLimitedMeasures } from "./drain-limited.js";
import { floorMeasure } from "./floor.js";
import { idleCpuMeasure } from "./idle-cpu.js";
import { isolatedMeasure } from "./isolated.js";
import { loopDelayMeasure } from "./loop-delay.js";
import { memoryMeasure } from "./memory.js";
import { pickupMeasure } from "./pickup.js";
import { viewMeasure } from "./view.js";

/** Every measure, with the peers that take part. */
export function allMeasures(peers: readonly Peer[]): Measure[] {
  return [
    ...drainMeasures(peers),
    ...createMeasures(peers),
    ...drainLimitedMeasures,
    pickupMeasure(peers),
    idleCpuMeasure,
    loopDelayMeasure,
    memoryMeasure,
    isolatedMeasure,
    viewMeasure,
    floorMeasure,
    ...burdenedMeasures,
  ];
}

/** What `--only` may name. */
export const measureNames: readonly string[] = allMeasures([]).map(({ name }) => name);
