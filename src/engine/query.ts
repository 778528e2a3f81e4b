/**
 * The read model: lists, counts, keys, queues and records, asked for by name.
 * Rows never hold payloads or results; `load` does.
 */
import type { Aggregate, Blocker, JobState, PolicyOutcome, WhenFull } from "../core/job.js";
import type { StoredRecord } from "./record.js";

/** The default and the largest number of entries of a page. */
export const pageDefault = 10;
export const pageMax = 100;

/** Narrows a list or a count. Every part that is given must match. */
export interface JobFilter {
  readonly service?: string;
  readonly type?: string;
  readonly queue?: string;
  readonly state?: readonly JobState[];
  readonly tag?: string;
  /** The readable concurrency key. */
  readonly key?: string;
  /** Created at or after this time. */
  readonly since?: number;
  /** Created before this time. */
  readonly until?: number;
  /** Part of the id. */
  readonly text?: string;
  readonly parentId?: string;
  readonly chainId?: string;
}

/**
 * Throws for a part that is named and has no value: left out, it would make the filter match what the asker never
 * meant, and what a filter finds may be deleted.
 */
export function checkFilter(filter: JobFilter): void {
  const empty = Object.entries(filter).find(([, value]) => value === undefined);
  if (empty !== undefined) throw new TypeError(`The filter names ${empty[0]} without a value.`);
}

/** One job in a list. */
export interface JobRow {
  readonly id: string;
  readonly service: string;
  readonly type: string;
  readonly typeVersion: number;
  readonly queue: string;
  readonly state: JobState;
  readonly version: number;
  readonly run: number;
  readonly tries: number;
  readonly maxTries: number;
  readonly priority: number;
  readonly runAt: number;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly tags: readonly string[];
  readonly deadline?: number;
  readonly startedAt?: number;
  readonly endedAt?: number;
  readonly key?: string;
  readonly keyHash?: string;
  /** The last error's message, or why the job was skipped, cancelled or released. */
  readonly detail?: string;
  readonly parentId?: string;
  readonly chainId?: string;
  readonly agent?: string;
  readonly aggregate?: Aggregate;
  /** Who runs it, when its lease was last renewed and until when it holds; only while it is active. */
  readonly worker?: string;
  readonly heartbeatAt?: number;
  readonly leaseUntil?: number;
  readonly cancelRequested?: true;
}

/** Newest first, in pages by offset, or after a cursor for deep ones. */
export interface JobsAsk {
  readonly filter?: JobFilter;
  readonly limit?: number;
  readonly offset?: number;
  readonly cursor?: string;
}

/** A page of a live list: later pages may shift while jobs come and go; cursors do not. */
export interface Page<Entry> {
  readonly entries: readonly Entry[];
  /** How many entries match in all. */
  readonly count: number;
  readonly offset: number;
  readonly limit: number;
  readonly nextOffset?: number;
  readonly nextCursor?: string;
}

/** How many jobs of a type are in a state. */
export interface StateCount {
  readonly service: string;
  readonly type: string;
  readonly queue: string;
  readonly state: JobState;
  readonly count: number;
}

/** A job that holds one of a key's slots. `jobId` may have ended already while its worker has not confirmed. */
export interface KeyHolder {
  readonly jobId: string;
  readonly state: "reserved" | "active" | "ended";
  readonly token: number;
  readonly worker?: string;
  readonly heartbeatAt?: number;
  readonly leaseUntil?: number;
}

/** A concurrency key and what goes on under it. */
export interface KeyRow {
  readonly service: string;
  readonly type: string;
  readonly key: string;
  readonly hash: string;
  readonly maxActive: number;
  readonly maxQueued: number;
  readonly whenFull: WhenFull;
  readonly active: readonly KeyHolder[];
  /** The ids that wait, in the order in which they will get a slot; at most `pageMax`. */
  readonly queued: readonly string[];
  readonly queuedCount: number;
  readonly blocked: boolean;
  readonly takeovers: number;
  /** What the queue policy last did with a create, and when. */
  readonly lastOutcome?: PolicyOutcome & { readonly at: number };
}

/** The oldest jobs that have tags, in parts. */
export interface TaggedAsk {
  /** After which job, as an earlier answer gave it. */
  readonly cursor?: string;
  readonly limit?: number;
}

/** What lists by tag find of a job. */
export interface TaggedJob {
  /** `null` where the job is gone and was left behind here, which is a fault of the store. */
  readonly jobId: string | null;
  readonly tags: readonly string[];
}

/** Part of the jobs that have tags. */
export interface TaggedPage {
  readonly entries: readonly TaggedJob[];
  readonly nextCursor?: string;
}

/** What goes on under the keys of a type, all of them together. */
export interface KeyCount {
  readonly service: string;
  readonly type: string;
  /** How many jobs wait under a key and have no slot yet. */
  readonly waiting: number;
  /** How many keys stay taken until somebody releases them. */
  readonly blocked: number;
}

/** Narrows a list of chains. Names, tags and times are those of the first job; the state is that of the current one. */
export type ChainFilter = Pick<
  JobFilter,
  "service" | "type" | "state" | "tag" | "since" | "until" | "text"
>;

/** Newest first, in pages by offset, or after a cursor for deep ones. */
export interface ChainsAsk extends Omit<JobsAsk, "filter"> {
  readonly filter?: ChainFilter;
}

/** A chain in a list. Its id is that of its first job. */
export interface ChainRow {
  readonly id: string;
  readonly service: string;
  /** The type of the first job. */
  readonly type: string;
  readonly tags: readonly string[];
  readonly createdAt: number;
  /** The job that the chain has come to: the newest that has not ended, or else the newest of all. */
  readonly currentJobId: string;
  readonly currentType: string;
  readonly state: JobState;
  readonly updatedAt: number;
}

/** What a job waits for, or has waited for: a job or a chain, and what has become of it. */
export interface BlockerRow {
  /** The id that the job names. */
  readonly id: string;
  readonly isChain: boolean;
  readonly onBadEnd: Blocker["onBadEnd"];
  /** The job itself, or the current one of the chain; `null` when it was removed. */
  readonly jobId: string | null;
  /** The state of that job; of one that was removed the last, in which an unfinished one counts as cancelled. */
  readonly state: JobState;
}

/** A queue that jobs are in or that has settings. */
export interface QueueRow {
  readonly service: string;
  readonly queue: string;
  readonly paused: boolean;
  readonly waiting: number;
  readonly active: number;
}

/** Which records are listed: those of a prefix, in the order of their ids. */
export interface RecordsAsk {
  readonly prefix: string;
  readonly limit?: number;
  /** Only those whose ids come before this one, and the last of them first. */
  readonly before?: string;
}

/** How many owners of records one question gives. */
export const recordOwnersMax = 1_000;

/** Every question that the read model answers. */
export interface Queries {
  jobs: { readonly ask: JobsAsk; readonly answer: Page<JobRow> };
  job: { readonly ask: { readonly id: string }; readonly answer: JobRow | null };
  /** Which tags each job is found by, in no order; only of jobs that have some, the oldest first. */
  tagged: { readonly ask: TaggedAsk; readonly answer: TaggedPage };
  counts: { readonly ask: { readonly filter?: JobFilter }; readonly answer: readonly StateCount[] };
  keys: {
    readonly ask: {
      readonly service?: string;
      readonly type?: string;
      readonly limit?: number;
      readonly offset?: number;
    };
    readonly answer: Page<KeyRow>;
  };
  key: { readonly ask: { readonly hash: string }; readonly answer: KeyRow | null };
  /** The types of which a job waits under a key, or a key is blocked. */
  keyCounts: { readonly ask: object; readonly answer: readonly KeyCount[] };
  chains: { readonly ask: ChainsAsk; readonly answer: Page<ChainRow> };
  /** For each of some jobs its blockers, in the order in which the job names them. */
  blockers: {
    readonly ask: { readonly ids: readonly string[] };
    readonly answer: readonly (readonly BlockerRow[])[];
  };
  /** The unfinished jobs that wait for a job or a chain of one of these ids; at most `pageMax`. */
  dependents: {
    readonly ask: { readonly ids: readonly string[] };
    readonly answer: readonly string[];
  };
  queues: { readonly ask: { readonly service?: string }; readonly answer: readonly QueueRow[] };
  records: { readonly ask: RecordsAsk; readonly answer: readonly StoredRecord[] };
  /** Which services have records of a kind, such as `audit/`, whose ids go on after the service; in order. */
  recordOwners: {
    readonly ask: { readonly prefix: string };
    readonly answer: readonly string[];
  };
  /**
   * How many places are held under the cluster-wide limits of a type and of a queue: by jobs that run, and by ended ones
   * whose worker has not confirmed.
   */
  held: {
    readonly ask: { readonly service: string; readonly type: string; readonly queue: string };
    readonly answer: { readonly type: number; readonly queue: number };
  };
  /** How many claimable jobs come before this one in its lane, up to a bound. */
  ahead: { readonly ask: { readonly id: string }; readonly answer: number };
}

export type QueryName = keyof Queries;
