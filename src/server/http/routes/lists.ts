/**
 * Lists of jobs: pages, counts, and lines that go on while jobs change.
 */
import { z } from "zod";
import type { JobFilter, JobRow, JobsAsk } from "../../../engine/query.js";
import type { Backend } from "../backend.js";
import { checkNeed } from "../guard.js";
import { badArgument } from "../refusal.js";
import { type Answer, ok, type Route, type RouteRequest, route } from "../route.js";
import { lineStream } from "../streams.js";
import {
  cursorQuery,
  name,
  pageAnswer,
  pageOf,
  pageQuery,
  stateOut,
  statesIn,
  time,
} from "../wire/common.js";
import { rowBody, rowOut } from "../wire/job.js";

const group = "Jobs";

/** How long a stream of lines goes on; its reader comes back. */
const streamMs = 60_000;

/** What narrows a list, but for states. */
export const filterFields = {
  service: name("service").optional(),
  type: name("type").optional(),
  queue: name("queue").optional(),
  tag: z.string().min(1).max(128).optional(),
  key: z
    .string()
    .min(1)
    .max(2_000)
    .optional()
    .meta({ description: "The readable concurrency key." }),
  since: time.optional().meta({ description: "Created at or after this time." }),
  until: time.optional().meta({ description: "Created before this time." }),
  text: z.string().min(1).max(64).optional().meta({ description: "Part of the id." }),
  parentId: name("id").optional(),
  chainId: name("id").optional(),
};

const filterQuery = { ...filterFields, state: statesIn.optional() };

const listQuery = z.object({
  ...filterQuery,
  ...pageQuery,
  cursor: cursorQuery.optional(),
  stream: z.enum(["ndjson"]).optional(),
});

const taggedOut = z.object({
  entries: z.array(
    z.object({
      jobId: z
        .string()
        .nullable()
        .meta({ description: "null where the job is gone and its tags were left behind." }),
      tags: z.array(z.string()),
    }),
  ),
  nextCursor: z.string().optional(),
});

const countsOut = z.object({
  entries: z.array(
    z.object({
      service: z.string(),
      type: z.string(),
      queue: z.string(),
      state: stateOut,
      count: z.number().int(),
    }),
  ),
  total: z.number().int(),
});

/** The routes of lists. */
export const listRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/jobs",
    operation: "listJobs",
    group,
    summary: "Jobs, newest first, without their payloads.",
    description:
      "Pages by offset, or after a cursor for deep ones. With stream=ndjson: a line for each job that matches, then one for each change, for up to 60 seconds.",
    needs: "admin.read",
    query: listQuery,
    answers: {
      200: {
        description: "A page, or a stream of lines.",
        body: pageOf(rowOut),
        others: { "application/x-ndjson": "One job per line." },
        headers: { Link: "The next page." },
      },
    },
    handle: listJobs,
  }),
  route({
    method: "get",
    path: "/v1/jobs/counts",
    operation: "countJobs",
    group,
    summary: "How many jobs there are, by type, queue and state.",
    needs: "admin.read",
    query: z.object(filterQuery),
    answers: { 200: { description: "The counts.", body: countsOut } },
    handle: async ({ backend, query }) => {
      const entries = await backend.engine.query("counts", { filter: filterOf(query) });
      return ok({ entries, total: entries.reduce((sum, { count }) => sum + count, 0) });
    },
  }),
  route({
    method: "get",
    path: "/v1/jobs/tags",
    operation: "listTaggedJobs",
    group,
    summary: "Which tags lists find each job by, oldest first; only jobs that have some.",
    needs: "admin.read",
    query: z.object({ limit: pageQuery.limit, cursor: cursorQuery.optional() }),
    answers: { 200: { description: "Jobs with their tags.", body: taggedOut } },
    handle: async ({ backend, query: { limit, cursor } }) =>
      ok(
        await backend.engine.query("tagged", {
          limit,
          ...(cursor === undefined ? null : { cursor }),
        }),
      ),
  }),
];

/** The filter of a query, without what was not given. */
export function filterOf(query: object): JobFilter {
  const entries = Object.entries(query).filter(
    ([field, value]) => value !== undefined && field in filterQuery,
  );
  return Object.fromEntries(entries);
}

/** The page that a query asks for. */
export function pageAskOf(query: {
  readonly limit: number;
  readonly offset?: number | undefined;
  readonly cursor?: string | undefined;
}): Omit<JobsAsk, "filter"> {
  const { limit, offset, cursor } = query;
  if (cursor !== undefined && offset !== undefined)
    throw badArgument(
      "page_both_set",
      "cursor and offset exclude each other; give one of them.",
      "cursor",
    );
  return {
    limit,
    ...(offset === undefined ? null : { offset }),
    ...(cursor === undefined ? null : { cursor }),
  };
}

type ListRequest = RouteRequest<undefined, z.output<typeof listQuery>>;

async function listJobs(request: ListRequest): Promise<Answer> {
  const { backend, caller, query, limits } = request;
  const filter = filterOf(query);
  const ask = pageAskOf(query);
  if (query.stream === "ndjson") {
    checkNeed(caller, "admin.stream");
    const parts = { clock: backend.clock, limits, signal: request.signal(), endAfterMs: streamMs };
    return lineStream(parts, (ends) => rowLines(backend, filter, ends));
  }
  return pageAnswer(await backend.engine.query("jobs", { filter, ...ask }), request, rowBody);
}

/** Every job that matches, and then each of its changes, as lines. */
async function* rowLines(
  { engine, hub }: Backend,
  filter: JobFilter,
  signal: AbortSignal,
): AsyncIterable<string> {
  // What changes while the list is read comes afterwards once more.
  const before = await engine.head();
  let cursor: string | undefined;
  do {
    const page = await engine.query("jobs", {
      filter,
      limit: 100,
      ...(cursor === undefined ? null : { cursor }),
    });
    yield page.entries.map((row) => `${JSON.stringify(rowBody(row))}\n`).join("");
    cursor = page.nextCursor;
  } while (cursor !== undefined && !signal.aborted);
  for await (const { event } of hub.listen(before, signal)) {
    if (filter.service !== undefined && event.service !== filter.service) continue;
    if (filter.type !== undefined && event.type !== filter.type) continue;
    const row = await engine.query("job", { id: event.jobId });
    if (row !== null && rowMatches(row, filter)) yield `${JSON.stringify(rowBody(row))}\n`;
  }
}

/** Whether a row is one that a filter asks for. */
function rowMatches(row: JobRow, filter: JobFilter): boolean {
  const { state, tag, since, until, text, ...same } = filter;
  return (
    (state === undefined || state.includes(row.state)) &&
    (tag === undefined || row.tags.includes(tag)) &&
    (since === undefined || row.createdAt >= since) &&
    (until === undefined || row.createdAt < until) &&
    (text === undefined || row.id.includes(text)) &&
    Object.entries(same).every(([name, value]) => row[name as keyof JobRow] === value)
  );
}
