/**
 * An attempt: what happens to a job from its claim to its settlement, step by step.
 *
 *   check the lease → decrypt → check the signature → check the payload → check the deadline → load what it waited for → call onStart →
 *   run the handler → check the result → wait for its notes → conclude (→ settle)
 *
 * Every step but the last may end the attempt with an outcome; `conclude` turns the outcome,
 * and whatever the handler was told meanwhile, into the one command that is settled.
 * A handler may also settle its job itself while it runs: see `complete.ts`.
 */
import { InvalidResult } from "../client/errors.js";
import { cut, jobError } from "../client/job-error.js";
import type { Runtime } from "../client/runtime.js";
import { DecryptionFailed, encryptionRequired, lacksVault, openPart } from "../client/vault.js";
import { validate } from "../contract/schema.js";
import { jobFields } from "../engine/logger.js";
import { namedBlockers } from "./blockers.js";
import type { Outcome } from "./conclude.js";
import type { Hold } from "./hold.js";
import type { Next } from "./middleware.js";
import { type HandlerOutcome, isHandlerOutcome, Skip, Snooze } from "./outcome.js";
import { notValid, resultOutcome, terminated } from "./result.js";
import { RunningJob, type RunningJobParts } from "./running-job.js";

/** How long a job rests that was left to processes with keys, so that one without does not take it in a circle. */
const leftMs = 5_000;

/** How an attempt went. `settled`: the handler has completed its job itself, and nothing is left to settle. */
export type AttemptOutcome = Outcome | { readonly kind: "settled" };

/** Carries out one attempt. Whatever happens inside, it gives an outcome and never rejects. */
export async function runAttempt(hold: Hold, parts: RunningJobParts): Promise<AttemptOutcome> {
  const { runtime } = parts.client;
  let outcome: AttemptOutcome;
  try {
    outcome = await steps(hold, parts);
  } catch (given) {
    const thrown = readable(given);
    if (!isHandlerOutcome(thrown)) runtime.telemetry?.recorder()?.thrown(thrown);
    outcome = thrownOutcome(hold, thrown, runtime);
  }
  if (hold.completion !== undefined) outcome = await completed(hold, outcome, runtime);
  if (hold.letGo !== undefined) await hold.letGo();
  // A cancel that met the lock of an atomic handler counts before the job is tried again.
  if (hold.locksLease && outcome.kind === "threw") await parts.leases.renew(hold);
  if (hold.notesUnderWay > 0) await parts.notes.quiet(hold);
  return outcome;
}

/** What the handler's own `complete` means for the attempt. A failed one counts even if nobody awaited it. */
async function completed(hold: Hold, outcome: Outcome, runtime: Runtime): Promise<AttemptOutcome> {
  let failure: unknown;
  try {
    await hold.completion;
  } catch (thrown) {
    failure = readable(thrown);
  }
  if (hold.phase === "settled") {
    if (failure === undefined && outcome.kind !== "returned") {
      const fields = { ...jobFields(hold.job), outcome: outcome.kind };
      runtime.logger.warn(fields, "A handler went wrong after it had completed its job.");
    }
    return { kind: "settled" };
  }
  return outcome.kind === "returned" ? thrownOutcome(hold, failure, runtime) : outcome;
}

/** A handler may throw anything, also what throws again when it is looked at. */
function readable(thrown: unknown): unknown {
  try {
    void (thrown instanceof Error);
    return thrown;
  } catch {
    return new Error("The handler threw a value that cannot be read.");
  }
}

function thrownOutcome(hold: Hold, thrown: unknown, runtime: Runtime): Outcome {
  if (isHandlerOutcome(thrown)) return said(thrown);
  if (thrown instanceof InvalidResult) return terminated("result", thrown.message);
  return threw(hold, thrown, runtime);
}

async function steps(hold: Hold, parts: RunningJobParts): Promise<Outcome> {
  const { runtime } = parts.client;
  if (leaseIsOld(hold, runtime)) return { kind: "given_back" };

  const looking = runtime.encryptionDemand?.look();
  if (looking !== undefined) await looking;
  const plain = openPart(runtime, hold.job, "payload", hold.job.payload);
  // Without keys a result could not be stored either, which is better known before the work than after it.
  if (lacksVault(runtime)) return left(hold, encryptionRequired(hold.job), runtime);
  if (plain instanceof DecryptionFailed)
    return runtime.vault === undefined ? left(hold, plain, runtime) : unreadable(plain);

  const { signing } = runtime;
  const unsigned = signing?.problem({ ...hold.job, payload: plain }, runtime.engine.now());
  if (unsigned) return terminated("signature", unsigned.message, unsigned.code);

  const { definition } = hold.lane.bound;
  const checkingPayload = validate(definition.payload, plain);
  const payload = checkingPayload instanceof Promise ? await checkingPayload : checkingPayload;
  if (!payload.ok) return notValid("payload", payload);

  if (deadlineHasCome(hold, runtime)) return { kind: "expired" };
  if (hold.aborted) throw hold.aborted;

  const declared = definition.settings.blockers;
  const blockers = declared ? await namedBlockers(runtime, hold.job, declared) : noBlockers;
  if (typeof blockers === "string") return terminated("payload", blockers);

  const starting = parts.hooks.start(hold);
  if (starting !== undefined) {
    await starting;
    if (hold.aborted) throw hold.aborted;
  }

  const active = new RunningJob(hold, payload.value, blockers, parts);
  const returned = await callHandler(hold, active, parts);
  if (isHandlerOutcome(returned)) return said(returned);
  // What a transaction has open since prepare commits with the result.
  if (hold.letGo !== undefined && !hold.completion) await active.complete(() => returned);
  if (hold.completion !== undefined) return { kind: "returned" };

  const checkingResult = resultOutcome(hold, returned, runtime);
  return checkingResult instanceof Promise ? await checkingResult : checkingResult;
}

const noBlockers = {};

/** Calls the handler inside of its middleware. A job that nobody handles is not wrapped. */
function callHandler(
  hold: Hold,
  active: RunningJob,
  { client: { runtime }, middleware }: RunningJobParts,
): unknown {
  const { use: inner, isUnrouted } = hold.lane;
  const outer = middleware.current;
  if (isUnrouted || (outer === undefined && inner === undefined)) return begin(hold, active);
  const next: Next = async () => begin(hold, active);
  const innerNext: Next = inner === undefined ? next : async () => inner(active, next, runtime);
  return outer === undefined ? innerNext() : outer(active, innerNext, runtime);
}

/** From its first await on a handler can no longer choose how it uses transactions. */
function begin(hold: Hold, active: RunningJob): unknown {
  const working = hold.lane.handler(active);
  hold.isUnderWay = true;
  return working;
}

/** A claim that took very long may have used up so much of its lease that another worker is near. */
function leaseIsOld(hold: Hold, runtime: Runtime): boolean {
  return runtime.clock.monotonic() >= hold.fenceAt;
}

/** A process without any keys has no part in encrypted jobs: it leaves them to others, which costs no try. */
function left({ job }: Hold, { message }: Error, { logger }: Runtime): Outcome {
  logger.warn(jobFields(job), "A job is left to a process that holds the encryption keys.");
  return { kind: "snoozed", delayMs: leftMs, reason: cut(message) };
}

/** Another process may have the key, so that only what was tampered with is given up. */
function unreadable({ code, message }: DecryptionFailed): Outcome {
  return code === "encryption_invalid"
    ? terminated("encryption", message, code)
    : { kind: "threw", error: { message, reason: "encryption", code } };
}

/** The deadline is inclusive. */
function deadlineHasCome({ job }: Hold, runtime: Runtime): boolean {
  return job.deadline !== undefined && job.deadline <= runtime.engine.now();
}

/** Jobs keep no stack traces, so that the log is the place to find one. */
function threw({ job, aborted }: Hold, thrown: unknown, { logger }: Runtime): Outcome {
  if (aborted === undefined) {
    const fields = { ...jobFields(job), tries: job.tries, error: thrown };
    logger.warn(fields, "A handler threw.");
  }
  return { kind: "threw", error: jobError(thrown, "error") };
}

function said(outcome: HandlerOutcome): Outcome {
  if (outcome instanceof Skip) return { kind: "skipped", reason: cut(outcome.message) };
  if (outcome instanceof Snooze) {
    const { delayMs, reason } = outcome;
    return { kind: "snoozed", delayMs, ...(reason === undefined ? null : { reason: cut(reason) }) };
  }
  return terminated("terminated", outcome.message);
}
