/**
 * How outcomes that come over HTTP are stored: decided on the job as it is, appended under the token of the claim, and
 * recorded as ignored where that token is not current any more.
 */
import { invalidResult, resultProblem } from "../../client/completion-steps.js";
import { endProblem } from "../../client/continuation.js";
import { EncryptionRequired, jobNotFound } from "../../client/errors.js";
import { sealPart } from "../../client/vault.js";
import { type BoundJob, boundJobs } from "../../contract/definition.js";
import { validate } from "../../contract/schema.js";
import { type JobSettings, jobDefaults } from "../../contract/settings.js";
import type { Command } from "../../core/command.js";
import { decide } from "../../core/decide.js";
import { evolve } from "../../core/evolve.js";
import { type Actor, httpWorker, type Job, type JobError } from "../../core/job.js";
import { type Json, jsonText } from "../../core/json.js";
import { retryDelayMs } from "../../core/retry.js";
import { isSealed, sealedProblem } from "../../core/secrets.js";
import { StoreBusy } from "../../engine/errors.js";
import type { Backend } from "./backend.js";
import type { Caller } from "./caller.js";
import { checkService, holdsLease } from "./holding.js";
import { type Refused, refused } from "./refusal.js";

/** How often an outcome is decided before it gives way to whoever keeps changing the job. */
const decisionsMax = 20;

/** What a worker says of its try. */
export type WorkOutcome =
  | { readonly outcome: "completed"; readonly result?: Json }
  | { readonly outcome: "failed"; readonly error: JobError }
  | { readonly outcome: "terminated"; readonly error: JobError }
  | { readonly outcome: "skipped"; readonly reason: string }
  | { readonly outcome: "snoozed"; readonly delayMs: number; readonly reason?: string }
  | { readonly outcome: "released" }
  | { readonly outcome: "cancelled"; readonly reason?: string };

/** An outcome of a try, and the token of its claim. */
export interface Settlement {
  readonly id: string;
  readonly token: number;
  readonly said: WorkOutcome;
  /** Who says so; the server itself where nobody is named. */
  readonly caller?: Caller;
}

/** Stores the outcome of a try. Gives the job as it is then; refuses one under an old token, or of another caller. */
export async function settleJob(backend: Backend, settlement: Settlement): Promise<Job> {
  const { engine, ids } = backend;
  const { id, token, said: told, caller } = settlement;
  for (let decisions = 0; decisions < decisionsMax; decisions++) {
    const [loaded] = await engine.load([id]);
    if (!loaded) throw jobNotFound(id);
    const { job } = loaded;
    if (caller !== undefined) checkService(caller, job.service);
    const isOwn = caller === undefined || (await holdsLease(backend, caller, job, token));
    if (!isOwn) throw staleToken(job, token);
    if (job.state !== "active" || job.token !== token) throw await stale(backend, job, token, told);
    const bound = await boundJob(backend, job);
    const said = told.outcome === "completed" ? await completion(backend, job, bound, told) : told;
    const origin = { eventId: ids.eventId(), actor: workerOf(job) };
    const command = commandOf(job, said, bound?.definition.settings, engine.now());
    const decision = decide(job, { ...command, token, ...origin } as Command, engine.now());
    if (!decision.ok)
      throw refused("conflict", { reason: "state_forbids", message: decision.rejection.message });
    const { service, type, version } = job;
    const [answer] = await engine.settle([
      { job: { service, type, id }, expect: { version, token }, event: decision.event },
    ]);
    if (answer?.outcome === "appended") return evolve(job, decision.event).job ?? job;
    if (answer?.outcome === "faulted") throw answer.error;
  }
  const message = `Job ${id} kept changing while it was settled; settle it again.`;
  throw new StoreBusy({ url: engine.url, message });
}

/** The contract's word on a job's type, if there is one. */
export async function boundJob(
  { services }: Backend,
  { service, type, typeVersion }: Pick<Job, "service" | "type" | "typeVersion">,
): Promise<BoundJob | undefined> {
  return boundJobs(await services.contract(service)).find(
    (bound) => bound.type === type && bound.definition.settings.version === typeVersion,
  );
}

function workerOf({ worker = "http" }: Job): Actor {
  return httpWorker(worker);
}

/** A completion with its result as it is stored. */
async function completion(
  { services }: Backend,
  job: Job,
  bound: BoundJob | undefined,
  told: Extract<WorkOutcome, { outcome: "completed" }>,
): Promise<WorkOutcome> {
  await checkResult(job, bound, told.result);
  if (told.result === undefined) return told;
  const result = sealPart(await services.runtime(job.service), job, "result", told.result);
  if (result instanceof EncryptionRequired) throw result;
  return { ...told, result };
}

/** Refuses a result that does not fit its schema or cannot be stored; the worker may mend it. */
async function checkResult(
  { id, type }: Job,
  bound: BoundJob | undefined,
  result: Json | undefined,
): Promise<void> {
  const end = bound === undefined ? null : endProblem(bound.definition);
  // No outcome of a try says so here.
  if (end !== null)
    throw invalidResult(type, `${end}, by POST /v1/jobs/${id}/complete with continueWith`);
  const schema = bound?.definition.result;
  const checked = schema === undefined ? null : await validate(schema, result);
  const text = result === undefined ? null : jsonText(result);
  const problem = text?.ok === false ? text.problem : isSealed(result) ? sealedProblem : null;
  const issues = checked?.ok === false ? checked.issues : problem === null ? [] : [problem];
  if (issues.length === 0) return;
  throw invalidResult(type, resultProblem(result, issues));
}

type Wish = { readonly command: Command["command"]; readonly [name: string]: unknown };

function commandOf(
  job: Job,
  said: WorkOutcome,
  settings: JobSettings | undefined,
  now: number,
): Wish {
  const runAt = (delayMs: number) => Math.round(now + delayMs);
  switch (said.outcome) {
    case "completed": {
      const { result } = said;
      const completedBy = job.worker ?? null;
      return { command: "complete", completedBy, ...(result === undefined ? null : { result }) };
    }
    case "failed": {
      const { error } = said;
      const backoff = settings?.backoff ?? jobDefaults.backoff;
      const delayMs = retryDelayMs(backoff, job.tries, Math.random(), error.message);
      return { command: "fail", error, retryAt: runAt(delayMs) };
    }
    case "terminated":
      return { command: "terminate", error: said.error };
    case "skipped":
      return { command: "skip", reason: said.reason };
    case "snoozed": {
      const { delayMs, reason } = said;
      const cause = { cause: "snooze", runAt: runAt(delayMs) };
      return { command: "release", ...cause, ...(reason === undefined ? null : { reason }) };
    }
    case "released":
      return { command: "release", cause: "shutdown", runAt: runAt(0) };
    case "cancelled": {
      const { reason } = said;
      return { command: "confirmCancel", ...(reason === undefined ? null : { reason }) };
    }
  }
}

/** Records an outcome under an old token, which also frees what that token still holds. */
async function stale(backend: Backend, job: Job, token: number, { outcome }: WorkOutcome) {
  const { engine, ids } = backend;
  // A token that the job never had is nobody's.
  if (token <= job.token) {
    const origin = { eventId: ids.eventId(), actor: workerOf(job) };
    const command = { command: "reportStale", token, outcome, ...origin } as const;
    const decision = decide(job, command, engine.now());
    if (decision.ok) await engine.note([decision.event]);
  }
  return staleToken(job, token);
}

function staleToken(job: Job, token: number): Refused {
  const message = `Job ${job.id} is ${job.state} and not under token ${token} any more; the outcome is ignored.`;
  const details = { state: job.state };
  return refused("conflict", { reason: "stale_token", field: "token", message, details });
}
