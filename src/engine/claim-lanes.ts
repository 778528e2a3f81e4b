/**
 * The lanes of a claim, each once: one that is named twice would give each of its jobs twice.
 */
import type { ClaimLane } from "./engine.js";

/** The lanes that an ask names. Of one that is named twice the first counts. */
export function distinctLanes(lanes: readonly ClaimLane[]): readonly ClaimLane[] {
  const names = new Set<string>();
  return lanes.filter(({ lane }) => !names.has(lane) && names.add(lane));
}
