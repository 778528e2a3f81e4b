/**
 * The steps of a completion without a worker: decided here, one on top of the other, before any of them is stored.
 */
import { issuesSentence, type SchemaIssue, validate } from "../contract/schema.js";
import { decide } from "../core/decide.js";
import { evolve } from "../core/evolve.js";
import type { Job } from "../core/job.js";
import { type Json, jsonText } from "../core/json.js";
import { isSealed, sealedProblem } from "../core/secrets.js";
import type { Change } from "../engine/engine.js";
import type { StoreError, TransactionError } from "../engine/errors.js";
import type { Client } from "./client.js";
import { Continuation, continueWith, endProblem, prepareContinuation } from "./continuation.js";
import {
  EncryptionRequired,
  InvalidOption,
  InvalidResult,
  type JobAlreadyCompleted,
  type JobNotFound,
} from "./errors.js";
import { Unheard } from "./heard.js";
import { functionProblem, optionProblem } from "./option-checks.js";
import type { PreparedCreate, PrepareFailure } from "./prepare.js";
import { actorOf } from "./runtime.js";
import { runSteps, runWaits, type StoreStep, waitFor } from "./store-steps.js";
import { createChange } from "./submit.js";
import { openedJob, sealPart } from "./vault.js";

/** The most steps that one completion takes. */
const stepsMax = 100;

/** The failures of a completion without a worker. */
export type CompleteFailure =
  | PrepareFailure
  | InvalidResult
  | JobAlreadyCompleted
  | JobNotFound
  | TransactionError
  | StoreError;

/** Completes the current job with what the callback gives. Gives the job that continues it; `null` at the end. */
export type CompleteJob = (
  job: Pick<Job, "id">,
  callback: (step: { readonly continueWith: typeof continueWith }) => unknown,
) => Promise<Job | null>;

/** As `CompleteJob`, done when it returns. */
export type CompleteJobSync = (...asked: Parameters<CompleteJob>) => Job | null;

/** The steps that a caller has taken so far, each decided on the job that the step before has left. */
export class Steps {
  readonly #client: Client;
  readonly #changes: Change[] = [];
  readonly #creates: PreparedCreate[] = [];
  /** The job that the next step completes; `null` once the chain has ended. */
  #current: Job | null;
  #taken = 0;
  /** Why steps were refused. Each ends the completion unless the caller catches it. */
  readonly #refusals = new Set<unknown>();
  /** The failures of steps that the caller does not wait for, which end the completion, too. */
  readonly #unheard = new Unheard();
  #isUnderWay = false;
  /** Why a step was refused that came while another was under way. It ends the completion: the caller waits for neither. */
  #overlap: CompleteFailure | null = null;
  #isOver = false;

  constructor(client: Client, current: Job) {
    this.#client = client;
    this.#current = current;
  }

  get changes(): readonly Change[] {
    return this.#changes;
  }

  /** What the steps create. */
  get creates(): readonly PreparedCreate[] {
    return this.#creates;
  }

  readonly complete: CompleteJob = (job, callback) => {
    if (this.#isOver) return tooLate(job.id);
    return this.#unheard.watch(this.#begin(job.id, callback));
  };

  /** Whether this is why a step was refused. */
  isRefusal(thrown: unknown): thrown is CompleteFailure {
    return this.#refusals.has(thrown);
  }

  readonly completeSync: CompleteJobSync = (job, callback) => {
    if (this.#isUnderWay) throw this.#refused(stepUnderWay(job.id));
    return runWaits(this.#take(job.id, callback, true));
  };

  /** Waits for steps that the caller has not waited for: they count all the same, and so do their failures. */
  async finish(): Promise<void> {
    await this.#unheard.settle();
    this.#isOver = true;
    if (this.#overlap !== null) throw this.#overlap;
    this.#unheard.finish();
  }

  #begin(id: string, callback: Parameters<CompleteJob>[1]): Promise<Job | null> {
    if (this.#isUnderWay) {
      this.#overlap = this.#refused(stepUnderWay(id));
      return Promise.reject(this.#overlap);
    }
    return runSteps(this.#client.runtime.engine, undefined, this.#take(id, callback, false));
  }

  *#take(id: string, callback: Parameters<CompleteJob>[1], isSync: boolean): StoreStep<Job | null> {
    this.#isUnderWay = true;
    try {
      const job = this.#current;
      if (job === null || job.id !== id) throw this.#refused(notCurrent(id, job));
      if (this.#taken >= stepsMax) throw this.#refused(tooManySteps(id));
      this.#taken++;
      const problem = optionProblem("callback", callback, functionProblem);
      if (problem !== null) throw this.#refused(problem);
      const given = yield* waitFor(callback({ continueWith }));
      if (given instanceof Continuation) return yield* this.#continue(job, given);
      const result = yield* this.#result(job, given, isSync);
      this.#decide(job, result === undefined ? {} : { result });
      this.#current = null;
      return null;
    } finally {
      this.#isUnderWay = false;
    }
  }

  *#continue(job: Job, wish: Continuation): StoreStep<Job> {
    const create = yield* waitFor(prepareContinuation(this.#client, job, wish));
    if (create instanceof Error) throw this.#refused(create);
    const { event } = create;
    this.#decide(job, { continuation: { jobId: event.jobId, type: event.type } });
    this.#changes.push(createChange(create));
    this.#creates.push(create);
    const next = evolve(null, event).job;
    if (next === null) throw new Error(`The continuation ${event.jobId} was not folded.`);
    this.#current = next;
    return openedJob(this.#client.runtime, next);
  }

  #decide(
    job: Job,
    outcome: { readonly result?: Json; readonly continuation?: { jobId: string; type: string } },
  ): void {
    const { ids, engine } = this.#client.runtime;
    const origin = { eventId: ids.eventId(), actor: actorOf(this.#client.runtime) } as const;
    const decision = decide(
      job,
      { command: "complete", completedBy: null, ...outcome, ...origin },
      engine.now(),
    );
    if (!decision.ok) throw new Error(decision.rejection.message);
    const { service, type, id, version } = job;
    this.#changes.push({ job: { service, type, id }, expect: { version }, event: decision.event });
  }

  /** The result as it is stored, checked against the schema of the job's type. */
  *#result(job: Job, given: unknown, isSync: boolean): StoreStep<Json | undefined> {
    const { runtime } = this.#client;
    const definition = this.#client.boundJob(job.type, job.typeVersion)?.definition;
    const problem = definition ? endProblem(definition) : null;
    if (problem !== null) throw this.#refused(invalidResult(job.type, problem));
    const schema = definition?.result;
    const checked = schema === undefined ? null : yield* waitFor(validate(schema, given));
    if (checked?.ok === false)
      throw this.#refused(invalidResult(job.type, resultProblem(given, checked.issues)));
    const value = checked === null ? given : checked.value;
    if (value === undefined) return undefined;
    const text = jsonText(value);
    if (!text.ok) throw this.#refused(invalidResult(job.type, problemText(text.problem)));
    const result = JSON.parse(text.text) as Json;
    if (isSealed(result)) throw this.#refused(invalidResult(job.type, problemText(sealedProblem)));
    // Nobody can wait in a synchronous transaction, so that the answer counts for the next result.
    const looking = runtime.encryptionDemand?.look();
    if (!isSync) yield* waitFor(looking);
    const sealed = sealPart(runtime, job, "result", result);
    if (sealed instanceof EncryptionRequired) throw this.#refused(sealed);
    return sealed;
  }

  #refused(failure: CompleteFailure): CompleteFailure {
    this.#refusals.add(failure);
    return failure;
  }
}

function stepUnderWay(id: string): InvalidOption {
  const message = `Job ${id} cannot be completed while another step is under way: await each complete before the next one.`;
  return new InvalidOption({ field: "job", message });
}

/** The answer to a step that comes when the completion is over, of which it can be no part. */
function tooLate(id: string): Promise<never> {
  const answer = Promise.reject(completionOver(id));
  answer.catch(() => {});
  return answer;
}

function completionOver(id: string): InvalidOption {
  const message = `Job ${id} cannot be completed any more, because the completion is over: await each complete within the callback.`;
  return new InvalidOption({ field: "job", message });
}

function notCurrent(id: string, current: Job | null): InvalidOption {
  const remedy =
    current === null
      ? "the chain has ended with the step before"
      : `complete job ${current.id}, which the last complete gave`;
  return new InvalidOption({
    field: "job",
    message: `Job ${id} is not the current one: ${remedy}.`,
  });
}

function tooManySteps(id: string): InvalidOption {
  const message = `Job ${id} cannot be completed any more: one completion takes at most ${stepsMax} steps; go on with another.`;
  return new InvalidOption({ field: "job", message });
}

function problemText({
  path,
  message,
}: {
  readonly path: string;
  readonly message: string;
}): string {
  return `${path || "it"} ${message}`;
}

/** What is wrong with no result where the type has a schema for one. */
const missingResult =
  "it is missing; complete the job with one that fits its schema (in JSON `result`, on the command line --result)";

/** What is wrong with a result, or with there being none. */
export function resultProblem(given: unknown, issues: readonly SchemaIssue[]): string {
  return given === undefined ? missingResult : issuesSentence(issues);
}

/** The error of a result that its job cannot end with. */
export function invalidResult(type: string, problem: string): InvalidResult {
  const sentence = problem.endsWith(".") ? problem : `${problem}.`;
  return new InvalidResult({ type, message: `The result of ${type} is not valid: ${sentence}` });
}
