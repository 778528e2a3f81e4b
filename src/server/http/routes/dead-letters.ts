/**
 * Dead letters: jobs whose tries did not help. One by one, or all that a filter matches, a bounded number at a time.
 */
import { z } from "zod";
import { commandMany } from "../../../client/commands.js";
import { JobRef } from "../../../client/job-ref.js";
import type { Command } from "../../../core/command.js";
import type { Job } from "../../../core/job.js";
import { pageMax } from "../../../engine/query.js";
import { tellFault } from "../bulk-fault.js";
import { type Answer, ok, type Route, type RouteRequest, route } from "../route.js";
import { cursorQuery, pageAnswer, pageOf, pageQuery } from "../wire/common.js";
import { changedJobBody, rowBody, rowOut } from "../wire/job.js";
import { commandAnswers, jobParams } from "./job.js";
import { filterFields, filterOf, pageAskOf } from "./lists.js";

const group = "Dead letters";

/** How many dead letters one bulk request works on. */
const bulkMax = 1_000;

const reason = z.string().max(1_000).optional();
const { parentId: _parent, chainId: _chain, ...deadFilter } = filterFields;

const bulkIn = z.strictObject({
  filter: z.strictObject(deadFilter).default({}),
  preview: z.boolean().default(false).meta({ description: "Only count what matches." }),
  limit: z.number().int().min(1).max(bulkMax).default(bulkMax),
  reason,
});

const bulkOut = z
  .object({
    matched: z.number().int().meta({ description: "How many matched when the request came." }),
    done: z.number().int(),
    failed: z.number().int(),
    remaining: z
      .number()
      .int()
      .meta({ description: "How many match still; ask again until it is 0." }),
    preview: z.boolean(),
  })
  .meta({ id: "BulkOutcome" });

/** The routes of dead letters. */
export const deadLetterRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/dead-letters",
    operation: "listDeadLetters",
    group,
    summary: "Dead jobs, newest first.",
    needs: "admin.read",
    query: z.object({ ...filterFields, ...pageQuery, cursor: cursorQuery.optional() }),
    answers: {
      200: { description: "A page.", body: pageOf(rowOut), headers: { Link: "The next page." } },
    },
    handle: async (request) => {
      const { backend, query } = request;
      const filter = { ...filterOf(query), state: ["dead"] as const };
      const page = await backend.engine.query("jobs", { filter, ...pageAskOf(query) });
      return pageAnswer(page, request, rowBody);
    },
  }),
  route({
    method: "post",
    path: "/v1/dead-letters/{id}/replay",
    operation: "replayDeadLetter",
    group,
    summary: "Run a dead job again.",
    needs: "admin.mutate",
    params: jobParams,
    answers: commandAnswers,
    handle: async ({ backend, caller, params }) => {
      const ref = new JobRef(backend.services.operator(caller), params.id);
      return ok(changedJobBody(caller, await ref.replay().orThrow()));
    },
  }),
  route({
    method: "post",
    path: "/v1/dead-letters/{id}/dismiss",
    operation: "dismissDeadLetter",
    group,
    summary: "Mark a dead job as seen.",
    needs: "admin.mutate",
    params: jobParams,
    body: z.strictObject({ reason }),
    answers: commandAnswers,
    handle: async ({ backend, caller, params, body }) => {
      const ref = new JobRef(backend.services.operator(caller), params.id);
      return ok(changedJobBody(caller, await ref.dismiss(body.reason).orThrow()));
    },
  }),
  bulk("replay", "Run all dead jobs again that a filter matches."),
  bulk("dismiss", "Mark all dead jobs as seen that a filter matches."),
];

function bulk(what: "replay" | "dismiss", summary: string): Route {
  return route({
    method: "post",
    path: `/v1/dead-letters/${what}`,
    operation: `${what}DeadLetters`,
    group,
    summary,
    description:
      "Up to `limit` of them at a time, oldest last; with `preview` they are only counted.",
    needs: "admin.mutate",
    body: bulkIn,
    answers: {
      200: { description: "How many there were, and what became of them.", body: bulkOut },
    },
    handle: (request) => carryOut(request, what),
  });
}

async function carryOut(
  request: RouteRequest<undefined, undefined, z.output<typeof bulkIn>>,
  what: "replay" | "dismiss",
): Promise<Answer> {
  const { backend, caller, body } = request;
  const { engine, ids } = backend;
  const { preview, limit, reason: why } = body;
  const filter = { ...filterOf(body.filter), state: ["dead"] as const };
  const { count: matched } = await engine.query("jobs", { filter, limit: 1 });
  if (preview) return ok({ matched, done: 0, failed: 0, remaining: matched, preview });
  const found = await matching(request, filter, limit);
  const { runtime } = backend.services.operator(caller);
  const command = (job: Job): Command => {
    const origin = { eventId: ids.eventId(), actor: caller.actor };
    // One that was replayed meanwhile is not dead any more: dismissing it is refused, and it is left alone.
    if (what === "replay" && job.state === "dead")
      return { command: "retry", runAt: Math.round(engine.now()), ...origin };
    return { command: "dismiss", ...(why === undefined ? null : { reason: why }), ...origin };
  };
  const outcomes = await commandMany(runtime, found, command);
  const done = outcomes.filter(({ ok: isDone }) => isDone).length;
  tellFault(request, outcomes, done);
  const { count: remaining } = await engine.query("jobs", { filter, limit: 1 });
  return ok({ matched, done, failed: found.length - done, remaining, preview });
}

async function matching(
  { backend }: Pick<RouteRequest, "backend">,
  filter: object,
  limit: number,
): Promise<readonly string[]> {
  const found: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await backend.engine.query("jobs", {
      filter,
      limit: Math.min(pageMax, limit - found.length),
      ...(cursor === undefined ? null : { cursor }),
    });
    found.push(...page.entries.map(({ id }) => id));
    cursor = page.nextCursor;
  } while (cursor !== undefined && found.length < limit);
  return found;
}
