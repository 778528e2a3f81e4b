/**
 * Jobs, rows of lists and events as the HTTP API gives them: the names of core, times as text.
 */
import { z } from "zod";
import type { JobSnapshot } from "../../../client/job-ref.js";
import type { JobDetails } from "../../../client/reads.js";
import type { JobEvent } from "../../../core/event.js";
import type { LogEntry } from "../../../core/job.js";
import { redactEvent, redactJob } from "../../../core/secrets.js";
import type { Why } from "../../../core/why.js";
import type { ChainRow, JobRow } from "../../../engine/query.js";
import { type Caller, may } from "../caller.js";
import { anyJson, stateOut, timeOut, timeText } from "./common.js";

/** The request and trace that a job belongs to. */
const contextOut = z
  .object({
    requestId: z.string(),
    traceId: z.string(),
    traceparent: z.string(),
    tracestate: z.string().optional(),
  })
  .meta({ id: "JobContext" });

/** Why a try or a job failed. */
const errorOut = z
  .object({
    message: z.string(),
    name: z.string().optional(),
    code: z.string().optional(),
    reason: z.string(),
  })
  .meta({ id: "JobError" });

const progressOut = z.object({
  step: z.string().optional(),
  message: z.string().optional(),
  current: z.number().optional(),
  total: z.number().optional(),
});

const policyOut = z.object({
  outcome: z.string(),
  reason: z.string().optional(),
  existingJobId: z.string().optional(),
  replacedJobId: z.string().optional(),
});

const aggregateOut = z.enum(["completed", "failed", "partial_failure", "skipped"]);

/** What a job and its row in a list share. */
const shared = {
  id: z.string(),
  service: z.string(),
  type: z.string(),
  typeVersion: z.number().int(),
  queue: z.string(),
  state: stateOut,
  version: z.number().int(),
  run: z.number().int(),
  tries: z.number().int(),
  maxTries: z.number().int(),
  priority: z.number(),
  runAt: timeOut,
  createdAt: timeOut,
  updatedAt: timeOut,
  tags: z.array(z.string()),
  deadline: timeOut.optional(),
  startedAt: timeOut.optional(),
  endedAt: timeOut.optional(),
  parentId: z.string().optional(),
  chainId: z.string().optional(),
  agent: z.string().optional(),
  aggregate: aggregateOut.optional(),
  worker: z.string().optional(),
  heartbeatAt: timeOut.optional(),
  leaseUntil: timeOut.optional(),
};

const unreadNote =
  "Callers without admin.read get it without payload, result, error, progress and key.";

/** A job, with its payload and result. */
export const jobOut = z
  .object({
    ...shared,
    token: z.number().int(),
    payload: anyJson,
    result: anyJson.optional(),
    error: errorOut.optional(),
    reason: z.string().optional(),
    context: contextOut,
    key: z
      .object({
        key: z.string(),
        hash: z.string(),
        maxActive: z.number().int(),
        maxQueued: z.number().int(),
        whenFull: z.string(),
        stalePolicy: z.string(),
      })
      .optional(),
    policy: policyOut.optional(),
    idempotencyKey: z.string().optional(),
    deadLetter: z.boolean(),
    cancelRequest: z
      .object({ at: timeOut, by: z.string(), reason: z.string().optional() })
      .optional(),
    keyBlocked: z.literal(true).optional(),
    progress: progressOut.optional(),
    acknowledgedBy: z.string().optional(),
    acknowledgedAt: timeOut.optional(),
    blockers: z.array(
      z.object({
        jobId: z.string(),
        chain: z.literal(true).optional(),
        name: z.string().optional(),
        onBadEnd: z.enum(["unreachable", "continue"]),
      }),
    ),
    continuedBy: z.string().optional(),
    completedBy: z.string().nullable().optional(),
    signature: z
      .object({ createdAt: timeOut, expiresAt: timeOut.optional(), value: z.string() })
      .optional(),
    secret: z
      .object({ payload: z.array(z.string()).optional(), result: z.array(z.string()).optional() })
      .optional()
      .meta({ description: "The fields that are shown as [redacted], as JSON Pointers." }),
  })
  .meta({ id: "Job" });

/** A job as a change leaves it. What it holds of its creator and its handler is for those who may read. */
export const changedJobOut = jobOut
  .extend({ payload: anyJson.optional() })
  .meta({ id: "ChangedJob", description: unreadNote });

/** A job in a list. */
export const rowOut = z
  .object({
    ...shared,
    key: z.string().optional(),
    keyHash: z.string().optional(),
    detail: z
      .string()
      .optional()
      .meta({ description: "Its last error, or why it was skipped, cancelled or released." }),
    cancelRequested: z.literal(true).optional(),
  })
  .meta({ id: "JobRow" });

/** A chain in a list. */
export const chainRowOut = z
  .object({
    id: z.string(),
    service: z.string(),
    type: z.string(),
    tags: z.array(z.string()),
    createdAt: timeOut,
    currentJobId: z.string(),
    currentType: z.string(),
    state: stateOut,
    updatedAt: timeOut,
  })
  .meta({ id: "ChainRow" });

/** A line that a handler logged. */
export const logOut = z
  .object({ at: timeOut, level: z.enum(["info", "warn", "error"]), message: z.string() })
  .meta({ id: "LogEntry" });

/** A lifecycle event. What its name adds to the envelope is as the state machine has it. */
export const eventOut = z
  .looseObject({
    id: z.string(),
    name: z.string(),
    jobId: z.string(),
    service: z.string(),
    type: z.string(),
    version: z.number().int(),
    run: z.number().int(),
    tries: z.number().int(),
    state: stateOut,
    previousState: stateOut.nullable(),
    at: timeOut,
    actor: z.string(),
    context: contextOut,
  })
  .meta({ id: "JobEvent" });

/** Why a job is not running. */
export const whyOut = z
  .looseObject({ reason: z.string(), sentence: z.string() })
  .meta({ id: "Why" });

/** The members of a job, a row or an event that are times. */
const timeNames: ReadonlySet<string> = new Set([
  "runAt",
  "createdAt",
  "updatedAt",
  "startedAt",
  "endedAt",
  "deadline",
  "heartbeatAt",
  "leaseUntil",
  "acknowledgedAt",
  "expiresAt",
  "at",
  "since",
]);

/** The same members, with those that are times as text. */
function withTimes(members: object): { [name: string]: unknown } {
  const wired: { [name: string]: unknown } = {};
  for (const [name, value] of Object.entries(members)) {
    if (value === undefined) continue;
    wired[name] = typeof value === "number" && timeNames.has(name) ? timeText(value) : value;
  }
  return wired;
}

/** A job for the wire, without its secrets. */
export function jobBody(job: JobSnapshot | JobDetails): object {
  return workBody(redactJob(job));
}

/** The members of a job, its row, a chain and a schedule that hold what their creator or a handler put into them. */
const readNames: ReadonlySet<string> = new Set([
  ...["payload", "result", "output", "error", "detail", "progress", "key", "keyHash"],
]);

/** A body for a caller that has changed something; one that may not read gets it without what was put into it. */
export function changedBody(caller: Caller, body: object): object {
  if (may(caller, "admin.read")) return body;
  return Object.fromEntries(Object.entries(body).filter(([name]) => !readNames.has(name)));
}

/** A job as a change of the caller's leaves it. */
export function changedJobBody(caller: Caller, job: JobSnapshot | JobDetails): object {
  return changedBody(caller, jobBody(job));
}

/** A job for the worker that is to carry it out. */
export function workBody(job: JobSnapshot | JobDetails): object {
  const wired = withTimes(job);
  if (job.cancelRequest) wired.cancelRequest = withTimes(job.cancelRequest);
  if (job.signature) wired.signature = withTimes(job.signature);
  return wired;
}

/** A row of a list for the wire. */
export function rowBody(row: JobRow | ChainRow): object {
  return withTimes(row);
}

/** A log line for the wire. */
export function logBody(entry: LogEntry): unknown {
  return withTimes(entry);
}

/** An event for the wire, without its secrets. */
export function eventBody(event: JobEvent): unknown {
  const wired = withTimes(redactEvent(event));
  if (event.name === "created" && event.signature) wired.signature = withTimes(event.signature);
  if (event.name === "logged") wired.entries = event.entries.map(logBody);
  return wired;
}

/** The answer of `why` for the wire. */
export function whyBody(reason: Why): unknown {
  return withTimes(reason);
}
