/**
 * The answers of the HTTP API, as far as commands look into them. Times are text.
 */
import type { JobEvent } from "../core/event.js";
import type { JobError, JobState, Progress } from "../core/job.js";
import type { JobRow } from "../engine/query.js";
import type { ErrorAnswer } from "./api.js";

/** A page of a list. */
export interface PageAnswer<Entry> {
  readonly entries: readonly Entry[];
  readonly count?: number;
  readonly offset?: number;
  readonly limit?: number;
  readonly nextOffset?: number;
  readonly nextCursor?: string;
}

/** A job in a list. */
export interface JobRowAnswer {
  readonly id: string;
  readonly service: string;
  readonly type: string;
  readonly queue: string;
  readonly state: JobState;
  readonly version: number;
  readonly run: number;
  readonly tries: number;
  readonly maxTries: number;
  readonly priority: number;
  readonly runAt: string;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly tags: readonly string[];
  readonly detail?: string;
  readonly key?: string;
  readonly worker?: string;
  readonly cancelRequested?: boolean;
}

/** A whole job. */
export interface JobAnswer extends Omit<JobRowAnswer, "key"> {
  readonly typeVersion: number;
  readonly payload?: unknown;
  readonly result?: unknown;
  readonly error?: JobError;
  readonly reason?: string;
  readonly progress?: Progress;
  readonly deadline?: string;
  readonly startedAt?: string;
  readonly endedAt?: string;
  readonly heartbeatAt?: string;
  readonly leaseUntil?: string;
  readonly key?: { readonly key: string; readonly hash: string };
  readonly blockers?: readonly { readonly jobId: string }[];
  readonly chainId?: string;
  readonly parentId?: string;
}

/** What became of a create. */
export interface CreateAnswer {
  readonly outcome: "accepted" | "replaced" | "existing" | "coalesced";
  readonly id: string;
  readonly replacedJobId?: string;
}

/** One of several commands. */
export interface OutcomeAnswer {
  readonly id: string;
  readonly outcome: string;
  readonly state?: string;
  readonly error?: ErrorAnswer;
}

/** An event with its place in the feed. */
export interface FeedAnswer {
  readonly entries: readonly { readonly cursor: string; readonly event: EventAnswer }[];
  readonly nextCursor?: string;
}

/** An event whose times are text. */
export type EventAnswer = Readonly<Record<string, unknown>>;

const timeFields = ["at", "runAt", "deadline"] as const;

/** An event as the core knows it, with times as numbers. */
export function eventOf(answer: EventAnswer): JobEvent {
  const event: Record<string, unknown> = { ...answer };
  for (const name of timeFields) if (name in event) event[name] = timeOf(event[name]);
  if (Array.isArray(event.entries))
    event.entries = event.entries.map((entry: { at: unknown }) => ({
      ...entry,
      at: timeOf(entry.at),
    }));
  return event as unknown as JobEvent;
}

const rowTimeFields = [
  "runAt",
  "createdAt",
  "updatedAt",
  "deadline",
  "startedAt",
  "endedAt",
  "heartbeatAt",
  "leaseUntil",
] as const;

/** A job of a list as a store knows it, with times as numbers. */
export function rowOf(answer: JobRowAnswer): JobRow {
  const row: Record<string, unknown> = { ...answer };
  for (const name of rowTimeFields) if (name in row) row[name] = timeOf(row[name]);
  return row as unknown as JobRow;
}

function timeOf(value: unknown): unknown {
  return typeof value === "string" ? Date.parse(value) : value;
}
