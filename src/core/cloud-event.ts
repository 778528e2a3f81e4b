/**
 * Lifecycle events as CloudEvents 1.0, for whoever listens from outside. They say what happened to which job, and hold
 * nothing of what the job was given or gave unless that is asked for.
 */
import type { EventName, JobEvent } from "./event.js";
import type { Json } from "./json.js";
import { redactEvent } from "./secrets.js";
import { transitions } from "./transitions.js";

/** An event in the JSON format of CloudEvents 1.0, in structured mode. */
export interface CloudEvent {
  readonly specversion: "1.0";
  /** The event's own id: the same however often it is sent. */
  readonly id: string;
  /** `/millrace/<service>`. */
  readonly source: string;
  /** `millrace.job.<event>`, such as `millrace.job.completed`. */
  readonly type: string;
  /** The id of the job. */
  readonly subject?: string;
  /** When it happened, in RFC 3339. */
  readonly time: string;
  readonly datacontenttype: "application/json";
  /** The trace that the job belongs to. */
  readonly traceparent?: string;
  readonly tracestate?: string;
  readonly data: { readonly [name: string]: Json };
}

/** The media type of a CloudEvent in structured mode. */
export const cloudEventMediaType = "application/cloudevents+json; charset=utf-8";

/** The events that can be listened to: all but tickets, which only some stores have. */
export const eventNames: readonly EventName[] = (Object.keys(transitions) as EventName[]).filter(
  (name) => transitions[name].kind !== "ticket",
);

/** The events that change a job, which are told where nobody says otherwise. */
export const changeNames: readonly EventName[] = eventNames.filter(
  (name) => transitions[name].kind === "change",
);

/** What callers and handlers put into events, which is theirs. */
const contents: ReadonlySet<string> = new Set([
  "payload",
  "result",
  "data",
  "entries",
  "signature",
  "secret",
]);

/** The members that the envelope of a CloudEvent tells. */
const told: ReadonlySet<string> = new Set(["id", "at", "name", "context"]);

/** What is sent of an event. */
export function cloudEvent(
  event: JobEvent,
  { includePayloads }: { readonly includePayloads: boolean },
): CloudEvent {
  const { id, service, name, jobId, at, context } = event;
  const data = Object.entries(redactEvent(event)).filter(
    ([member, value]) =>
      value !== undefined && !told.has(member) && (includePayloads || !contents.has(member)),
  );
  const { traceparent, tracestate, requestId } = context;
  return {
    specversion: "1.0",
    id,
    source: sourceOf(service),
    type: `millrace.job.${name}`,
    subject: jobId,
    time: new Date(at).toISOString(),
    datacontenttype: "application/json",
    traceparent,
    ...(tracestate === undefined ? null : { tracestate }),
    data: { event: name, requestId, ...(Object.fromEntries(data) as { [name: string]: Json }) },
  };
}

/** An event that tells of nothing, for trying out a receiver. */
export function testEvent(service: string, webhookId: string, id: string, at: number): CloudEvent {
  return {
    specversion: "1.0",
    id,
    source: sourceOf(service),
    type: "millrace.webhook.test",
    time: new Date(at).toISOString(),
    datacontenttype: "application/json",
    data: { service, webhookId },
  };
}

function sourceOf(service: string): string {
  return `/millrace/${service}`;
}
