/**
 * How far a chain has come: by the view, and from there by the log.
 */
import { isEnded, type Job } from "../../core/job.js";
import { continuesMaxMs } from "../projection/reads.js";
import { pageMax } from "../query.js";
import type { Log } from "./log.js";
import type { ReadModel } from "./read-model.js";

/** How many continuations are followed beyond the view. */
const followMax = 1_000;

/** What tells how far a chain has come. */
export interface ChainSight {
  readonly readModel: Pick<ReadModel, "query">;
  readonly log: Pick<Log, "load">;
  readonly now: () => number;
}

/** The job that a chain has come to; `null` where the chain is not there, or its end was removed. */
export async function endOfChain(
  { readModel, log, now }: ChainSight,
  chainId: string,
): Promise<Job | null> {
  const { entries } = await readModel.query("jobs", { filter: { chainId }, limit: pageMax });
  const row = entries.find(({ state }) => !isEnded(state)) ?? entries[0];
  let current = row ? (await log.load(row.id)).job : null;
  for (let followed = 0; current?.continuedBy && followed < followMax; followed++) {
    const next = await log.load(current.continuedBy);
    const isGone = next.existed || (current.endedAt ?? 0) + continuesMaxMs < now();
    if (next.job === null) return isGone ? null : current;
    current = next.job;
  }
  return current;
}
