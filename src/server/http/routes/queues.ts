/**
 * Queues: what they hold, their limits, and stopping, emptying and removing them.
 */
import { z } from "zod";
import { leaveAuditEvent } from "../../../client/audit.js";
import { commandMany } from "../../../client/commands.js";
import { QueueExists } from "../../../client/errors.js";
import { Queues } from "../../../client/queues.js";
import { type JobFilter, pageMax, type QueueRow } from "../../../engine/query.js";
import { type QueueSettings, recordId } from "../../../engine/record.js";
import type { Backend } from "../backend.js";
import { tellFault } from "../bulk-fault.js";
import { errorOut } from "../openapi.js";
import { checkQueueName } from "../queue-names.js";
import { notFound, refused } from "../refusal.js";
import { type Answer, ok, type Route, type RouteRequest, route } from "../route.js";
import { listOf, name } from "../wire/common.js";
import { queueBody, queueOut } from "../wire/operate.js";

const group = "Queues";

/** How many jobs one purge removes. */
const purgeMax = 1_000;

const maxActive = z.number().int().min(1).max(1_000_000);

const queueParams = z.object({ service: name("service"), queue: name("queue") });

const queueAnswers = {
  200: { description: "The queue.", body: queueOut },
  404: { description: "There is no such queue.", body: errorOut },
} as const;

type OfQueue = RouteRequest<z.output<typeof queueParams>, unknown, unknown>;

/** The routes of queues. */
export const queueRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/queues",
    operation: "listQueues",
    group,
    summary: "The queues that hold jobs or have settings.",
    needs: "admin.read",
    query: z.object({ service: name("service").optional() }),
    answers: { 200: { description: "The queues.", body: listOf(queueOut) } },
    handle: async ({ backend, query }) =>
      ok({ entries: await queueBodies(backend, query.service) }),
  }),
  route({
    method: "post",
    path: "/v1/queues",
    operation: "createQueue",
    group,
    summary: "Give a queue settings before it has jobs.",
    needs: "admin.mutate",
    body: z.strictObject({
      service: name("service"),
      queue: name("queue"),
      paused: z.boolean().default(false),
      maxActive: maxActive.optional(),
    }),
    answers: {
      201: {
        description: "Created.",
        body: queueOut,
        headers: { Location: "The path of the queue." },
      },
      409: { description: "It is there already.", body: errorOut },
    },
    handle: async (request) => {
      const { backend, body } = request;
      const { service, queue, ...settings } = body;
      checkQueueName(backend, queue);
      // One that holds jobs is there without settings, too.
      if ((await find(backend, service, queue)) !== undefined) {
        const message = `Queue ${queue} of ${service} is there already.`;
        throw new QueueExists({ queue, message });
      }
      await (await queuesOf(request, service)).create(queue, settings).orThrow();
      const Location = `/v1/queues/${service}/${queue}`;
      return { status: 201, body: await shown(backend, service, queue), headers: { Location } };
    },
  }),
  route({
    method: "get",
    path: "/v1/queues/{service}/{queue}",
    operation: "getQueue",
    group,
    summary: "A queue.",
    needs: "admin.read",
    params: queueParams,
    answers: queueAnswers,
    handle: async (request) => ok(await existing(request)),
  }),
  route({
    method: "patch",
    path: "/v1/queues/{service}/{queue}",
    operation: "changeQueue",
    group,
    summary: "Change the limits of a queue; null removes one.",
    description: "Workers go by a new limit within seconds.",
    needs: "admin.mutate",
    params: queueParams,
    body: z.strictObject({
      maxActive: maxActive.nullable().optional(),
      paused: z.boolean().optional(),
    }),
    answers: queueAnswers,
    handle: async (request) => {
      await existing(request);
      const { service, queue } = request.params;
      await (await queuesOf(request, service)).configure(queue, request.body).orThrow();
      return ok(await shown(request.backend, service, queue));
    },
  }),
  command("pause", "Hand out no more jobs of a queue, in every process."),
  command("resume", "Hand out jobs of a queue again."),
  route({
    method: "post",
    path: "/v1/queues/{service}/{queue}/purge",
    operation: "purgeQueue",
    group,
    summary: "Delete the jobs that wait in a queue; those that run stay.",
    description:
      "Up to 1,000 at a time: ask again until none remain. With preview they are only counted.",
    needs: "admin.mutate",
    params: queueParams,
    body: z.strictObject({ preview: z.boolean().default(false) }),
    answers: {
      200: {
        description: "How many there were and how many are left.",
        body: z
          .object({
            matched: z.number().int(),
            removed: z.number().int(),
            remaining: z.number().int(),
            preview: z.boolean(),
          })
          .meta({ id: "PurgeOutcome" }),
      },
      404: queueAnswers[404],
    },
    handle: purge,
  }),
  route({
    method: "delete",
    path: "/v1/queues/{service}/{queue}",
    operation: "deleteQueue",
    group,
    summary: "Forget the settings of an empty queue; with force also of one that holds jobs.",
    needs: "admin.mutate",
    params: queueParams,
    query: z.object({ force: z.boolean().default(false) }),
    answers: {
      204: { description: "Deleted." },
      404: queueAnswers[404],
      409: { description: "It holds jobs.", body: errorOut },
    },
    handle: remove,
  }),
];

function command(what: "pause" | "resume", summary: string): Route {
  return route({
    method: "post",
    path: `/v1/queues/{service}/{queue}/${what}`,
    operation: `${what}Queue`,
    group,
    summary,
    needs: "admin.mutate",
    params: queueParams,
    answers: { 200: queueAnswers[200] },
    // A queue may be paused before its first job comes.
    handle: async (request) => {
      const { backend, params } = request;
      const { service, queue } = params;
      checkQueueName(backend, queue);
      await (await queuesOf(request, service))[what](queue).orThrow();
      return ok(await shown(backend, service, queue));
    },
  });
}

async function queuesOf(
  { backend, caller, requestId }: Pick<RouteRequest, "backend" | "caller" | "requestId">,
  service: string,
): Promise<Queues> {
  return new Queues(await backend.services.client(service, caller, requestId));
}

async function existing({ backend, params: { service, queue } }: OfQueue): Promise<unknown> {
  const found = await find(backend, service, queue);
  if (found === undefined) throw notFound("queue", queue);
  return found;
}

async function find(backend: Backend, service: string, queue: string) {
  const all = await queueBodies(backend, service);
  return all.find((body) => (body as QueueRow).queue === queue);
}

async function shown(backend: Backend, service: string, queue: string): Promise<unknown> {
  const none = { service, queue, paused: false, waiting: 0, active: 0 };
  return (await find(backend, service, queue)) ?? none;
}

async function queueBodies(
  { engine }: Backend,
  service: string | undefined,
): Promise<readonly unknown[]> {
  const rows = await engine.query("queues", service === undefined ? {} : { service });
  const records = await engine.records(rows.map((row) => recordId.queue(row.service, row.queue)));
  return rows.map((row, index) => {
    return queueBody(row, records[index]?.body as unknown as QueueSettings | undefined);
  });
}

const waitingStates: JobFilter["state"] = ["pending", "retry", "blocked"];

async function purge(
  request: RouteRequest<z.output<typeof queueParams>, undefined, { readonly preview: boolean }>,
): Promise<Answer> {
  await existing(request);
  const { backend, caller, params, body, requestId } = request;
  const { engine, ids } = backend;
  const filter = { ...params, state: waitingStates ?? [] };
  const count = async () => (await engine.query("jobs", { filter, limit: 1 })).count;
  const matched = await count();
  if (body.preview) return ok({ matched, removed: 0, remaining: matched, preview: true });
  const { runtime } = backend.services.operator(caller, requestId);
  let removed = 0;
  for (let asked = 0; asked < purgeMax; asked += pageMax) {
    const { entries } = await engine.query("jobs", { filter, limit: pageMax });
    if (entries.length === 0) break;
    const outcomes = await commandMany(
      runtime,
      entries.map(({ id }) => id),
      (job) => ({
        ...{ command: "delete", reason: "purged" },
        // One that has been started meanwhile stays.
        force: job.state !== "active",
        ...{ eventId: ids.eventId(), actor: caller.actor },
      }),
    );
    removed += outcomes.filter(({ ok: isDone }) => isDone).length;
    if (tellFault(request, outcomes, removed)) break;
  }
  const { service, queue: target } = params;
  await leaveAuditEvent(runtime, { action: "queue.purge", target, service, details: { removed } });
  return ok({ matched, removed, remaining: await count(), preview: false });
}

async function remove(
  request: RouteRequest<z.output<typeof queueParams>, { readonly force: boolean }>,
): Promise<Answer> {
  const { params, query } = request;
  const row = (await existing(request)) as QueueRow;
  if (row.waiting + row.active > 0 && !query.force) {
    const message = `Queue ${params.queue} holds ${row.waiting} waiting and ${row.active} active jobs; purge it first, or use force.`;
    throw refused("conflict", { reason: "queue_not_empty", message });
  }
  await (await queuesOf(request, params.service)).forget(params.queue).orThrow();
  return { status: 204 };
}
