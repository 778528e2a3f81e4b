/**
 * Completing a chain without a worker: its current job gets a result or a continuation, and so may the next one,
 * as many steps as the caller takes. The steps are decided here, one on top of the other, and stored in one append,
 * so that either all of them have happened or none.
 */
import { Result } from "better-result";
import { issuesSentence, validate } from "../contract/schema.js";
import { decide } from "../core/decide.js";
import { evolve } from "../core/evolve.js";
import { isEnded, type Job } from "../core/job.js";
import { type Json, jsonText } from "../core/json.js";
import { isSealed, sealedProblem } from "../core/secrets.js";
import type { AppendOutcome, Change, Engine } from "../engine/engine.js";
import {
  StoreBusy,
  type StoreError,
  TransactionConflict,
  type TransactionError,
} from "../engine/errors.js";
import type { CallerTransaction } from "../engine/transaction.js";
import { AsyncResult, attempt, refusal } from "./async-result.js";
import { invalidBlocker } from "./blockers.js";
import { type ChainSnapshot, readChain } from "./chains.js";
import type { Client } from "./client.js";
import { Continuation, continueWith, prepareContinuation } from "./continuation.js";
import { transactionFault, usableTransaction } from "./create-inside.js";
import {
  chainNotFound,
  EncryptionRequired,
  InvalidOption,
  InvalidResult,
  JobAlreadyCompleted,
  type JobNotFound,
  jobNotFound,
} from "./errors.js";
import { functionProblem, optionProblem, optionsProblem } from "./option-checks.js";
import type { PrepareFailure } from "./prepare.js";
import { actorOf } from "./runtime.js";
import { createChange } from "./submit.js";
import type { TransactionClient } from "./transactions/transaction-client.js";
import { openedJob, sealPart } from "./vault.js";

/** How often the steps are taken again because the job changed between reading and storing. */
const triesMax = 20;

/** The most steps that one completion takes. */
const stepsMax = 100;

/** The failures of a completion without a worker. */
export type CompleteChainFailure =
  | PrepareFailure
  | InvalidResult
  | JobAlreadyCompleted
  | JobNotFound
  | TransactionError
  | StoreError;

/** Completes a job of the chain with what the callback gives. Gives the job that continues it; `null` at the end. */
export type CompleteJob = (
  job: Pick<Job, "id">,
  callback: (step: { readonly continueWith: typeof continueWith }) => unknown,
) => Promise<Job | null>;

/** What the caller is given: the chain's current job, and the way to complete it. */
export interface ChainCompletion {
  readonly job: Job;
  readonly complete: CompleteJob;
}

/** What a completion without a worker may say. */
export interface CompleteChainOptions {
  /** The caller's own transaction: the steps count when it commits, and never happened when it rolls back. */
  readonly tx?: TransactionClient;
}

const completeChecks = { tx: () => null };

/** Takes the caller's steps on the current job of a chain and stores them. Gives the chain as it is afterwards. */
export function completeChain(
  client: Client,
  id: string,
  take: (completion: ChainCompletion) => unknown,
  options: CompleteChainOptions = {},
): AsyncResult<ChainSnapshot, CompleteChainFailure> {
  const problem =
    optionProblem("callback", take, functionProblem) ??
    optionsProblem("a completion", options, completeChecks);
  if (problem !== null) return refusal(problem);
  const tx =
    options.tx === undefined ? undefined : usableTransaction(client.runtime.engine, options.tx);
  if (tx instanceof Error) return refusal(tx);
  return new AsyncResult(completed(client, id, take, tx).catch(transactionFault));
}

async function completed(
  client: Client,
  id: string,
  take: (completion: ChainCompletion) => unknown,
  tx: CallerTransaction | undefined,
): Promise<Result<ChainSnapshot, CompleteChainFailure>> {
  const read = async () => (await readChain(client, id, tx))?.current ?? null;
  const failure = await takeSteps(client, { read, missing: () => chainNotFound(id), take, tx });
  return failure === null ? getAgain(client, id, tx) : Result.err(failure);
}

/**
 * Completes one job without a worker, whether or not it is part of a chain: with a result, or with a `Continuation`.
 * Gives the job as it is afterwards.
 */
export function completeJob(
  client: Client,
  id: string,
  outcome: unknown,
): AsyncResult<Job, CompleteChainFailure> {
  const read = async () => (await client.runtime.engine.load([id]))[0]?.job ?? null;
  return attempt<Job, CompleteChainFailure>(async () => {
    const failure = await takeSteps(client, {
      read,
      missing: () => jobNotFound(id),
      take: ({ job, complete }) => complete(job, () => outcome),
      tx: undefined,
    });
    if (failure !== null) return Result.err(failure);
    const job = await read();
    return job === null ? Result.err(jobNotFound(id)) : Result.ok(job);
  });
}

/** Whose steps are taken, by whom, and where. */
interface StepsAsk {
  /** The job that the first step completes; `null` when it is not there. */
  readonly read: () => Promise<Job | null>;
  readonly missing: () => JobNotFound;
  readonly take: (completion: ChainCompletion) => unknown;
  readonly tx: CallerTransaction | undefined;
}

/**
 * Takes the steps on the current job and stores them, again where somebody else was faster; `null` when they are stored.
 * In a transaction they are taken once: what the caller's callback writes there would be written again.
 */
async function takeSteps(client: Client, ask: StepsAsk): Promise<CompleteChainFailure | null> {
  const { take, tx } = ask;
  let id = "";
  for (let tries = 0; tries < triesMax; tries++) {
    const job = await readToComplete(client.runtime.engine, ask);
    if (job === null) return ask.missing();
    if (isEnded(job.state)) return alreadyCompleted(job);
    id = job.id;
    const steps = new Steps(client, job);
    try {
      await take({ job, complete: steps.complete });
      await steps.finish();
    } catch (thrown) {
      if (steps.failure !== null && thrown === steps.failure) return steps.failure;
      throw thrown;
    }
    const answer = await store(client, steps.changes, tx);
    if (answer?.outcome === "bad_blocker")
      return invalidBlocker(id, answer.blockerId, answer.reason);
    if (answer?.outcome === "faulted") return answer.error;
    if (answer === null || answer.outcome === "appended") return null;
    if (tx !== undefined) return changedInside(id);
  }
  const message = `Job ${id} kept changing while it was completed; complete it again.`;
  return new StoreBusy({ url: client.runtime.engine.url, message });
}

/** The job that the first step completes. In a transaction it is locked and read again, so that it stays as it was read. */
async function readToComplete(engine: Engine, { read, tx }: StepsAsk): Promise<Job | null> {
  let job = await read();
  if (tx === undefined) return job;
  for (let tries = 0; tries < triesMax; tries++) {
    if (job === null || isEnded(job.state)) return job;
    const { service, type, id } = job;
    const isHeld = await engine.hold({ job: { service, type, id } }, tx);
    job = await read();
    if (isHeld && job?.id === id) return job;
  }
  return job;
}

/** The one place where the steps meet the store. `null` where there are none. */
async function store(
  { runtime }: Client,
  changes: readonly Change[],
  tx: CallerTransaction | undefined,
): Promise<AppendOutcome | null> {
  const [first, ...follow] = changes;
  if (first === undefined) return null;
  const change = follow.length === 0 ? first : { ...first, follow };
  const [answer] = await runtime.engine.append([change], tx);
  if (answer === undefined) throw new Error("The store gave no answer to a completion.");
  return answer;
}

async function getAgain(
  client: Client,
  id: string,
  tx: CallerTransaction | undefined,
): Promise<Result<ChainSnapshot, CompleteChainFailure>> {
  const chain = await readChain(client, id, tx);
  return chain === null ? Result.err(chainNotFound(id)) : Result.ok(chain);
}

/** The steps that a caller has taken so far, each decided on the job that the step before has left. */
class Steps {
  readonly #client: Client;
  readonly #changes: Change[] = [];
  /** The job that the next step completes; `null` once the chain has ended. */
  #current: Job | null;
  /** Why a step was refused. It ends the completion unless the caller catches it. */
  failure: CompleteChainFailure | null = null;
  #underWay: Promise<unknown> | null = null;

  constructor(client: Client, current: Job) {
    this.#client = client;
    this.#current = current;
  }

  get changes(): readonly Change[] {
    return this.#changes;
  }

  readonly complete: CompleteJob = (job, callback) => {
    if (this.#underWay !== null) return Promise.reject(this.#refused(stepUnderWay(job.id)));
    const step = this.#take(job.id, callback).finally(() => {
      this.#underWay = null;
    });
    // Where the caller does not wait for it, whoever takes the steps does.
    step.catch(() => {});
    this.#underWay = step;
    return step;
  };

  /** Waits for a step that the caller has not waited for: it counts all the same. */
  async finish(): Promise<void> {
    await this.#underWay;
  }

  async #take(id: string, callback: Parameters<CompleteJob>[1]): Promise<Job | null> {
    const job = this.#current;
    if (job === null || job.id !== id || this.#changes.length >= stepsMax)
      throw this.#refused(notCurrent(id, job));
    const problem = optionProblem("callback", callback, functionProblem);
    if (problem !== null) throw this.#refused(problem);
    const given = await callback({ continueWith });
    if (given instanceof Continuation) return this.#continue(job, given);
    const result = await this.#result(job, given);
    this.#decide(job, result === undefined ? {} : { result });
    this.#current = null;
    return null;
  }

  async #continue(job: Job, wish: Continuation): Promise<Job> {
    const create = await prepareContinuation(this.#client, job, wish);
    if (create instanceof Error) throw this.#refused(create);
    const { event } = create;
    this.#decide(job, { continuation: { jobId: event.jobId, type: event.type } });
    this.#changes.push(createChange(create));
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
  async #result(job: Job, given: unknown): Promise<Json | undefined> {
    const schema = this.#client.boundJob(job.type, job.typeVersion)?.definition.result;
    const checked = schema === undefined ? null : await validate(schema, given);
    if (checked?.ok === false)
      throw this.#refused(invalidResult(job.type, issuesSentence(checked.issues)));
    const value = checked === null ? given : checked.value;
    if (value === undefined) return undefined;
    const text = jsonText(value);
    if (text.ok) {
      const result = JSON.parse(text.text) as Json;
      if (isSealed(result))
        throw this.#refused(invalidResult(job.type, problemText(sealedProblem)));
      await this.#client.runtime.encryptionDemand?.look();
      const sealed = sealPart(this.#client.runtime, job, "result", result);
      if (sealed instanceof EncryptionRequired) throw this.#refused(sealed);
      return sealed;
    }
    throw this.#refused(invalidResult(job.type, problemText(text.problem)));
  }

  #refused(failure: CompleteChainFailure): CompleteChainFailure {
    this.failure = failure;
    return failure;
  }
}

function alreadyCompleted({ id, state }: Job): JobAlreadyCompleted {
  if (!isEnded(state)) throw new Error(`Job ${id} is ${state} and has not ended.`);
  const message = `Job ${id} has ended as ${state}; there is nothing left to complete.`;
  return new JobAlreadyCompleted({ id, state, message });
}

/** Nobody else changes a job that is locked, so that mostly the callback itself has done it, in the same transaction. */
function changedInside(id: string): TransactionConflict {
  const message = `Job ${id} has changed while it was completed. Roll the transaction back; run it again unless the callback itself changes the job.`;
  return new TransactionConflict({ message });
}

function stepUnderWay(id: string): InvalidOption {
  const message = `Job ${id} cannot be completed while another step is under way: await each complete before the next one.`;
  return new InvalidOption({ field: "job", message });
}

function notCurrent(id: string, current: Job | null): InvalidOption {
  const remedy =
    current === null
      ? "the chain has ended with the step before"
      : `complete job ${current.id}, which the last complete gave, in at most ${stepsMax} steps`;
  return new InvalidOption({
    field: "job",
    message: `Job ${id} is not the current one: ${remedy}.`,
  });
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

function invalidResult(type: string, problem: string): InvalidResult {
  return new InvalidResult({ type, message: `The result of ${type} is not valid: ${problem}.` });
}
