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
import { isPromiseLike } from "../client/promise-like.js";
import type { Runtime } from "../client/runtime.js";
import { DecryptionFailed, encryptionRequired, lacksVault, openPart } from "../client/vault.js";
import { type Validation, validate } from "../contract/schema.js";
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

/**
 * Carries out one attempt. Whatever happens inside, it gives an outcome, and a promise never rejects. Steps that wait for
 * nothing cost no promise: a handler that returns at once has an outcome at once.
 */
export function runAttempt(
  hold: Hold,
  parts: RunningJobParts,
): AttemptOutcome | Promise<AttemptOutcome> {
  let outcome: Outcome | Promise<Outcome>;
  try {
    outcome = steps(hold, parts);
  } catch (thrown) {
    // Whatever else goes wrong over it is nothing to whoever hands over the other jobs of the claim.
    outcome = Promise.reject(thrown);
  }
  if (outcome instanceof Promise) return waitedFor(hold, outcome, parts);
  return hasLeft(hold) ? cleanUp(hold, outcome, parts) : outcome;
}

async function waitedFor(
  hold: Hold,
  steps: Promise<Outcome>,
  parts: RunningJobParts,
): Promise<AttemptOutcome> {
  let outcome: Outcome;
  try {
    outcome = await steps;
  } catch (thrown) {
    outcome = caught(hold, thrown, parts);
  }
  return hasLeft(hold) ? cleanUp(hold, outcome, parts) : outcome;
}

/** Whether a handler has left something to wait for: its own completion, an open transaction, notes. */
function hasLeft({ completion, letGo, locksLease, notesUnderWay }: Hold): boolean {
  return completion !== undefined || letGo !== undefined || locksLease || notesUnderWay > 0;
}

async function cleanUp(
  hold: Hold,
  given: Outcome,
  parts: RunningJobParts,
): Promise<AttemptOutcome> {
  let outcome: AttemptOutcome = given;
  if (hold.completion !== undefined) outcome = await completed(hold, given, parts.client.runtime);
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

function caught(hold: Hold, given: unknown, { client: { runtime } }: RunningJobParts): Outcome {
  const thrown = readable(given);
  if (!isHandlerOutcome(thrown)) runtime.telemetry?.recorder()?.thrown(thrown);
  return thrownOutcome(hold, thrown, runtime);
}

function thrownOutcome(hold: Hold, thrown: unknown, runtime: Runtime): Outcome {
  if (isHandlerOutcome(thrown)) return said(thrown);
  if (thrown instanceof InvalidResult) return terminated("result", thrown.message);
  // The same may be thrown of the handler's own creates, which another try may help.
  if (thrown !== undefined && thrown === hold.lastingFault)
    return { kind: "terminated", error: jobError(thrown, "result") };
  return threw(hold, thrown, runtime);
}

/** Each of the steps that follow goes on to the next one: at once, or when what it waits for is there. */
function steps(hold: Hold, parts: RunningJobParts): Outcome | Promise<Outcome> {
  const { runtime } = parts.client;
  if (leaseIsOld(hold, runtime)) return { kind: "given_back" };
  const looking = runtime.encryptionDemand?.look();
  return looking === undefined ? read(hold, parts) : looking.then(() => read(hold, parts));
}

function read(hold: Hold, parts: RunningJobParts): Outcome | Promise<Outcome> {
  const { runtime } = parts.client;
  const plain = openPart(runtime, hold.job, "payload", hold.job.payload);
  // Without keys a result could not be stored either, which is better known before the work than after it.
  if (lacksVault(runtime)) return left(hold, encryptionRequired(hold.job), runtime);
  if (plain instanceof DecryptionFailed)
    return runtime.vault === undefined ? left(hold, plain, runtime) : unreadable(plain);

  const { signing } = runtime;
  const unsigned = signing?.problem({ ...hold.job, payload: plain }, runtime.engine.now());
  if (unsigned) return terminated("signature", unsigned.message, unsigned.code);

  const checking = validate(hold.lane.bound.definition.payload, plain);
  return checking instanceof Promise
    ? checking.then((payload) => start(hold, payload, parts))
    : start(hold, checking, parts);
}

function start(
  hold: Hold,
  payload: Validation,
  parts: RunningJobParts,
): Outcome | Promise<Outcome> {
  const { runtime } = parts.client;
  if (!payload.ok) return notValid("payload", payload);
  if (deadlineHasCome(hold, runtime)) return { kind: "expired" };
  if (hold.aborted) throw hold.aborted;
  const { hooks, settings } = hold.lane.bound.definition;
  if (settings.blockers !== undefined || hooks?.onStart !== undefined)
    return startLater(hold, payload.value, parts);
  return run(hold, new RunningJob(hold, payload.value, noBlockers, parts), parts);
}

/** Loads what the job waited for, and calls `onStart`. */
async function startLater(hold: Hold, payload: unknown, parts: RunningJobParts): Promise<Outcome> {
  const { runtime } = parts.client;
  const declared = hold.lane.bound.definition.settings.blockers;
  const blockers = declared ? await namedBlockers(runtime, hold.job, declared) : noBlockers;
  if (typeof blockers === "string") return terminated("payload", blockers);

  const starting = parts.hooks.start(hold);
  if (starting !== undefined) {
    await starting;
    if (hold.aborted) throw hold.aborted;
  }
  return run(hold, new RunningJob(hold, payload, blockers, parts), parts);
}

const noBlockers = {};

function run(hold: Hold, active: RunningJob, parts: RunningJobParts): Outcome | Promise<Outcome> {
  const returned = callHandler(hold, active, parts);
  return isPromiseLike(returned)
    ? Promise.resolve(returned).then((value) => take(hold, active, value, parts))
    : take(hold, active, returned, parts);
}

/** Takes what the handler returned as the outcome of the try. */
function take(
  hold: Hold,
  active: RunningJob,
  returned: unknown,
  parts: RunningJobParts,
): Outcome | Promise<Outcome> {
  if (isHandlerOutcome(returned)) return said(returned);
  // What a transaction has open since prepare commits with the result.
  if (hold.letGo !== undefined && !hold.completion)
    return active.complete(() => returned).then(() => ({ kind: "returned" }));
  if (hold.completion !== undefined) return { kind: "returned" };
  return resultOutcome(hold, returned, parts.client.runtime);
}

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
