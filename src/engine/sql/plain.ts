/**
 * The hot paths of creating and settling as flat values: jobs with no key, no tags and no relatives that are due at once,
 * and outcomes that end a job under its token and change no records. Engines store many of them in few statements.
 */
import type { EventOf } from "../../core/event.js";
import { isEnded } from "../../core/job.js";
import type { Change } from "../engine.js";
import { detailOf } from "./change.js";
import { bodyText, contextText, createdBody, type EventValues } from "./rows.js";

/** A plain create as values, which are cheap to carry from thread to thread. */
export type PlainCreate = readonly [
  id: string,
  service: string,
  queue: string,
  type: string,
  typeVersion: number,
  priority: number,
  runAt: number,
  at: number,
  deadline: number | null,
  maxTries: number,
  context: string,
  eventId: string,
  actor: string,
  body: string,
];

/** Whether a change is a plain create. */
export function isPlainCreate(change: Change): boolean {
  const { event } = change;
  return (
    event.name === "created" &&
    event.jobId === change.job.id &&
    change.records === undefined &&
    change.follow === undefined &&
    change.expect.version === 0 &&
    event.key === undefined &&
    event.runAt <= event.at &&
    event.tags.length === 0 &&
    event.blockers.length === 0 &&
    event.parentId === undefined &&
    event.chainId === undefined &&
    event.agent === undefined
  );
}

/** The values of a plain create. */
export function plainCreate(change: Change): PlainCreate {
  const event = change.event as EventOf<"created">;
  return [
    event.jobId,
    event.service,
    event.queue,
    event.type,
    event.typeVersion,
    event.priority,
    event.runAt,
    event.at,
    event.deadline ?? null,
    event.maxTries,
    contextText(event.context),
    event.id,
    event.actor,
    createdBody(event),
  ];
}

/** A plain outcome as values, which are cheap to carry from thread to thread. */
export type PlainEnd = readonly [
  id: string,
  version: number,
  token: number,
  detail: string | null,
  aggregate: string | null,
  ...event: EventValues,
];

/** Whether a change is a plain outcome. */
export function isPlainEnd(change: Change): boolean {
  const { event, expect, job, records, follow } = change;
  return (
    records === undefined &&
    follow === undefined &&
    expect.token !== undefined &&
    event.jobId === job.id &&
    isEnded(event.state) &&
    event.name !== "deleted"
  );
}

/** The values of a plain outcome. */
export function plainEnd({ event, expect, job }: Change): PlainEnd {
  const aggregate = ("aggregate" in event ? event.aggregate : undefined) ?? null;
  const { version, token = 0 } = expect;
  // Written out, because spreading the values of an event costs more than making them.
  return [
    job.id,
    version,
    token,
    detailOf(event),
    aggregate,
    event.name,
    event.version,
    event.run,
    event.tries,
    event.state,
    event.previousState,
    event.at,
    event.id,
    event.actor,
    bodyText(event),
  ];
}
