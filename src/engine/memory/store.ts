/**
 * Everything that the memory engine holds, as plain maps, and the moves of a job between its lines.
 */
import type { Job, JobState, PolicyOutcome, WhenFull } from "../../core/job.js";
import { type Lane, laneOf } from "../../core/order.js";
import type { WakeTopic } from "../engine.js";
import type { StoredRecord } from "../record.js";
import { Feed } from "./feed.js";
import { LaneLines } from "./lines.js";

/** A job with its place in the store. */
export interface Entry {
  /** Counts the creates; lists show the newest first. */
  readonly sequence: number;
  /** The job as folded so far. Never changed in place. */
  job: Job;
  /** Where the job's events lie in the feed. */
  readonly positions: number[];
  /** The line that the job stands in. A keyed job in `ready` has a slot of its key reserved. */
  line: "ready" | "delayed" | null;
  /** The last states of blockers that were removed, by their place among the job's own. */
  readonly removedBlockers: Map<number, JobState>;
  /** The attempt under way while the job is active. */
  attempt: Attempt | null;
}

/** One hold on a job under one token. It takes a slot of the job's key and of every cap. */
export interface Attempt {
  readonly job: Job;
  readonly token: number;
  readonly worker: string;
  leaseUntil: number;
  heartbeatAt: number;
  /** The job was ended from outside: the slots stay taken until the worker confirms or the lease lapses. */
  ended: boolean;
}

/** A concurrency key and who is under it. */
export interface KeyState {
  readonly service: string;
  readonly type: string;
  readonly key: string;
  readonly hash: string;
  /** The limits of the newest create. */
  maxActive: number;
  maxQueued: number;
  whenFull: WhenFull;
  /** The unfinished jobs of the key. */
  readonly members: Map<string, Entry>;
  readonly attempts: Set<Attempt>;
  takeovers: number;
  lastOutcome: (PolicyOutcome & { readonly at: number }) | null;
}

/** The memory engine's state. */
export interface Store {
  readonly now: () => number;
  readonly jobs: Map<string, Entry>;
  /** The jobs of each chain, oldest first. */
  readonly chains: Map<string, Set<Entry>>;
  /** The jobs that name a job or a chain as their blocker, by its id. */
  readonly dependents: Map<string, Set<Entry>>;
  /** The blocked jobs. */
  readonly blocked: Set<Entry>;
  readonly lanes: Map<Lane, LaneLines<Entry>>;
  readonly keys: Map<string, KeyState>;
  /** Active attempts, and ended ones that still hold slots. */
  readonly attempts: Set<Attempt>;
  readonly records: Map<string, StoredRecord>;
  readonly feed: Feed;
  /** The topics that the call under way gives hints on. */
  readonly hints: Set<WakeTopic>;
  /** How many jobs were ever created. */
  createdCount: number;
}

/** An empty store on a clock. */
export function emptyStore(now: () => number): Store {
  return {
    now,
    jobs: new Map(),
    chains: new Map(),
    dependents: new Map(),
    blocked: new Set(),
    lanes: new Map(),
    keys: new Map(),
    attempts: new Set(),
    records: new Map(),
    feed: new Feed(),
    hints: new Set(),
    createdCount: 0,
  };
}

/** A deep copy of plain JSON, so that nobody outside shares what the store holds. */
export function copy<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T;
}

/** Whether a job waits to be started. */
export function isWaiting(job: Job): boolean {
  return job.state === "pending" || job.state === "retry";
}

/** The lines of a lane, made when they are first needed. */
export function linesOf(store: Store, lane: Lane): LaneLines<Entry> {
  let lines = store.lanes.get(lane);
  if (lines === undefined) {
    lines = new LaneLines();
    store.lanes.set(lane, lines);
  }
  return lines;
}

/** Puts a job into a line of its lane. */
export function enterLine(store: Store, entry: Entry, line: "ready" | "delayed"): void {
  leaveLine(store, entry);
  linesOf(store, laneOf(entry.job))[line].insert(entry);
  entry.line = line;
}

/** Takes a job out of its line, if it stands in one. */
export function leaveLine(store: Store, entry: Entry): void {
  if (entry.line === null) return;
  linesOf(store, laneOf(entry.job))[entry.line].remove(entry);
  entry.line = null;
}
