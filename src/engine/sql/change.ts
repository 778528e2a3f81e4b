/**
 * A change as flat values, ready to be bound to statements: made where the event is, carried to where the store is.
 */
import type { EventOf, JobEvent } from "../../core/event.js";
import { unreachableReason } from "../../core/evolve.js";
import type { Aggregate, Blocker, JobKeyPolicy, JobState } from "../../core/job.js";
import { advancesVersion, transitions } from "../../core/transitions.js";
import type { Change } from "../engine.js";
import type { RecordWrite } from "../record.js";
import { contextText, type EventValues, eventValues } from "./rows.js";

/** What a `created` event puts into the job's own row. */
export interface NewJob {
  readonly service: string;
  readonly queue: string;
  readonly type: string;
  readonly typeVersion: number;
  readonly priority: number;
  readonly deadline: number | null;
  readonly maxTries: number;
  readonly key: JobKeyPolicy | null;
  readonly tags: readonly string[] | null;
  readonly blockers: readonly Blocker[] | null;
  readonly parentId: string | null;
  readonly chainId: string | null;
  readonly agent: string | null;
  readonly context: string;
}

/** A change in flat values. */
export interface FlatChange {
  readonly id: string;
  readonly expectVersion: number;
  readonly expectToken: number | null;
  readonly name: string;
  readonly version: number;
  readonly run: number;
  readonly tries: number;
  readonly state: JobState;
  readonly at: number;
  readonly runAt: number;
  readonly detail: string | null;
  readonly aggregate: Aggregate | null;
  /** The keeper says that the lease of this token has lapsed, which the store checks. */
  readonly lapse: boolean;
  readonly values: EventValues;
  readonly create: NewJob | null;
  readonly before: readonly RecordWrite[] | null;
  readonly after: readonly RecordWrite[] | null;
  readonly follow: readonly FlatChange[] | null;
}

/** A version that no job has, for a change whose event is of another job. */
const noVersion = -1;

/** Flattens a change. */
export function flatChange(change: Change): FlatChange {
  return flatChangeOf(change, eventValues(change.event));
}

/** Flattens a change whose event is stored with these values. */
export function flatChangeOf(change: Change, values: EventValues): FlatChange {
  const { event, expect, records } = change;
  const token = "token" in event ? event.token : undefined;
  return {
    id: change.job.id,
    expectVersion: change.job.id === event.jobId ? expect.version : noVersion,
    expectToken: expect.token ?? null,
    name: event.name,
    version: event.version,
    run: event.run,
    tries: event.tries,
    state: event.state,
    at: event.at,
    runAt: "runAt" in event ? event.runAt : 0,
    detail: detailOf(event),
    aggregate: ("aggregate" in event ? event.aggregate : undefined) ?? null,
    lapse: token !== undefined && event.actor.startsWith("keeper:"),
    values,
    create: event.name === "created" ? newJob(event) : null,
    before: records?.before ?? null,
    after: records?.after ?? null,
    follow: change.follow?.map(flatChange) ?? null,
  };
}

/**
 * What a list shows of an event's reason: the error's message or the reason in words. Of a completed job it is the one that
 * continues it, which no list shows: it tells whether the end of a chain is still there.
 */
export function detailOf(event: Change["event"]): string | null {
  if ("error" in event) return event.error.message;
  if ("reason" in event && event.reason !== undefined) return event.reason;
  if (event.name === "unreachable") return unreachableReason(event);
  if (event.name === "completed") return event.continuation?.jobId ?? null;
  return event.name === "stale" || event.name === "released" ? event.cause : null;
}

function newJob(event: EventOf<"created">): NewJob {
  return {
    service: event.service,
    queue: event.queue,
    type: event.type,
    typeVersion: event.typeVersion,
    priority: event.priority,
    deadline: event.deadline ?? null,
    maxTries: event.maxTries,
    key: event.key ?? null,
    tags: event.tags.length > 0 ? event.tags : null,
    blockers: event.blockers.length > 0 ? event.blockers : null,
    parentId: event.parentId ?? null,
    chainId: event.chainId ?? null,
    agent: event.agent ?? null,
    context: contextText(event.context),
  };
}

/** Whether an event is one that never advances the version. */
export function isNote(event: JobEvent): boolean {
  return Object.hasOwn(transitions, event.name) && !advancesVersion(event.name);
}

/** A note as a change, which is fenced by its token alone. */
export function noteChange(event: JobEvent): Change {
  const token = "token" in event ? event.token : undefined;
  const job = { service: event.service, type: event.type, id: event.jobId };
  return {
    job,
    event,
    expect: token === undefined ? { version: event.version } : { version: event.version, token },
  };
}
