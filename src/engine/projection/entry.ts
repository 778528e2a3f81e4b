/**
 * What a log tells a projection, and the same as flat values that are cheap to carry from thread to thread.
 */
import type { JobEvent } from "../../core/event.js";
import type { JobKey, PolicyOutcome } from "../../core/job.js";
import { transitions } from "../../core/transitions.js";
import { type EventText, eventOf } from "../event-text.js";
import { type FlatChange, flatChangeOf } from "../sql/change.js";
import { eventValues } from "../sql/rows.js";

/** One event with its place in the log. */
export interface LoggedEvent<Event extends JobEvent | EventText = JobEvent | EventText> {
  /** Grows from event to event; a log may leave numbers out. */
  readonly seq: number;
  /** The event, or the text of it, which is read where it is applied: for a file that is another thread. */
  readonly event: Event;
  /** Until when the lease of a `started` event holds; one that names none has lapsed at once. */
  readonly leaseUntil?: number;
}

/** The lease that a process has renewed. */
export interface RenewedLease {
  readonly jobId: string;
  readonly token: number;
  readonly until: number;
  /** When it was renewed. */
  readonly at: number;
}

/** The body of an event that the view does not keep. One that it keeps says more. */
export const leftToLog = "{}";

/** An entry of the log in flat values. */
export interface FlatEntry {
  readonly seq: number;
  readonly service: string;
  readonly worker: string | null;
  readonly leaseUntil: number | null;
  readonly policy: PolicyOutcome | null;
  /** `null` for an event that this version does not understand. */
  readonly change: FlatChange | null;
}

/** An entry of the log with its event read. */
export function eventIn({ seq, event, leaseUntil }: LoggedEvent): LoggedEvent<JobEvent> {
  const read = "body" in event ? eventOf(event) : event;
  return leaseUntil === undefined ? { seq, event: read } : { seq, event: read, leaseUntil };
}

/** Flattens an entry of the log. */
export function flatEntry(logged: LoggedEvent<JobEvent>): FlatEntry {
  const { seq, event } = logged;
  const { service, type, jobId } = event;
  const isStart = event.name === "started";
  return {
    seq,
    service,
    worker: isStart ? event.worker : null,
    leaseUntil: isStart ? (logged.leaseUntil ?? event.at) : null,
    policy: event.name === "created" ? (event.policy ?? null) : null,
    change: flat(event, { service, type, id: jobId }),
  };
}

function flat(event: JobEvent, job: JobKey): FlatChange | null {
  if (!Object.hasOwn(transitions, event.name)) return null;
  try {
    const values = isKept(event) ? eventValues(event) : eventValues(event, leftToLog);
    return flatChangeOf({ job, expect: expectOf(event), event }, values);
  } catch (error) {
    // A log may hold an event that lacks what its name promises, and the view goes on without it.
    if (error instanceof TypeError) return null;
    throw error;
  }
}

/**
 * Whether the view keeps what an event says. The log has all of it, and is asked for the history of a job; only what a key
 * knows from a job alone must be found when that job is removed, and the log may have forgotten it by then.
 */
function isKept(event: JobEvent): boolean {
  if (event.name === "created") return event.key !== undefined;
  return "token" in event && event.token !== undefined && event.actor.startsWith("keeper:");
}

/** What the writer of an event must have seen. */
function expectOf(event: JobEvent): { readonly version: number; readonly token?: number } {
  const version = event.version - 1;
  const token = "token" in event ? event.token : undefined;
  return token === undefined ? { version } : { version, token };
}
