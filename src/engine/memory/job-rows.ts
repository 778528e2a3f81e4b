/**
 * The read model's lists and counts of jobs.
 */
import { isEnded, type Job } from "../../core/job.js";
import {
  checkFilter,
  type JobFilter,
  type JobRow,
  type JobsAsk,
  type Page,
  pageDefault,
  pageMax,
  type QueueRow,
  type StateCount,
  type TaggedAsk,
  type TaggedPage,
} from "../query.js";
import { recordId } from "../record.js";
import { bodyIsPaused, readRecord } from "./records.js";
import { copy, type Entry, type Store } from "./store.js";

/** A page of jobs, newest first. */
export function listJobs(store: Store, ask: JobsAsk): Page<JobRow> {
  const matching = [...store.jobs.values()].filter(matcher(ask.filter)).reverse();
  return page(matching, ask, rowOf);
}

/** A page of what matches, newest first. */
export function page<Row>(
  matching: readonly Entry[],
  ask: Omit<JobsAsk, "filter">,
  rowOf: (entry: Entry) => Row,
): Page<Row> {
  const limit = ask.limit ?? pageDefault;
  const offset = ask.offset ?? 0;
  const rest =
    ask.cursor === undefined
      ? matching.slice(offset)
      : matching.filter(({ sequence }) => sequence < Number(ask.cursor));
  const shown = rest.slice(0, limit);
  const last = shown.at(-1);
  const more = rest.length > shown.length && last !== undefined;
  return {
    entries: shown.map(rowOf),
    count: matching.length,
    offset,
    limit,
    ...(more && ask.cursor === undefined ? { nextOffset: offset + shown.length } : null),
    ...(more ? { nextCursor: String(last.sequence) } : null),
  };
}

/** The jobs that have tags, the oldest first. */
export function listTagged(store: Store, { cursor, limit = pageDefault }: TaggedAsk): TaggedPage {
  const after = Number(cursor ?? 0);
  const found = [...store.jobs.values()]
    .filter(({ job, sequence }) => job.tags.length > 0 && sequence > after)
    .sort((a, b) => a.sequence - b.sequence);
  const shown = found.slice(0, Math.min(limit, pageMax));
  const last = shown.at(-1);
  const entries = shown.map(({ job }) => ({ jobId: job.id, tags: [...new Set(job.tags)] }));
  const isMore = last !== undefined && found.length > shown.length;
  return { entries, ...(isMore && { nextCursor: String(last.sequence) }) };
}

/** One job as a row. */
export function rowOf({ job, attempt }: Entry): JobRow {
  const { id, service, type, typeVersion, queue, state, version, run, tries, maxTries } = job;
  const { priority, runAt, createdAt, updatedAt, tags } = job;
  const row = {
    ...{ id, service, type, typeVersion, queue, state, version, run, tries, maxTries },
    ...{ priority, runAt, createdAt, updatedAt, tags },
    deadline: job.deadline,
    startedAt: job.startedAt,
    endedAt: job.endedAt,
    key: job.key?.key,
    keyHash: job.key?.hash,
    detail: detailOf(job),
    parentId: job.parentId,
    chainId: job.chainId,
    agent: job.agent,
    aggregate: job.aggregate,
    worker: job.worker,
    heartbeatAt: attempt?.heartbeatAt,
    leaseUntil: attempt?.leaseUntil,
    cancelRequested: job.cancelRequest && true,
  };
  return copy(row) as JobRow;
}

/** How many jobs of each type are in each state. */
export function countJobs(store: Store, filter: JobFilter | undefined): readonly StateCount[] {
  const counts = new Map<string, { -readonly [Name in keyof StateCount]: StateCount[Name] }>();
  const fits = matcher(filter);
  for (const entry of store.jobs.values()) {
    if (!fits(entry)) continue;
    const { service, type, queue, state } = entry.job;
    const group = [service, type, queue, state].join("/");
    const count = counts.get(group);
    if (count) count.count += 1;
    else counts.set(group, { service, type, queue, state, count: 1 });
  }
  return [...counts.values()].sort(
    (a, b) =>
      compareText(a.service, b.service) ||
      compareText(a.type, b.type) ||
      compareText(a.queue, b.queue) ||
      compareText(a.state, b.state),
  );
}

/** The queues that jobs are in or that have settings. */
export function listQueues(store: Store, service: string | undefined): readonly QueueRow[] {
  const rows = new Map<string, { -readonly [Name in keyof QueueRow]: QueueRow[Name] }>();
  const rowFor = (id: string, owner: string, queue: string) => {
    let row = rows.get(id);
    if (row === undefined) {
      const paused = bodyIsPaused(readRecord(store, id));
      row = { service: owner, queue, paused, waiting: 0, active: 0 };
      rows.set(id, row);
    }
    return row;
  };
  for (const { job } of store.jobs.values()) {
    if ((service ?? job.service) !== job.service) continue;
    const row = rowFor(recordId.queue(job.service, job.queue), job.service, job.queue);
    if (!isEnded(job.state)) row[job.state === "active" ? "active" : "waiting"] += 1;
  }
  for (const id of store.records.keys()) {
    const [kind, owner = "", queue = ""] = id.split("/");
    if (kind !== "queue" || (service ?? owner) !== owner || !readRecord(store, id)) continue;
    rowFor(id, owner, queue);
  }
  return [...rows.values()].sort(
    (a, b) => compareText(a.service, b.service) || compareText(a.queue, b.queue),
  );
}

/** What there is to say of the last thing that happened to a job: an error's message, or a reason. */
function detailOf(job: Job): string | undefined {
  switch (job.state) {
    case "retry":
    case "failed":
    case "dead":
      return job.error?.message;
    case "pending":
    case "skipped":
    case "cancelled":
    case "stale":
    case "unreachable":
      return job.reason;
    case "dismissed":
      return job.reason ?? job.error?.message;
    case "blocked":
    case "active":
    case "completed":
    case "expired":
      return undefined;
  }
}

/** Compares two texts by their code units, the same on every machine. */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Whether a job fits a filter. */
export function matcher(filter: JobFilter = {}): (entry: Entry) => boolean {
  checkFilter(filter);
  const { service, type, queue, state, tag, key, since, until, text, parentId, chainId } = filter;
  return ({ job }) =>
    (service === undefined || job.service === service) &&
    (type === undefined || job.type === type) &&
    (queue === undefined || job.queue === queue) &&
    (state === undefined || state.includes(job.state)) &&
    (tag === undefined || job.tags.includes(tag)) &&
    (key === undefined || job.key?.key === key) &&
    (since === undefined || job.createdAt >= since) &&
    (until === undefined || job.createdAt < until) &&
    (text === undefined || job.id.toLowerCase().includes(text.toLowerCase())) &&
    (parentId === undefined || job.parentId === parentId) &&
    (chainId === undefined || job.chainId === chainId);
}
