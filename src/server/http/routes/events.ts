/**
 * What has happened and happens: the history of a job and the feed of the whole store, as JSON or as server-sent events.
 */
import { z } from "zod";
import type { JobRef } from "../../../client/job-ref.js";
import { feedCursorPattern } from "../../../client/option-checks.js";
import type { JobEvent } from "../../../core/event.js";
import type { Engine } from "../../../engine/engine.js";
import { InvalidCursor, invalidCursor } from "../../../engine/errors.js";
import { feedStart } from "../feed-hub.js";
import { checkNeed } from "../guard.js";
import { badArgument } from "../refusal.js";
import { type Answer, ok, type Route, type RouteRequest, route } from "../route.js";
import { eventStream, eventText } from "../streams.js";
import { name, partAnswer, partOf, partQuery } from "../wire/common.js";
import { eventBody, eventOut } from "../wire/job.js";
import { jobAnswers, jobParams, refOf } from "./job.js";

const group = "Events";

/** How many events of the feed one answer holds. */
const feedMax = 1_000;
const feedDefault = 100;

/** How many events one answer looks through; where few match, it may hold fewer than were asked for. */
const lookedMax = 10_000;

const sse = { "text/event-stream": "Server-sent events, live. Resume with Last-Event-ID." };

const feedQuery = z.object({
  service: name("service").optional(),
  type: name("type").optional(),
  name: z.string().min(1).max(64).optional().meta({ description: "The name of an event." }),
  cursor: z
    .union([z.string().regex(feedCursorPattern), z.literal(feedStart)])
    .optional()
    .meta({ description: "After which event; start is the beginning." }),
  limit: z.number().int().min(1).max(feedMax).default(feedDefault),
});

/** The routes of events. */
export const eventRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/jobs/{id}/events",
    operation: "listJobEvents",
    group,
    summary: "The history of a job, oldest first; live as server-sent events.",
    needs: "admin.read",
    params: jobParams,
    query: partQuery,
    headers: {
      "Last-Event-ID":
        "The event after which a stream goes on; it begins with the first where the job has no such event.",
    },
    answers: {
      200: {
        description: "Its events.",
        body: partOf(eventOut),
        others: sse,
        headers: { Link: "The next events." },
      },
      404: jobAnswers[404],
    },
    handle: jobEvents,
  }),
  route({
    method: "get",
    path: "/v1/events",
    operation: "listEvents",
    group,
    summary: "The feed: every event of the store, in order; live as server-sent events.",
    description:
      "As JSON it begins at the beginning unless a cursor is given; as a stream it begins with the next event unless a cursor or Last-Event-ID is.",
    needs: "admin.read",
    query: feedQuery,
    headers: {
      "Last-Event-ID":
        "The cursor after which a stream goes on; one that is none of this store is refused.",
    },
    answers: {
      200: {
        description: "Events with their cursors.",
        body: z.object({
          entries: z.array(z.object({ cursor: z.string(), event: eventOut })),
          nextCursor: z.string().optional(),
        }),
        others: sse,
      },
    },
    handle: feed,
  }),
];

function wantsStream({ header }: RouteRequest): boolean {
  return header("accept")?.includes("text/event-stream") ?? false;
}

type OfJobEvents = RouteRequest<z.output<typeof jobParams>, z.output<typeof partQuery>>;

async function jobEvents(request: OfJobEvents): Promise<Answer> {
  const { backend, params, limits, caller } = request;
  const ref = refOf(request);
  if (!wantsStream(request)) return partAnswer(await ref.events().orThrow(), request, eventBody);
  checkNeed(caller, "admin.stream");
  // A job that is not there is said so at once, and not by a stream without events.
  await ref.events().orThrow();
  const signal = request.signal();
  const last = request.header("last-event-id");
  return eventStream({ clock: backend.clock, limits, signal }, (ends) =>
    ownEvents(ref, request, last, ends, params.id),
  );
}

/** The history of a job after an event, and then what happens to it. */
async function* ownEvents(
  ref: JobRef,
  { backend }: RouteRequest<unknown>,
  last: string | null,
  signal: AbortSignal,
  jobId: string,
): AsyncIterable<string> {
  const before = await backend.engine.head();
  const history = (await ref.events()).unwrapOr([]);
  const from = last === null ? 0 : history.findIndex(({ id }) => id === last) + 1;
  const seen = new Set(history.map(({ id }) => id));
  for (const event of history.slice(from)) yield textOf(event, JSON.stringify(eventBody(event)));
  for await (const { event, text } of ofJob(backend.hub.listen(before, signal), jobId)) {
    if (seen.has(event.id)) continue;
    yield textOf(event, text);
    if (event.name === "deleted") return;
  }
}

async function* ofJob<Item extends { readonly event: JobEvent }>(
  items: AsyncIterable<Item>,
  jobId: string,
): AsyncIterable<Item> {
  for await (const item of items) if (item.event.jobId === jobId) yield item;
}

function textOf({ id, name: event }: JobEvent, text: string): string {
  return eventText(id, event, text);
}

type FeedRequest = RouteRequest<undefined, z.output<typeof feedQuery>>;

async function feed(request: FeedRequest): Promise<Answer> {
  const { backend, query, limits, caller } = request;
  if (!wantsStream(request)) return feedPage(request);
  checkNeed(caller, "admin.stream");
  const signal = request.signal();
  const last = request.header("last-event-id") || null;
  const cursor = last ?? query.cursor ?? null;
  const field = last === null ? "cursor" : "last-event-id";
  if (cursor !== null && cursor !== feedStart)
    await checkPlace(backend.engine, { cursor, field }, signal);
  const listen = async function* (ends: AbortSignal): AsyncIterable<string> {
    for await (const item of backend.hub.listen(cursor, ends))
      if (matches(item.event, query)) yield eventText(item.cursor, item.event.name, item.text);
  };
  return eventStream({ clock: backend.clock, limits, signal }, listen);
}

/**
 * Refuses a place that is none of this store's feed while that can be told: a stream that has begun can only break off,
 * and its reader would come back with the same place for ever.
 */
async function checkPlace(
  engine: Engine,
  { cursor, field }: { readonly cursor: string; readonly field: string },
  signal: AbortSignal,
): Promise<void> {
  try {
    if (!feedCursorPattern.test(cursor)) throw invalidCursor(cursor);
    for await (const _ of engine.tail(cursor, signal, "stored")) return;
  } catch (error) {
    if (!(error instanceof InvalidCursor)) throw error;
    throw badArgument(
      "cursor_invalid",
      `${field} is no cursor of this store's feed; ${remedy}`,
      field,
    );
  }
  await checkEnd(engine, { cursor, field });
}

const remedy = "go on from one that it gave, or begin anew with cursor=start.";

/** Refuses a place after which nothing can have come yet, and which therefore is not of this store. */
async function checkEnd(
  engine: Engine,
  { cursor, field }: { readonly cursor: string; readonly field: string },
): Promise<void> {
  const head = await engine.head();
  // Snapshots of PostgreSQL do not compare; whoever has one of the future goes on from now.
  if (!isPosition(cursor) || !isPosition(head) || Number(cursor) <= Number(head)) return;
  const message = `${field} is beyond the end of this store's feed, which is ${head}; ${remedy}`;
  throw badArgument("cursor_beyond_end", message, field);
}

function isPosition(cursor: string): boolean {
  return /^\d+$/.test(cursor);
}

/** The stored events after a cursor that match. */
async function feedPage({ backend: { engine }, query, signal }: FeedRequest): Promise<Answer> {
  const { limit, cursor = feedStart } = query;
  const entries: unknown[] = [];
  let last = cursor === feedStart ? null : cursor;
  let looked = 0;
  for await (const { cursor: at, event } of engine.tail(last, signal(), "stored")) {
    last = at;
    looked += 1;
    if (matches(event, query)) entries.push({ cursor: at, event: eventBody(event) });
    if (entries.length >= limit || looked >= lookedMax) break;
  }
  // Whoever has come to the end asks again and again, and would never learn that it is another store's.
  if (looked === 0 && last !== null) await checkEnd(engine, { cursor: last, field: "cursor" });
  return ok({ entries, ...(last !== null && { nextCursor: last }) });
}

function matches(event: JobEvent, query: z.output<typeof feedQuery>): boolean {
  return (
    (query.service === undefined || query.service === event.service) &&
    (query.type === undefined || query.type === event.type) &&
    (query.name === undefined || query.name === event.name)
  );
}
