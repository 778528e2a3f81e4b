/**
 * The read model: answers every query from the maps, so that reads are always current.
 */
import { isEnded } from "../../core/job.js";
import { laneOf } from "../../core/order.js";
import type { DueAsk, DueJob } from "../engine.js";
import { pageMax, type Queries, type QueryName, recordOwnersMax } from "../query.js";
import { ownerOf } from "../record.js";
import { CapCounter } from "./attempts.js";
import { listBlockers, listDependents, mayGoOn } from "./blockers.js";
import { listChains } from "./chains.js";
import { lineUpDue } from "./claim.js";
import { compareText, countJobs, listJobs, listQueues, listTagged, rowOf } from "./job-rows.js";
import { countKeys, keyRow, listKeys } from "./key-rows.js";
import { readRecord } from "./records.js";
import { copy, type Entry, linesOf, type Store } from "./store.js";

/** The most jobs that `ahead` counts. */
const aheadMax = 10_000;

/** One answer per query. */
export const answers: {
  readonly [Name in QueryName]: (
    store: Store,
    ask: Queries[Name]["ask"],
  ) => Queries[Name]["answer"];
} = {
  jobs: listJobs,
  job: (store, { id }) => {
    const entry = store.jobs.get(id);
    return entry ? rowOf(entry) : null;
  },
  tagged: listTagged,
  counts: (store, { filter }) => countJobs(store, filter),
  keys: listKeys,
  key: (store, { hash }) => {
    const key = store.keys.get(hash);
    return key ? keyRow(store, key) : null;
  },
  keyCounts: countKeys,
  chains: listChains,
  blockers: (store, { ids }) => copy(listBlockers(store, ids)),
  dependents: (store, { ids }) => listDependents(store, ids),
  queues: (store, { service }) => listQueues(store, service),
  records: (store, { prefix, before, limit = pageMax }) => {
    const all = [...store.records.keys()].filter((id) => id.startsWith(prefix)).sort(compareText);
    const ids =
      before === undefined ? all : all.filter((id) => compareText(id, before) < 0).reverse();
    const records = ids.map((id) => readRecord(store, id)).filter((record) => record !== null);
    return copy(records.slice(0, limit));
  },
  recordOwners: (store, { prefix }) => {
    const ids = [...store.records.keys()].filter((id) => id.startsWith(prefix));
    const alive = ids.filter((id) => readRecord(store, id) !== null);
    return [...new Set(alive.map(ownerOf))].sort(compareText).slice(0, recordOwnersMax);
  },
  held: (store, names) => new CapCounter(store).held(names),
  ahead: (store, { id }) => {
    const entry = store.jobs.get(id);
    if (entry === undefined || entry.job.state === "active" || isEnded(entry.job.state)) return 0;
    const lane = laneOf(entry.job);
    lineUpDue(store, lane);
    return Math.min(linesOf(store, lane).ready.placeOf(entry), aheadMax);
  },
};

/** Jobs whose time has come, in the order of that time. */
export function dueJobs(store: Store, ask: DueAsk, limit: number): readonly DueJob[] {
  const due: { readonly at: number; readonly entry: Entry }[] = [];
  for (const entry of ask.kind === "blocked" ? store.blocked : store.jobs.values()) {
    if (entry.job.service !== ask.service) continue;
    const at = dueAt(store, entry, ask);
    if (at !== null) due.push({ at, entry });
  }
  due.sort((a, b) => a.at - b.at || compareText(a.entry.job.id, b.entry.job.id));
  return due.slice(0, limit).map(({ entry: { job } }) => {
    const { service, type, id, version, token } = job;
    return { service, type, id, version, token };
  });
}

/** Whether an unfinished job waits for this one or its chain, and may want to see its result. */
function isAwaited(store: Store, { id, chainId }: Entry["job"]): boolean {
  return listDependents(store, chainId === undefined ? [id] : [id, chainId]).length > 0;
}

/** When a job's time came, or `null` when it has not. */
function dueAt(store: Store, entry: Entry, ask: DueAsk): number | null {
  const { job, attempt } = entry;
  const now = store.now();
  switch (ask.kind) {
    case "lapsed":
      if (attempt === null || job.keyBlocked) return null;
      return attempt.leaseUntil <= now ? attempt.leaseUntil : null;
    case "deadline":
      if (job.deadline === undefined || isEnded(job.state)) return null;
      return job.deadline <= now ? job.deadline : null;
    case "blocked":
      return mayGoOn(store, entry) ? entry.sequence : null;
    case "retention":
      if (job.type !== ask.type || job.state !== ask.state || job.endedAt === undefined)
        return null;
      return job.endedAt < ask.endedBefore && !isAwaited(store, job) ? job.endedAt : null;
  }
}
