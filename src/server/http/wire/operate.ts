/**
 * Queues, keys, services, workers, contracts and tokens as the HTTP API gives them.
 */
import { z } from "zod";
import type { WorkerRow } from "../../../client/presence.js";
import type { AcceptedContract } from "../../../contract/acceptance.js";
import { jobStates } from "../../../core/job.js";
import type { KeyRow, QueueRow } from "../../../engine/query.js";
import type { QueueSettings } from "../../../engine/record.js";
import { anyJson, timeOut, timeText } from "./common.js";

/** A queue. */
export const queueOut = z
  .object({
    service: z.string(),
    queue: z.string(),
    paused: z.boolean(),
    maxActive: z.number().int().optional(),
    waiting: z.number().int(),
    active: z.number().int(),
  })
  .meta({ id: "Queue" });

/** A concurrency key. */
export const keyOut = z
  .object({
    service: z.string(),
    type: z.string(),
    key: z.string(),
    hash: z.string(),
    maxActive: z.number().int(),
    maxQueued: z.number().int(),
    whenFull: z.string(),
    active: z.array(
      z.object({
        jobId: z.string(),
        state: z.enum(["reserved", "active", "ended"]),
        token: z.number().int(),
        worker: z.string().optional(),
        heartbeatAt: timeOut.optional(),
        leaseUntil: timeOut.optional(),
      }),
    ),
    queued: z.array(z.string()),
    queuedCount: z.number().int(),
    blocked: z.boolean(),
    takeovers: z.number().int(),
    lastOutcome: z.looseObject({ outcome: z.string(), at: timeOut }).optional(),
  })
  .meta({ id: "Key" });

/** A worker process. */
export const workerOut = z
  .object({
    service: z.string(),
    instance: z.string(),
    version: z.string(),
    host: z.string(),
    pid: z.number().int(),
    agent: z.string().optional(),
    concurrency: z.number(),
    startedAt: timeOut,
    heartbeatAt: timeOut,
    heartbeatAgeMs: z.number(),
    fresh: z.boolean(),
    types: z.array(
      z.object({
        type: z.string(),
        version: z.number().int(),
        concurrency: z.number(),
        active: z.number(),
      }),
    ),
  })
  .meta({ id: "Worker" });

const countsOut = z.object(
  Object.fromEntries(jobStates.map((state) => [state, z.number().int().optional()])),
);

/** A service: who works for it, and how many jobs it has in each state. */
export const serviceOut = z
  .object({
    name: z.string(),
    instances: z.number().int().meta({ description: "How many of its workers are alive." }),
    hasContract: z.boolean(),
    jobs: countsOut,
  })
  .meta({ id: "Service" });

/** A manifest, as `contract export` writes it. */
export const manifestShape = z
  .looseObject({
    manifest: z.number().int(),
    service: z.string(),
    jobs: z.array(
      z.looseObject({
        type: z.string(),
        version: z.number().int(),
        queue: z.string(),
        payload: anyJson,
        result: anyJson,
        hasResult: z.boolean(),
        settings: z.record(z.string(), anyJson),
      }),
    ),
    schedules: z.record(z.string(), anyJson).optional(),
    retention: z.record(z.string(), anyJson).optional(),
    signature: z.string(),
  })
  .meta({ id: "Manifest" });

/** The accepted contract of a service. */
export const contractOut = z
  .object({
    manifest: manifestShape,
    acceptedAt: timeOut,
    acceptedBy: z.string(),
    earlier: z.array(z.string()),
  })
  .meta({ id: "AcceptedContract" });

/** A queue for the wire. */
export function queueBody(row: QueueRow, settings: QueueSettings | undefined): unknown {
  const { service, queue, paused, waiting, active } = row;
  const maxActive = settings?.maxActive;
  return {
    service,
    queue,
    paused,
    waiting,
    active,
    ...(maxActive === undefined ? null : { maxActive }),
  };
}

/** A key for the wire. */
export function keyBody({ lastOutcome, active, ...row }: KeyRow): unknown {
  return {
    ...row,
    active: active.map(({ heartbeatAt, leaseUntil, ...holder }) => ({
      ...holder,
      ...(heartbeatAt === undefined ? null : { heartbeatAt: timeText(heartbeatAt) }),
      ...(leaseUntil === undefined ? null : { leaseUntil: timeText(leaseUntil) }),
    })),
    ...(lastOutcome && { lastOutcome: { ...lastOutcome, at: timeText(lastOutcome.at) } }),
  };
}

/** A worker for the wire. */
export function workerBody(row: WorkerRow): unknown {
  const { startedAt, heartbeatAt } = row;
  return { ...row, startedAt: timeText(startedAt), heartbeatAt: timeText(heartbeatAt) };
}

/** An accepted contract for the wire. */
export function contractBody({ acceptedAt, ...rest }: AcceptedContract): unknown {
  return { ...rest, acceptedAt: timeText(acceptedAt) };
}
