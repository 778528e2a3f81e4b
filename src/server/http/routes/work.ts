/**
 * The worker protocol: how programs in other languages claim jobs, keep them, report on them and settle them.
 * Every claim has a fencing token, and whatever comes under another one changes nothing.
 */
import { z } from "zod";
import { jobNotFound } from "../../../client/errors.js";
import { lacksVault } from "../../../client/vault.js";
import type { Command } from "../../../core/command.js";
import { decide } from "../../../core/decide.js";
import { httpWorker } from "../../../core/job.js";
import { claimWork } from "../claiming.js";
import { checkService, holdsLease, workerName } from "../holding.js";
import { errorOut } from "../openapi.js";
import { type Refused, refused } from "../refusal.js";
import { renewLeases } from "../renewing.js";
import { type Answer, ok, type Route, type RouteRequest, route } from "../route.js";
import { settleJob } from "../settling.js";
import { listOf, stateOut, timeOut, timeText } from "../wire/common.js";
import { jobBody, jobOut, workBody } from "../wire/job.js";
import { claimIn, linesIn, outcomeOf, progressIn, renewIn, settleIn, token } from "../wire/work.js";
import { jobParams } from "./job.js";

const group = "Work";

const stored = {
  200: {
    description: "Whether it was stored; false when the token is not current, or not the caller's.",
    body: z.object({ stored: z.boolean() }),
  },
  404: { description: "There is no such job.", body: errorOut },
} as const;

/** The routes of the worker protocol. */
export const workRoutes: readonly Route[] = [
  route({
    method: "post",
    path: "/v1/work/claims",
    operation: "claimJobs",
    group,
    summary: "Claim jobs, waiting for some for up to 30 seconds.",
    description:
      "Each job is the caller's until it is settled or its lease lapses; renew the lease while it is worked on.",
    needs: "work",
    body: claimIn,
    answers: {
      200: {
        description: "The claimed jobs; none when there were none in time.",
        body: z.object({
          jobs: z.array(z.object({ job: jobOut, token, leaseUntil: timeOut })),
          nextDueAt: timeOut.optional(),
        }),
      },
      422: {
        description: "Jobs of the service are encrypted, and the server has no keys.",
        body: errorOut,
      },
    },
    handle: claim,
  }),
  route({
    method: "post",
    path: "/v1/work/renewals",
    operation: "renewLeases",
    group,
    summary: "Renew leases, and learn of cancels and losses.",
    needs: "work",
    body: renewIn,
    answers: {
      200: {
        description: "What became of each lease, in their order.",
        body: listOf(
          z.object({
            jobId: z.string(),
            outcome: z.enum(["held", "ended", "lost"]),
            leaseUntil: timeOut.optional(),
            cancelRequested: z.boolean().optional(),
            state: stateOut.optional(),
          }),
        ),
      },
    },
    handle: async ({ backend, caller, body }) =>
      ok({ entries: await renewLeases(backend, caller, body.leases) }),
  }),
  route({
    method: "post",
    path: "/v1/work/jobs/{id}/progress",
    operation: "reportProgress",
    group,
    summary: "Say how far a job has come.",
    needs: "work",
    params: jobParams,
    body: progressIn,
    answers: stored,
    handle: (request) => {
      const { token: held, progress } = request.body;
      return note(request, { command: "progress", token: held, progress });
    },
  }),
  route({
    method: "post",
    path: "/v1/work/jobs/{id}/logs",
    operation: "logLines",
    group,
    summary: "Add lines to the log of a job.",
    needs: "work",
    params: jobParams,
    body: linesIn,
    answers: stored,
    handle: (request) => {
      const now = Math.round(request.backend.engine.now());
      const entries = request.body.entries.map(({ at = now, ...line }) => ({ at, ...line }));
      return note(request, { command: "log", token: request.body.token, entries });
    },
  }),
  route({
    method: "post",
    path: "/v1/work/jobs/{id}/settle",
    operation: "settleJob",
    group,
    summary: "Say how a try went. A failed one is tried again as the job's type has it.",
    needs: "work",
    params: jobParams,
    body: settleIn,
    answers: {
      200: { description: "The job as it is now.", body: jobOut },
      404: stored[404],
      409: {
        description: "The token is not current, or not the caller's; the outcome is ignored.",
        body: errorOut,
      },
      422: { description: "The result does not fit.", body: errorOut },
    },
    handle: async ({ backend, caller, params: { id }, body }) => {
      const settlement = { id, token: body.token, said: outcomeOf(body), caller };
      return ok(jobBody(await settleJob(backend, settlement)));
    },
  }),
];

async function claim(
  request: RouteRequest<undefined, undefined, z.output<typeof claimIn>>,
): Promise<Answer> {
  const { backend, caller, body } = request;
  checkService(caller, body.service);
  const agent = caller.agent ?? body.agent;
  if (caller.agent !== undefined && body.agent !== undefined && body.agent !== caller.agent) {
    const message = `The token is bound to the agent ${caller.agent}.`;
    throw refused("permission_denied", { reason: "agent_mismatch", field: "agent", message });
  }
  const { service, types } = body;
  if (lacksVault(await backend.services.runtime(service))) throw keysMissing(service);
  const worker = workerName(caller, body.worker);
  await backend.presence.note({ service, instance: worker, types, ...(agent && { agent }) });
  const { jobs, nextDueAt } = await claimWork(backend, { ...body, worker }, request.signal());
  return ok({
    jobs: jobs.map(({ job, leaseUntil }) => ({
      job: workBody(job),
      token: job.token,
      leaseUntil: timeText(leaseUntil),
    })),
    ...(nextDueAt === null ? null : { nextDueAt: timeText(nextDueAt) }),
  });
}

/** Without keys a worker could neither read what it is given nor store what it has done. */
function keysMissing(service: string): Refused {
  const message = `Jobs of ${service} are encrypted, and this server has no keys: give it encryptionKeys.`;
  return refused("encryption_required", { reason: "encryption_keys_missing", message });
}

type OfJob = RouteRequest<{ readonly id: string }, unknown, { readonly token: number }>;

/** Stores what a worker says of a job that it holds. */
async function note(request: OfJob, wish: object): Promise<Answer> {
  const { backend, caller, params, body } = request;
  const { engine, ids } = backend;
  const [loaded] = await engine.load([params.id]);
  if (!loaded) throw jobNotFound(params.id);
  const { job } = loaded;
  checkService(caller, job.service);
  const actor = httpWorker(job.worker ?? "unknown");
  const command = { ...wish, eventId: ids.eventId(), actor } as Command;
  const decision = decide(job, command, engine.now());
  if (!decision.ok || !(await holdsLease(backend, caller, job, body.token)))
    return ok({ stored: false });
  const [isStored = false] = await engine.note([decision.event]);
  return ok({ stored: isStored });
}
