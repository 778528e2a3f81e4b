/**
 * Events as rows and rows as events. The envelope becomes columns, the rest one JSON text;
 * what never changes (names, context) stands once in the job's own row.
 */
import type { EventData, EventName, EventOf, JobEvent } from "../../core/event.js";
import type { JobContext } from "../../core/job.js";
import type { SqlRow, SqlValue } from "./statement.js";

/** Columns of `events` that an event fills, after `seq` and `job`. */
export const eventColumns = "name, version, run, tries, state, previous, at, id, actor, body";

/** The values of those columns. */
export type EventValues = readonly [
  name: SqlValue,
  version: SqlValue,
  run: SqlValue,
  tries: SqlValue,
  state: SqlValue,
  previous: SqlValue,
  at: SqlValue,
  id: SqlValue,
  actor: SqlValue,
  body: SqlValue,
];

/** How many values an event has. */
export const eventLength = 10;

/** Where `body` stands among the values. */
export const bodyIndex = 9;

/** An event as values for its row. */
export function eventValues(event: JobEvent, body = bodyText(event)): EventValues {
  return [
    event.name,
    event.version,
    event.run,
    event.tries,
    event.state,
    event.previousState,
    event.at,
    event.id,
    event.actor,
    body,
  ];
}

/** What an event says beyond its envelope. */
export function bodyText(event: JobEvent): string {
  // The events of every job are written out, because a list of names costs more than the text.
  if (event.name === "created") return createdBody(event);
  if (event.name === "started") return JSON.stringify({ token: event.token, worker: event.worker });
  if (event.name === "completed") return completedBody(event);
  const data: Record<string, unknown> = {};
  for (const name of dataNames[event.name])
    data[name] = (event as unknown as Record<string, unknown>)[name];
  return JSON.stringify(data);
}

/** The members that each event adds to the envelope. A `deleted` event takes the head along, since the job's row goes. */
const dataNames: {
  readonly [Name in Exclude<EventName, "created" | "started" | "completed">]: readonly (
    | keyof EventData[Name]
    | keyof JobHead
  )[];
} = {
  ready: ["cause"],
  unblocked: [],
  unreachable: ["blockerId"],
  acknowledged: ["agent"],
  progress: ["token", "progress"],
  logged: ["token", "entries"],
  emitted: ["token", "topic", "data"],
  heartbeat: ["token"],
  retry: ["token", "error", "runAt"],
  released: ["token", "cause", "runAt", "reason"],
  failed: ["token", "error", "aggregate"],
  cancelRequested: ["reason"],
  cancelled: ["token", "reason"],
  expired: ["deadline"],
  skipped: ["token", "reason", "replacedBy", "aggregate"],
  stale: ["token", "cause"],
  keyBlocked: ["token"],
  staleCompletionIgnored: ["token", "outcome"],
  hookFailed: ["hook", "error"],
  dead: ["token", "error"],
  retried: ["runAt", "forced"],
  dismissed: ["reason"],
  deleted: ["jobId", "service", "type", "context", "reason"],
};

/** The body of an outcome that says nothing but who gave it, and what it was made for: those of a batch have it in common. */
let plainCompleted = { token: 0, completedBy: null as string | null, body: "" };

function completedBody(event: EventOf<"completed">): string {
  const { token, completedBy } = event;
  const isPlain =
    event.result === undefined &&
    event.continuation === undefined &&
    event.aggregate === undefined &&
    event.secret === undefined;
  if (!isPlain || token === undefined) return completedText(event);
  if (plainCompleted.token !== token || plainCompleted.completedBy !== completedBy)
    plainCompleted = { token, completedBy, body: completedText(event) };
  return plainCompleted.body;
}

function completedText(event: EventOf<"completed">): string {
  return JSON.stringify({
    token: event.token,
    result: event.result,
    continuation: event.continuation,
    completedBy: event.completedBy,
    aggregate: event.aggregate,
    secret: event.secret,
  });
}

/**
 * The members of a `created` event that have no column, named one by one because this is the hottest path. What is implied
 * is left out: most creations say little more than their payload.
 */
export function createdBody(event: EventOf<"created">): string {
  if (isImplied(event)) return `{"payload":${JSON.stringify(event.payload)}}`;
  return JSON.stringify({
    payload: event.payload,
    typeVersion: unless(event.typeVersion, implied.typeVersion),
    queue: unless(event.queue, event.type),
    maxTries: unless(event.maxTries, implied.maxTries),
    priority: unless(event.priority, implied.priority),
    runAt: unless(event.runAt, event.at),
    deadLetter: unless(event.deadLetter, implied.deadLetter),
    tags: event.tags.length > 0 ? event.tags : undefined,
    blockers: event.blockers.length > 0 ? event.blockers : undefined,
    deadline: event.deadline,
    key: event.key,
    policy: event.policy,
    idempotencyKey: event.idempotencyKey,
    chainId: event.chainId,
    parentId: event.parentId,
    agent: event.agent,
    signature: event.signature,
    secret: event.secret,
  });
}

/** Whether a creation says no more than its payload, which is written twice as fast by itself. */
function isImplied(event: EventOf<"created">): boolean {
  return (
    event.typeVersion === implied.typeVersion &&
    event.queue === event.type &&
    event.maxTries === implied.maxTries &&
    event.priority === implied.priority &&
    event.runAt === event.at &&
    event.deadLetter === implied.deadLetter &&
    event.tags.length === 0 &&
    event.blockers.length === 0 &&
    event.deadline === undefined &&
    event.key === undefined &&
    event.policy === undefined &&
    event.idempotencyKey === undefined &&
    event.chainId === undefined &&
    event.parentId === undefined &&
    event.agent === undefined &&
    event.signature === undefined &&
    event.secret === undefined
  );
}

/**
 * What a creation that does not say it means, besides the queue of its type's name and the time of its creation. Stored
 * rows rely on these values for ever, whatever becomes of the defaults of jobs.
 */
const implied = { typeVersion: 1, maxTries: 5, priority: 0, deadLetter: true } as const;

function unless<Value>(value: Value, impliedValue: Value): Value | undefined {
  return value === impliedValue ? undefined : value;
}

/**
 * A creation from its columns and its body, which says what is not implied. Written out member by member, because an object
 * that grows is copied again and again, and every claim reads creations.
 */
export function creationFrom(
  head: JobHead,
  state: string,
  at: number,
  id: string,
  actor: string,
  bodyText: string,
): EventOf<"created"> {
  const body = JSON.parse(bodyText) as Partial<EventOf<"created">>;
  const event: Record<string, unknown> = {
    name: "created",
    id,
    jobId: head.jobId,
    service: head.service,
    type: head.type,
    version: 1,
    run: 1,
    tries: 0,
    state,
    previousState: null,
    at,
    actor,
    context: head.context,
    typeVersion: body.typeVersion ?? implied.typeVersion,
    queue: body.queue ?? head.type,
    payload: body.payload,
    maxTries: body.maxTries ?? implied.maxTries,
    priority: body.priority ?? implied.priority,
    runAt: body.runAt ?? at,
    deadLetter: body.deadLetter ?? implied.deadLetter,
    tags: body.tags ?? none,
    blockers: body.blockers ?? none,
  };
  for (const name in body) if (!(name in event)) event[name] = body[name as keyof typeof body];
  return event as unknown as EventOf<"created">;
}

const none: readonly never[] = [];

/** What a job's own row says of all its events. */
export interface JobHead {
  readonly jobId: string;
  readonly service: string;
  readonly type: string;
  readonly context: JobContext;
}

/** The columns that make a head, from `jobs j` and `lanes l`. */
export const headColumns = "j.id AS job_id, l.service, l.type, j.context";

/** The columns of `jobs` that hold what its creation says besides the rest of the row. What may be long comes last. */
export const creationColumns = "created_id, created_by, created_state, context, created_body";

/** The creation of a job as the columns of an event, from `jobs j`. */
export const createdColumns = `'created' AS name, 1 AS version, 1 AS run, 0 AS tries, j.created_state AS state, NULL AS previous,
  j.created_at AS at, j.created_id AS id, j.created_by AS actor, j.created_body AS body`;

/** The same, from the values of those columns that are not always the same. */
export function createdValues(
  state: string,
  at: number,
  id: string,
  actor: string,
  body: string,
): EventValues {
  return ["created", 1, 1, 0, state, null, at, id, actor, body];
}

/** Those columns as values: cheap to carry from thread to thread. */
export type HeadValues = readonly [jobId: string, service: string, type: string, context: string];

/** The values of a head out of a row. */
export function headValues(row: SqlRow): HeadValues {
  const { job_id, service, type, context } = row;
  return [job_id, service, type, context] as unknown as HeadValues;
}

/** The head of a job. */
export function headOf(values: HeadValues): JobHead {
  const [jobId, service, type, context] = values;
  return { jobId, service, type, context: contextFrom(context) };
}

/** A context as the text that stands in the job's own row; the trace's id is part of `traceparent`. */
export function contextText({ requestId, traceparent, tracestate }: JobContext): string {
  // Most are made here, and hold nothing that would have to be escaped.
  const words = `${requestId}","${traceparent}`;
  if (tracestate === undefined && plainWords.test(words)) return `["${words}"]`;
  return JSON.stringify(
    tracestate === undefined ? [requestId, traceparent] : [requestId, traceparent, tracestate],
  );
}

/** Two words and what stands between them, which neither can hold. */
const plainWords = /^[\w-]+","[\w-]+$/;

function contextFrom(text: string): JobContext {
  const [requestId, traceparent, tracestate] = JSON.parse(text) as [string, string, string?];
  const traceId = traceparent.slice(3, 35);
  return tracestate === undefined
    ? { requestId, traceId, traceparent }
    : { requestId, traceId, traceparent, tracestate };
}

/** The values of an event out of a row. */
export function valuesOf(row: SqlRow): EventValues {
  const { name, version, run, tries, state, previous, at, id, actor, body } = row as EventRow;
  // Some clients give large integers as text.
  return [name, version, run, tries, state, previous ?? null, Number(at), id, actor, body ?? null];
}

type EventRow = Readonly<
  Record<
    "name" | "version" | "run" | "tries" | "state" | "previous" | "at" | "id" | "actor" | "body",
    SqlValue
  >
>;

/** An event from its values. A `deleted` event carries its own head, since the job's row is gone. */
export function eventFrom(head: JobHead | null, values: EventValues): JobEvent {
  const body = values[bodyIndex];
  if (head && values[0] === "created") {
    const [, , , , state, , at, id, actor] = values;
    return creationFrom(head, String(state), Number(at), String(id), String(actor), String(body));
  }
  // The parsed body becomes the event: one object instead of two.
  const event = (body === null ? {} : JSON.parse(String(body))) as Record<string, unknown>;
  event.name = values[0];
  event.version = values[1];
  event.run = values[2];
  event.tries = values[3];
  event.state = values[4];
  event.previousState = values[5];
  event.at = values[6];
  event.id = values[7];
  event.actor = values[8];
  if (head) {
    event.jobId = head.jobId;
    event.service = head.service;
    event.type = head.type;
    event.context = head.context;
  }
  return event as unknown as JobEvent;
}
