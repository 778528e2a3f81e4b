/**
 * Chains in the read model: each is found by its first job and shown as its current one.
 */
import { continuesElsewhere } from "../../core/chains.js";
import { isEnded } from "../../core/job.js";
import type { ChainRow, ChainsAsk, Page } from "../query.js";
import { matcher, page } from "./job-rows.js";
import { copy, type Entry, type Store } from "./store.js";

/** A page of chains, newest first. */
export function listChains(store: Store, ask: ChainsAsk): Page<ChainRow> {
  const { state, ...first } = ask.filter ?? {};
  const fits = matcher(first);
  const currentOf = (entry: Entry) => currentOfChain(store, entry.job.id) ?? entry;
  const matching = [...store.jobs.values()]
    .filter(
      (entry) =>
        entry.job.chainId === entry.job.id &&
        fits(entry) &&
        !continuesElsewhere(currentOf(entry).job) &&
        (state?.includes(currentOf(entry).job.state) ?? true),
    )
    .reverse();
  return page(matching, ask, (entry) => chainRow(entry, currentOf(entry)));
}

/** The job that a chain has come to: the newest that has not ended, or else the newest. */
export function currentOfChain(store: Store, chainId: string): Entry | null {
  let current: Entry | null = null;
  for (const entry of store.chains.get(chainId) ?? []) {
    // Jobs come oldest first, and an ended one never takes the place of one that is not.
    if (current === null || !isEnded(entry.job.state) || isEnded(current.job.state))
      current = entry;
  }
  return current;
}

/** The job that a chain has come to; `null` where the chain is not there, or its end was removed. */
export function endOfChain(store: Store, chainId: string): Entry | null {
  const current = currentOfChain(store, chainId);
  return current === null || continuesElsewhere(current.job) ? null : current;
}

function chainRow({ job }: Entry, { job: current }: Entry): ChainRow {
  const { id, service, type, tags, createdAt } = job;
  return copy({
    ...{ id, service, type, tags, createdAt },
    currentJobId: current.id,
    currentType: current.type,
    state: current.state,
    updatedAt: current.updatedAt,
  });
}
