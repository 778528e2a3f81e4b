/**
 * Blockers: which jobs wait for which jobs and chains, and what has become of those.
 */
import { blockerVerdict } from "../../core/chains.js";
import { type Blocking, CircleWalk } from "../../core/circle.js";
import { type Blocker, isEnded, type JobState } from "../../core/job.js";
import type { AppendOutcome } from "../engine.js";
import { type BlockerRow, pageMax } from "../query.js";
import { currentOfChain, endOfChain } from "./chains.js";
import type { Entry, Store } from "./store.js";

/** What a job that was removed before it ended counts as. */
const removedState: JobState = "cancelled";

type Refusal = Extract<AppendOutcome, { outcome: "bad_blocker" }>;

/** What keeps a job from waiting for its blockers: one does not exist, or waits for the job's own chain, or may do so. */
export function blockerRefusal(
  store: Store,
  job: { readonly blockers: readonly Blocker[]; readonly chainId?: string },
): Refusal | null {
  const { blockers, chainId } = job;
  for (const isChain of [false, true]) {
    const missing = blockers.find(
      (blocker) => (blocker.chain ?? false) === isChain && blockerEntry(store, blocker) === null,
    );
    if (missing) return { outcome: "bad_blocker", reason: "missing", blockerId: missing.jobId };
  }
  // Only a job that joins a chain can be waited for before it exists.
  if (chainId === undefined || currentOfChain(store, chainId) === null) return null;
  return circleRefusal(store, blockers, chainId);
}

/** Walks from blocker to blocker, and refuses the first of a job through which it would wait for its own chain. */
function circleRefusal(
  store: Store,
  blockers: readonly Blocker[],
  chainId: string,
): Refusal | null {
  const walk = new CircleWalk(chainId, blockers);
  for (let [next] = walk.next(1); next !== undefined; [next] = walk.next(1)) {
    const entry = blockerEntry(store, next);
    if (entry === null || isEnded(entry.job.state)) continue;
    for (const further of entry.job.blockers) walk.reach(further, next.via);
  }
  return walk.refusal && { outcome: "bad_blocker", ...walk.refusal };
}

/** Remembers that a new job waits for others. */
export function addDependent(store: Store, entry: Entry): void {
  for (const { jobId } of entry.job.blockers)
    store.dependents.set(jobId, (store.dependents.get(jobId) ?? new Set()).add(entry));
}

/** A job was removed: those that wait for it are told how it ended, and it waits for nothing itself. */
export function forgetBlockers(store: Store, entry: Entry, isCurrent: boolean): void {
  const { id, chainId, state, blockers } = entry.job;
  for (const { jobId } of blockers) store.dependents.get(jobId)?.delete(entry);
  const last = isEnded(state) ? state : removedState;
  for (const dependent of store.dependents.get(id) ?? []) tell(dependent, id, false, last);
  if (chainId === undefined || !isCurrent) return;
  for (const dependent of store.dependents.get(chainId) ?? []) tell(dependent, chainId, true, last);
}

function tell(dependent: Entry, id: string, isChain: boolean, state: JobState): void {
  for (const [place, blocker] of dependent.job.blockers.entries()) {
    const isMeant = blocker.jobId === id && (blocker.chain ?? false) === isChain;
    if (isMeant && !dependent.removedBlockers.has(place))
      dependent.removedBlockers.set(place, state);
  }
}

/** The blockers of jobs, in the order of the ids. */
export function listBlockers(
  store: Store,
  ids: readonly string[],
): readonly (readonly BlockerRow[])[] {
  return ids.map((id) => {
    const entry = store.jobs.get(id);
    return entry
      ? entry.job.blockers.map((blocker, place) => rowOf(store, entry, blocker, place))
      : [];
  });
}

function rowOf(store: Store, dependent: Entry, blocker: Blocker, place: number): BlockerRow {
  const removed = dependent.removedBlockers.get(place);
  const entry = removed === undefined ? blockerEntry(store, blocker) : null;
  return {
    id: blocker.jobId,
    isChain: blocker.chain ?? false,
    onBadEnd: blocker.onBadEnd,
    jobId: entry?.job.id ?? null,
    state: entry?.job.state ?? removed ?? removedState,
  };
}

/** The unfinished jobs that wait for a job or a chain of one of these ids. */
export function listDependents(store: Store, ids: readonly string[]): readonly string[] {
  const found = new Set<Entry>();
  for (const id of ids) {
    for (const entry of store.dependents.get(id) ?? [])
      if (!isEnded(entry.job.state)) found.add(entry);
  }
  const oldestFirst = [...found].sort((a, b) => a.sequence - b.sequence);
  return oldestFirst.slice(0, pageMax).map(({ job }) => job.id);
}

/** Whether a blocked job waits for nothing more, or one of its blockers has ended badly. */
export function mayGoOn(store: Store, entry: Entry): boolean {
  const { verdict } = blockerVerdict(
    entry.job.blockers,
    (blocker, place) => rowOf(store, entry, blocker, place).state,
  );
  return verdict !== "wait";
}

function blockerEntry(store: Store, { jobId, chain }: Blocking): Entry | null {
  return chain ? endOfChain(store, jobId) : (store.jobs.get(jobId) ?? null);
}
