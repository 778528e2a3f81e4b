/**
 * The worker protocol: how programs in other languages claim jobs, keep them, report on them and settle them.
 * Every claim has a fencing token, and whatever comes under another one changes nothing.
 */
import { z } from "zod";
import { jobNotFound } from "../../../client/errors.js";
import { lacksVault } from "../../../client/vault.js";
import { jobDefaults } from "../../../contract/settings.js";
import type { Command } from "../../../core/command.js";
import { decide } from "../../../core/decide.js";
import { httpWorker, type Job, type JobError } from "../../../core/job.js";
import type { Json } from "../../../core/json.js";
import type { HeldLease, RenewOutcome } from "../../../engine/engine.js";
import { type Caller, may } from "../caller.js";
import { claimWork } from "../claiming.js";
import { errorOut } from "../openapi.js";
import { badArgument, Refused, refused } from "../refusal.js";
import { type Answer, ok, type Route, type RouteRequest, route } from "../route.js";
import { boundJob, settleJob, type WorkOutcome } from "../settling.js";
import {
  anyJson,
  durationMs,
  listOf,
  name,
  stateOut,
  time,
  timeOut,
  timeText,
} from "../wire/common.js";
import { jobBody, jobOut, workBody } from "../wire/job.js";
import { jobParams } from "./job.js";

const group = "Work";

/** How many jobs one claim gives, how many leases one renewal holds, and how long a claim waits. */
const claimMax = 100;
const renewalsMax = 1_000;
const waitMaxMs = 30_000;
const leaseMinMs = 1_000;
const leaseMaxMs = 60 * 60 * 1_000;

const leaseMs = z.number().int().min(leaseMinMs).max(leaseMaxMs).optional();
const token = z.number().int().min(1).max(Number.MAX_SAFE_INTEGER);
const text = z.string().max(10_000);

const claimIn = z
  .strictObject({
    service: name("service"),
    worker: name("instance").meta({
      description: "The name of the worker among those of the service.",
    }),
    agent: name("type").optional(),
    types: z
      .array(
        z.strictObject({
          type: name("type"),
          version: z.number().int().min(1).default(1),
          queue: name("queue").optional(),
          limit: z.number().int().min(1).max(claimMax).default(1),
        }),
      )
      .min(1)
      .max(100),
    limit: z.number().int().min(1).max(claimMax).default(1),
    waitMs: z.number().int().min(0).max(waitMaxMs).default(0),
    leaseMs,
  })
  .meta({ id: "Claim" });

const stored = {
  200: {
    description: "Whether it was stored; false when the token is not current.",
    body: z.object({ stored: z.boolean() }),
  },
  404: { description: "There is no such job.", body: errorOut },
} as const;

const settleIn = z
  .strictObject({
    token,
    outcome: z.enum([
      "completed",
      "failed",
      "terminated",
      "skipped",
      "snoozed",
      "released",
      "cancelled",
    ]),
    result: anyJson.optional(),
    error: z
      .strictObject({
        message: text,
        name: z.string().max(200).optional(),
        code: z.string().max(200).optional(),
      })
      .optional(),
    reason: text.optional(),
    delayMs: durationMs.optional(),
  })
  .meta({ id: "Settlement" });

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
    body: z.strictObject({
      leases: z
        .array(z.strictObject({ jobId: name("id"), token, leaseMs }))
        .min(1)
        .max(renewalsMax),
    }),
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
    handle: renew,
  }),
  route({
    method: "post",
    path: "/v1/work/jobs/{id}/progress",
    operation: "reportProgress",
    group,
    summary: "Say how far a job has come.",
    needs: "work",
    params: jobParams,
    body: z.strictObject({
      token,
      progress: z.strictObject({
        step: z.string().max(1_000).optional(),
        message: z.string().max(1_000).optional(),
        current: z.number().optional(),
        total: z.number().optional(),
      }),
    }),
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
    body: z.strictObject({
      token,
      entries: z
        .array(
          z.strictObject({
            at: time.optional(),
            level: z.enum(["info", "warn", "error"]).default("info"),
            message: z.string().max(10_000),
          }),
        )
        .min(1)
        .max(100),
    }),
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
        description: "The token is not current; the outcome was recorded as ignored.",
        body: errorOut,
      },
      422: { description: "The result does not fit.", body: errorOut },
    },
    handle: async (request) => {
      const { backend, params, body } = request;
      await ownJob(request);
      return ok(jobBody(await settleJob(backend, params.id, body.token, outcomeOf(body))));
    },
  }),
];

function checkService(caller: Caller, service: string): void {
  if (may(caller, `work:${service}`)) return;
  const message = `This needs the capability work:${service}, which the token does not have.`;
  const details = { capability: `work:${service}` };
  throw refused("permission_denied", { reason: "capability_missing", message, details });
}

async function claim(
  request: RouteRequest<undefined, undefined, z.output<typeof claimIn>>,
): Promise<Answer> {
  const { backend, caller, body, signal } = request;
  checkService(caller, body.service);
  const agent = caller.agent ?? body.agent;
  if (caller.agent !== undefined && body.agent !== undefined && body.agent !== caller.agent) {
    const message = `The token is bound to the agent ${caller.agent}.`;
    throw refused("permission_denied", { reason: "agent_mismatch", field: "agent", message });
  }
  const { service, worker: instance, types } = body;
  if (lacksVault(await backend.services.runtime(service))) throw keysMissing(service);
  await backend.presence.note({ service, instance, types, ...(agent && { agent }) });
  const { jobs, nextDueAt } = await claimWork(backend, body, signal);
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

interface LeaseIn {
  readonly jobId: string;
  readonly token: number;
  readonly leaseMs?: number | undefined;
}

async function renew(
  request: RouteRequest<undefined, undefined, { readonly leases: readonly LeaseIn[] }>,
): Promise<Answer> {
  const { backend, caller, body } = request;
  const loaded = await backend.engine.load(body.leases.map(({ jobId }) => jobId));
  const held = await Promise.all(
    body.leases.map(async (lease, index): Promise<HeldLease | null> => {
      const job = loaded[index]?.job;
      // What is not the caller's to hold is lost, and the others are renewed all the same.
      if (job === undefined || !may(caller, `work:${job.service}`)) return null;
      return heldLease(request, job, lease);
    }),
  );
  const open = held.filter((lease) => lease !== null);
  const outcomes = open.length > 0 ? await backend.engine.renew(open) : [];
  let next = 0;
  const entries = body.leases.map(({ jobId }, index) => {
    const outcome = held[index] === null ? lost : (outcomes[next++] ?? lost);
    return { jobId, ...renewBody(outcome) };
  });
  return ok({ entries });
}

const lost: RenewOutcome = { outcome: "lost", state: null };

/** The lease to renew; none for a try that has taken longer than its type allows, which has failed. */
async function heldLease(
  { backend }: Pick<RouteRequest, "backend">,
  job: Job,
  { token: given, leaseMs: asked }: LeaseIn,
): Promise<HeldLease | null> {
  const { engine } = backend;
  const bound = await boundJob(backend, job);
  const timeoutMs = bound?.definition.settings.timeoutMs ?? jobDefaults.timeoutMs;
  const isCurrent = job.state === "active" && job.token === given;
  if (isCurrent && engine.now() >= (job.startedAt ?? job.updatedAt) + timeoutMs) {
    const error: JobError = {
      message: `The try took longer than ${timeoutMs} ms.`,
      reason: "timeout",
    };
    try {
      await settleJob(backend, job.id, given, { outcome: "failed", error });
    } catch (fault) {
      // Somebody else has ended it meanwhile, or its worker has settled it.
      if (!(fault instanceof Refused)) throw fault;
    }
    return null;
  }
  const { service, type, id } = job;
  const own = bound?.definition.settings.leaseMs ?? jobDefaults.leaseMs;
  const isKeyed = bound?.definition.settings.keyConcurrency !== undefined;
  return { job: { service, type, id }, token: given, leaseMs: isKeyed ? own : (asked ?? own) };
}

function renewBody(renewed: RenewOutcome): object {
  switch (renewed.outcome) {
    case "held": {
      const { outcome, leaseUntil, cancelRequested } = renewed;
      return { outcome, leaseUntil: timeText(leaseUntil), cancelRequested };
    }
    case "ended":
      return renewed;
    case "lost":
      return { outcome: "lost", ...(renewed.state === null ? null : { state: renewed.state }) };
  }
}

type OfJob = RouteRequest<{ readonly id: string }, unknown, unknown>;

/** The job of a request, if the caller may work for its service. */
async function ownJob({ backend, caller, params }: OfJob): Promise<Job> {
  const [loaded] = await backend.engine.load([params.id]);
  if (!loaded) throw jobNotFound(params.id);
  checkService(caller, loaded.job.service);
  return loaded.job;
}

async function note(request: OfJob, wish: object): Promise<Answer> {
  const { engine, ids } = request.backend;
  const job = await ownJob(request);
  const actor = httpWorker(job.worker ?? "unknown");
  const command = { ...wish, eventId: ids.eventId(), actor } as Command;
  const decision = decide(job, command, engine.now());
  const [isStored = false] = decision.ok ? await engine.note([decision.event]) : [];
  return ok({ stored: isStored });
}

/** The outcome of a settlement, which must say what its kind needs. */
function outcomeOf(body: z.output<typeof settleIn>): WorkOutcome {
  const { outcome, result, error, reason, delayMs } = body;
  switch (outcome) {
    case "completed":
      return { outcome, ...(result === undefined ? null : { result: result as Json }) };
    case "failed":
    case "terminated": {
      if (error === undefined) throw missing(outcome, "error");
      const { message, name: errorName, code } = error;
      return {
        outcome,
        error: {
          message,
          reason: outcome === "failed" ? "error" : "terminated",
          ...(errorName === undefined ? null : { name: errorName }),
          ...(code === undefined ? null : { code }),
        },
      };
    }
    case "skipped":
      if (reason === undefined) throw missing(outcome, "reason");
      return { outcome, reason };
    case "snoozed":
      if (delayMs === undefined) throw missing(outcome, "delayMs");
      return { outcome, delayMs, ...(reason === undefined ? null : { reason }) };
    case "released":
      return { outcome };
    case "cancelled":
      return { outcome, ...(reason === undefined ? null : { reason }) };
  }
}

function missing(outcome: string, field: string) {
  return badArgument("field_missing", `The outcome ${outcome} needs ${field}.`, field);
}
