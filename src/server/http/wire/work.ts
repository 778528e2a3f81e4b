/**
 * What workers of other languages send: claims, leases to renew, what they have to say, and how a try went.
 */
import { z } from "zod";
import { integerMax } from "../../../core/job.js";
import type { Json } from "../../../core/json.js";
import { badArgument } from "../refusal.js";
import type { WorkOutcome } from "../settling.js";
import { anyJson, durationMs, name, time, typeVersion } from "./common.js";

/** How many jobs one claim gives, how many leases one renewal holds, and how long a claim waits. */
const claimMax = 100;
const renewalsMax = 1_000;
const waitMaxMs = 30_000;
const leaseMinMs = 1_000;
const leaseMaxMs = 60 * 60 * 1_000;

const leaseMs = z.number().int().min(leaseMinMs).max(leaseMaxMs).optional();
/** The fencing token of a claim. */
export const token = z.number().int().min(1).max(integerMax);
const text = z.string().max(10_000);

/** What a worker asks for. */
export const claimIn = z
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
          version: typeVersion.default(1),
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

/** Leases to renew. */
export const renewIn = z.strictObject({
  leases: z
    .array(z.strictObject({ jobId: name("id"), token, leaseMs }))
    .min(1)
    .max(renewalsMax),
});

/** How far a job has come. */
export const progressIn = z.strictObject({
  token,
  progress: z.strictObject({
    step: z.string().max(1_000).optional(),
    message: z.string().max(1_000).optional(),
    current: z.number().optional(),
    total: z.number().optional(),
  }),
});

/** Lines for the log of a job. */
export const linesIn = z.strictObject({
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
});

/** How a try went. */
export const settleIn = z
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

/** What a settlement may say besides its outcome. */
const outcomeFields = ["result", "error", "reason", "delayMs"] as const;

/** What goes with each outcome. */
const fieldsOf: {
  readonly [Outcome in WorkOutcome["outcome"]]: readonly (typeof outcomeFields)[number][];
} = {
  completed: ["result"],
  failed: ["error"],
  terminated: ["error"],
  skipped: ["reason"],
  snoozed: ["delayMs", "reason"],
  released: [],
  cancelled: ["reason"],
};

/** The outcome of a settlement, which must say what its kind needs, and nothing that would be lost. */
export function outcomeOf(body: z.output<typeof settleIn>): WorkOutcome {
  const { outcome, result, error, reason, delayMs } = body;
  const lost = outcomeFields.find(
    (field) => (body[field] ?? null) !== null && !fieldsOf[outcome].includes(field),
  );
  if (lost !== undefined) throw unwanted(outcome, lost);
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

function unwanted(outcome: WorkOutcome["outcome"], field: string) {
  const taken = fieldsOf[outcome].join(" and ") || "nothing more";
  const message = `The outcome ${outcome} takes ${taken}; leave ${field} out, or settle with another outcome.`;
  return badArgument("field_unwanted", message, field);
}
