/**
 * An attempt: what happens to a job from its claim to its settlement, step by step.
 *
 *   check the lease → check the payload → check the deadline → run the handler →
 *   check the result → wait for its notes → conclude (→ settle)
 *
 * Every step but the last may end the attempt with an outcome; `conclude` turns the outcome,
 * and whatever the handler was told meanwhile, into the one command that is settled.
 */
import type { Runtime } from "../client/runtime.js";
import { issuesSentence, type Validation, validate } from "../contract/schema.js";
import type { JobError } from "../core/job.js";
import { jsonText } from "../core/json.js";
import type { Outcome } from "./conclude.js";
import type { Hold } from "./hold.js";
import { cut, jobError } from "./job-error.js";
import type { Leases } from "./leases.js";
import type { Notes } from "./notes.js";
import { type HandlerOutcome, isHandlerOutcome, Skip, Snooze } from "./outcome.js";
import { RunningJob } from "./running-job.js";

/** What an attempt works with. */
export interface AttemptParts {
  readonly runtime: Runtime;
  readonly notes: Notes;
  readonly leases: Leases;
}

/** Carries out one attempt. Whatever happens inside, it gives an outcome and never rejects. */
export async function runAttempt(hold: Hold, parts: AttemptParts): Promise<Outcome> {
  let outcome: Outcome;
  try {
    outcome = await steps(hold, parts);
  } catch (thrown) {
    outcome = isHandlerOutcome(thrown) ? said(thrown) : threw(hold, thrown, parts.runtime);
  }
  if (hold.notesUnderWay > 0) await parts.notes.quiet(hold);
  return outcome;
}

async function steps(hold: Hold, parts: AttemptParts): Promise<Outcome> {
  const { runtime, notes, leases } = parts;
  if (leaseIsOld(hold, runtime)) return { kind: "given_back" };

  const { definition } = hold.lane.bound;
  const checkingPayload = validate(definition.payload, hold.job.payload);
  const payload = checkingPayload instanceof Promise ? await checkingPayload : checkingPayload;
  if (!payload.ok) return notValid("payload", payload);

  if (deadlineHasCome(hold, runtime)) return { kind: "expired" };
  if (hold.aborted) throw hold.aborted;

  const active = new RunningJob(hold, payload.value, runtime, notes, leases);
  const returned = await hold.lane.handler(active);
  if (isHandlerOutcome(returned)) return said(returned);

  if (definition.result === undefined) return asResult(returned);
  const checkingResult = validate(definition.result, returned);
  const result = checkingResult instanceof Promise ? await checkingResult : checkingResult;
  return result.ok ? asResult(result.value) : notValid("result", result);
}

/** A claim that took very long may have used up so much of its lease that another worker is near. */
function leaseIsOld(hold: Hold, runtime: Runtime): boolean {
  return runtime.clock.monotonic() >= hold.fenceAt;
}

/** The deadline is inclusive. */
function deadlineHasCome({ job }: Hold, runtime: Runtime): boolean {
  return job.deadline !== undefined && job.deadline <= runtime.engine.now();
}

/** A result is stored as the JSON that it is, so that later readers see what the store sees. */
function asResult(value: unknown): Outcome {
  if (value === undefined) return { kind: "returned" };
  const json = jsonText(value);
  if (json.ok) return { kind: "returned", result: JSON.parse(json.text) };
  const { path, message } = json.problem;
  return terminated("result", `The result cannot be stored: ${path || "it"} ${message}.`);
}

/** Jobs keep no stack traces, so that the log is the place to find one. */
function threw({ job, aborted }: Hold, thrown: unknown, { logger }: Runtime): Outcome {
  if (aborted === undefined) {
    const fields = { jobId: job.id, type: job.type, tries: job.tries, error: thrown };
    logger.warn(fields, "A handler threw.");
  }
  return { kind: "threw", error: jobError(thrown, "error") };
}

function notValid(
  what: "payload" | "result",
  { issues }: Extract<Validation, { ok: false }>,
): Outcome {
  return terminated(what, `The ${what} is not valid: ${issuesSentence(issues)}`);
}

function terminated(reason: JobError["reason"], message: string): Outcome {
  return { kind: "terminated", error: { message: cut(message), reason } };
}

function said(outcome: HandlerOutcome): Outcome {
  if (outcome instanceof Skip) return { kind: "skipped", reason: cut(outcome.message) };
  if (outcome instanceof Snooze) {
    const { delayMs, reason } = outcome;
    return { kind: "snoozed", delayMs, ...(reason === undefined ? null : { reason: cut(reason) }) };
  }
  return terminated("terminated", outcome.message);
}
