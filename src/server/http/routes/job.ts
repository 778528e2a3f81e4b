/**
 * One job: reading it, and every command that it can be given from outside.
 */
import { z } from "zod";
import type { Client } from "../../../client/client.js";
import { completeJob } from "../../../client/completion.js";
import { continueWith } from "../../../client/continuation.js";
import { jobNotFound } from "../../../client/errors.js";
import { JobRef } from "../../../client/job-ref.js";
import { Reads } from "../../../client/reads.js";
import { isEnded } from "../../../core/job.js";
import { given } from "../given.js";
import { errorOut } from "../openapi.js";
import { badArgument, errorBody, refusalOf } from "../refusal.js";
import { ok, type Route, type RouteRequest, route } from "../route.js";
import { blockersOf } from "../wire/blockers.js";
import {
  anyJson,
  durationMs,
  listOf,
  name,
  partAnswer,
  partOf,
  partQuery,
  stateOut,
} from "../wire/common.js";
import {
  changedJobBody,
  changedJobOut,
  jobBody,
  jobOut,
  logBody,
  logOut,
  whyBody,
  whyOut,
} from "../wire/job.js";
import { createFields, payloadOf } from "./creates.js";

const group = "Jobs";

/** How many jobs one request may retry, and how long one may wait for an end. */
const retryMax = 100;
const waitMaxMs = 30_000;

const reason = z.string().max(1_000).optional();

/** How long a request waits for the end of a job or a chain. */
export const waitQuery = z.object({
  timeoutMs: z.number().int().min(0).max(waitMaxMs).default(waitMaxMs),
});

/** The path of a job. */
export const jobParams = z.object({ id: name("id") });

/** A job as the answer. */
export const jobAnswers = {
  200: { description: "The job.", body: jobOut },
  404: { description: "There is no such job.", body: errorOut },
} as const;

/** The answers of a command, which the job's state may forbid. */
export const commandAnswers = {
  200: { description: "The job as it is now.", body: changedJobOut },
  404: jobAnswers[404],
  409: { description: "The state of the job forbids it.", body: errorOut },
} as const;

const retryIn = { delayMs: durationMs.optional(), force: z.boolean().optional() };

/** What a completion without a worker gives: a result, or the job that goes on. */
export const completeIn = z.strictObject({
  result: anyJson.optional(),
  continueWith: z
    .strictObject({
      type: name("type"),
      payload: anyJson.optional(),
      payload_base64: z.string().optional(),
      priority: createFields.priority,
      delayMs: createFields.delayMs,
      runAt: createFields.runAt,
      deadline: createFields.deadline,
      maxTries: createFields.maxTries,
      tags: createFields.tags,
      blockers: createFields.blockers,
    })
    .optional(),
});

/** The routes of one job. */
export const jobRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/jobs/{id}",
    operation: "getJob",
    group,
    summary: "A job, with its payload and result.",
    needs: "admin.read",
    params: jobParams,
    answers: jobAnswers,
    handle: async (request) => ok(jobBody(await details(request))),
  }),
  route({
    method: "delete",
    path: "/v1/jobs/{id}",
    operation: "deleteJob",
    group,
    summary: "Remove an ended job and its log; with force one that has not ended, too.",
    needs: "admin.mutate",
    params: jobParams,
    query: z.object({ force: z.boolean().default(false), reason }),
    answers: commandAnswers,
    handle: async (request) => {
      const { force, reason: why } = request.query;
      const deleted = refOf(request).delete({ force, ...(why && { reason: why }) });
      return ok(changedJobBody(request.caller, await deleted.orThrow()));
    },
  }),
  route({
    method: "post",
    path: "/v1/jobs/{id}/cancel",
    operation: "cancelJob",
    group,
    summary: "Stop a job: at once while it waits, through its handler's signal while it runs.",
    needs: "admin.mutate",
    params: jobParams,
    body: z.strictObject({ reason, force: z.boolean().default(false) }),
    answers: {
      202: {
        description: "It was cancelled, asked to stop, or had ended.",
        body: z.object({ outcome: z.enum(["cancelled", "requested", "ended"]), state: stateOut }),
      },
      404: jobAnswers[404],
    },
    handle: async (request) => {
      const { reason: why, force } = request.body;
      const body = await refOf(request).cancel(why, { force }).orThrow();
      return { status: 202, body };
    },
  }),
  route({
    method: "post",
    path: "/v1/jobs/{id}/retry",
    operation: "retryJob",
    group,
    summary: "Run an ended job again, as a new run; with force a completed one, too.",
    needs: "admin.mutate",
    params: jobParams,
    body: z.strictObject(retryIn),
    answers: commandAnswers,
    handle: async (request) => {
      const retried = refOf(request).retry(given(request.body));
      return ok(changedJobBody(request.caller, await retried.orThrow()));
    },
  }),
  route({
    method: "post",
    path: "/v1/jobs/retry",
    operation: "retryJobs",
    group,
    summary: "Retry up to 100 jobs, each with an outcome of its own.",
    needs: "admin.mutate",
    body: z.strictObject({ ids: z.array(name("id")).min(1).max(retryMax), ...retryIn }),
    answers: {
      200: {
        description: "What became of each, in their order.",
        body: listOf(
          z.object({
            id: z.string(),
            outcome: z.enum(["retried", "refused"]),
            state: stateOut.optional(),
            error: errorOut.shape.error.omit({ requestId: true }).optional(),
          }),
        ),
      },
    },
    handle: async ({ backend, caller, body: { ids, ...options } }) => {
      const client = backend.services.operator(caller);
      let fault: Error | undefined;
      const entries = await Promise.all(
        ids.map(async (id) => {
          const retried = await new JobRef(client, id).retry(given(options));
          if (retried.isOk()) return { id, outcome: "retried", state: retried.value.state };
          const refusal = refusalOf(retried.error);
          if (refusal === null) throw retried.error;
          if (refusal.code === "unavailable") fault ??= retried.error;
          return { id, outcome: "refused", error: errorBody(refusal) };
        }),
      );
      // What the store took is told, also where it failed at others.
      if (fault && !entries.some(({ outcome }) => outcome === "retried")) throw fault;
      return ok({ entries });
    },
  }),
  route({
    method: "post",
    path: "/v1/jobs/{id}/complete",
    operation: "completeJob",
    group,
    summary: "Complete a job without a worker: with a result, or with the job that continues it.",
    needs: "admin.mutate",
    params: jobParams,
    body: completeIn,
    answers: {
      ...commandAnswers,
      422: {
        description:
          "The result or the payload does not fit, or the next job cannot wait for what it names.",
        body: errorOut,
      },
    },
    handle: async (request) => {
      const { id } = request.params;
      const client = await clientOf(request);
      await completeJob(client, id, completionOf(request.body)).orThrow();
      return ok(changedJobBody(request.caller, await details(request)));
    },
  }),
  route({
    method: "get",
    path: "/v1/jobs/{id}/why",
    operation: "whyJob",
    group,
    summary: "Why a job is not running, as a reason and a sentence.",
    needs: "admin.read",
    params: jobParams,
    answers: { 200: { description: "The reason.", body: whyOut }, 404: jobAnswers[404] },
    handle: async (request) => {
      const client = await clientOf(request);
      return ok(whyBody(await new JobRef(client, request.params.id).why().orThrow()));
    },
  }),
  route({
    method: "get",
    path: "/v1/jobs/{id}/wait",
    operation: "waitForJob",
    group,
    summary: "Wait until a job has ended, for up to 30 seconds at a time.",
    needs: "admin.read",
    params: jobParams,
    query: waitQuery,
    answers: {
      200: {
        description: "The job as it is now, and whether it has ended.",
        body: z.object({ done: z.boolean(), job: jobOut }),
      },
      404: jobAnswers[404],
    },
    handle: async (request) => {
      const { timeoutMs } = request.query;
      const ref = refOf(request);
      await ref.wait({ timeoutMs, signal: request.signal() });
      const job = await details(request);
      return ok({ done: isEnded(job.state), job: jobBody(job) });
    },
  }),
  route({
    method: "get",
    path: "/v1/jobs/{id}/logs",
    operation: "listJobLogs",
    group,
    summary: "The lines that a job's handlers logged, oldest first.",
    needs: "admin.read",
    params: jobParams,
    query: partQuery,
    answers: {
      200: {
        description: "The lines.",
        body: partOf(logOut),
        headers: { Link: "The next lines." },
      },
      404: jobAnswers[404],
    },
    handle: async (request) => partAnswer(await refOf(request).logs().orThrow(), request, logBody),
  }),
];

type OfJob = RouteRequest<{ readonly id: string }, unknown, unknown>;

/** A ref to the job of a request that acts for its caller. */
export function refOf({ backend, caller, params }: OfJob): JobRef {
  return new JobRef(backend.services.operator(caller), params.id);
}

/** A client of the service that the job of a request belongs to, which knows its contract. */
async function clientOf({ backend, caller, params }: OfJob): Promise<Client> {
  const [loaded] = await backend.engine.load([params.id]);
  if (!loaded) throw jobNotFound(params.id);
  return backend.services.client(loaded.job.service, caller);
}

async function details({ backend, caller, params }: OfJob) {
  return new Reads(backend.services.operator(caller)).job(params.id).orThrow();
}

/** What a completion gives, in the words of the client. */
export function completionOf(body: z.output<typeof completeIn>): unknown {
  const { continueWith: next, result } = body;
  if (next === undefined) return result;
  if (result !== undefined) {
    const message = "result and continueWith exclude each other; give one of them.";
    throw badArgument("outcome_both_set", message, "result");
  }
  const { type, payload, payload_base64, blockers, ...rest } = next;
  const options = given({ ...rest, blockers: blockers && blockersOf(blockers) });
  return continueWith(type, payloadOf({ payload, payload_base64 }), options);
}
