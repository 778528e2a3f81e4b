/**
 * Completing a job without a worker: it gets a result or a continuation, and so may the job that continues it, as many
 * steps as the caller takes. They are stored in one append, so that either all of them have happened or none.
 */
import { Result } from "better-result";
import { isEnded, type Job } from "../core/job.js";
import type { AppendOutcome, Change } from "../engine/engine.js";
import {
  StoreBusy,
  TransactionConflict,
  type TransactionError,
  TransactionRefused,
} from "../engine/errors.js";
import type { CallerTransaction, SyncTransaction } from "../engine/transaction.js";
import { AsyncResult, refusal } from "./async-result.js";
import { wrongBlockers } from "./blocker-types.js";
import { invalidBlocker } from "./blockers.js";
import type { Client } from "./client.js";
import { type CompleteFailure, type CompleteJob, Steps } from "./completion-steps.js";
import { answersLater, endedEarly, transactionFault, usableTransaction } from "./create-inside.js";
import { InvalidOption, JobAlreadyCompleted, jobNotFound } from "./errors.js";
import { optionsProblem } from "./option-checks.js";
import {
  appendOne,
  holdOne,
  loadOne,
  runSteps,
  runStepsSync,
  type StoreStep,
  waitFor,
} from "./store-steps.js";
import type { BetterSqliteClient } from "./transactions/better-sqlite.js";
import { noTransaction } from "./transactions/recognise.js";
import type { TransactionClient } from "./transactions/transaction-client.js";

/** How often the steps are taken again because the job changed between reading and storing. */
const triesMax = 20;

/** What the caller is given: the current job, and the way to complete it. */
export interface Completion {
  readonly job: Job;
  readonly complete: CompleteJob;
}

/** What a completion without a worker may say. */
export interface CompleteOptions {
  /** The caller's own transaction: the steps count when it commits, and never happened when it rolls back. */
  readonly tx?: TransactionClient;
}

/** What a completion says that is done when it returns, inside a synchronous transaction. */
export interface SyncCompleteOptions {
  /** A better-sqlite3 connection to the store's file, with a transaction open. */
  readonly tx: BetterSqliteClient;
}

const completeChecks = { tx: () => null };

/** The caller's transaction, if there is one, or why a completion cannot be stored in it. */
export function completionTransaction(
  { runtime: { engine } }: Client,
  options: CompleteOptions,
): CallerTransaction | undefined | InvalidOption | TransactionError {
  const problem = optionsProblem("a completion", options, completeChecks);
  if (problem !== null) return problem;
  return options.tx === undefined ? undefined : usableTransaction(engine, options.tx);
}

/** The caller's synchronous transaction, or why a completion cannot be stored in it. */
export function syncCompletionTransaction(
  client: Client,
  options: SyncCompleteOptions | undefined,
): SyncTransaction | InvalidOption | TransactionError {
  if (options === undefined) return noTransaction("A synchronous completion");
  const problem = optionsProblem("a completion", options, completeChecks);
  if (problem !== null) return problem;
  const tx = usableTransaction(client.runtime.engine, options.tx);
  return tx instanceof Error || tx.kind === "sync" ? tx : answersLater("completions", "complete");
}

/** Runs a completion on the store, or in the caller's transaction. */
export function runCompletion<Value>(
  client: Client,
  tx: CallerTransaction | undefined,
  step: StoreStep<Result<Value, CompleteFailure>>,
): AsyncResult<Value, CompleteFailure> {
  const wasOpen = tx?.kind === "sync" && tx.isOpen();
  const fault = (thrown: unknown) =>
    // What is awaited outlives a callback of better-sqlite3, and the transaction with it.
    wasOpen && TransactionRefused.is(thrown) && thrown.reason === "not_open"
      ? Result.err(endedEarly("completion was stored"))
      : transactionFault(thrown);
  return new AsyncResult(runSteps(client.runtime.engine, tx, step).catch(fault));
}

/** Runs a completion in the caller's synchronous transaction. */
export function runCompletionSync<Value>(
  { runtime: { engine } }: Client,
  tx: SyncTransaction,
  step: StoreStep<Result<Value, CompleteFailure>>,
): Result<Value, CompleteFailure> {
  try {
    return runStepsSync(engine.within(tx), step);
  } catch (error) {
    return transactionFault(error);
  }
}

/**
 * Completes one job without a worker, whether or not it is part of a chain: with a result, or with a `Continuation`.
 * Gives the job as it is afterwards, in the transaction if there is one.
 */
export function completeJob(
  client: Client,
  id: string,
  outcome: unknown,
  options: CompleteOptions = {},
): AsyncResult<Job, CompleteFailure> {
  const tx = completionTransaction(client, options);
  if (tx instanceof Error) return refusal(tx);
  const begin = (steps: Steps, job: Job) => steps.complete(job, () => outcome);
  const seenByOthers = async () => Boolean((await client.runtime.engine.load([id]))[0]);
  return runCompletion(
    client,
    tx,
    completedJob(client, id, { begin, ...inside(tx, seenByOthers) }),
  );
}

/** As `completeJob`, inside a synchronous transaction of the caller's. */
export function completeJobSync(
  client: Client,
  id: string,
  outcome: unknown,
  options: SyncCompleteOptions,
): Result<Job, CompleteFailure> {
  const tx = syncCompletionTransaction(client, options);
  if (tx instanceof Error) return Result.err(tx);
  const begin = (steps: Steps, job: Job) => steps.completeSync(job, () => outcome);
  return runCompletionSync(client, tx, completedJob(client, id, { begin, isInside: true }));
}

function* completedJob(
  client: Client,
  id: string,
  given: StepsGiven,
): StoreStep<Result<Job, CompleteFailure>> {
  const read = function* () {
    return (yield* loadOne(id))?.job ?? null;
  };
  const missing = function* () {
    return (yield* isUnseen(given)) ? notSeenInside(`job ${id}`) : jobNotFound(id);
  };
  const problem = (job: Job) => ofAnotherService(client, job);
  const failure = yield* takeSteps(client, { ...given, read, missing, problem });
  if (failure !== null) return Result.err(failure);
  const job = yield* read();
  return job === null ? Result.err(jobNotFound(id)) : Result.ok(job);
}

/** Only the job's own service knows what its result must be. */
function ofAnotherService({ runtime }: Client, { id, service }: Job): InvalidOption | null {
  if (service === runtime.service) return null;
  const message = `Job ${id} is of the service ${service}: complete it there, or over HTTP.`;
  return new InvalidOption({ field: "id", message });
}

/** The caller's steps, and where they are taken. */
export interface StepsGiven {
  /** Takes the caller's steps. What it gives is waited for. */
  readonly begin: (steps: Steps, job: Job) => unknown;
  /** Whether this happens in a transaction of the caller's. */
  readonly isInside: boolean;
  /** Whether others see what such a transaction does not, where that can be waited for. */
  readonly seenByOthers?: () => Promise<boolean>;
}

/** Whether steps are taken inside, and how to tell what others see then. */
export function inside(
  tx: CallerTransaction | undefined,
  seenByOthers: () => Promise<boolean>,
): Omit<StepsGiven, "begin"> {
  return tx === undefined ? { isInside: false } : { isInside: true, seenByOthers };
}

/** Whether what is missing is only not seen by the transaction. */
export function* isUnseen({ seenByOthers }: StepsGiven): StoreStep<boolean> {
  return seenByOthers !== undefined && (yield* waitFor(seenByOthers()));
}

/** Whose steps are taken, by whom, and where. */
export interface StepsAsk extends StepsGiven {
  /** The job that the first step completes; `null` when it is not there. */
  readonly read: () => StoreStep<Job | null>;
  /** What to say then. */
  readonly missing: () => StoreStep<CompleteFailure>;
  /** Why the job is not to be completed here, or `null`. */
  readonly problem?: (job: Job) => CompleteFailure | null;
}

/**
 * Takes the steps on the current job and stores them, again where somebody else was faster; `null` when they are stored.
 * In a transaction they are taken once: what the caller's callback writes there would be written again.
 */
export function* takeSteps(client: Client, ask: StepsAsk): StoreStep<CompleteFailure | null> {
  let id = "";
  for (let tries = 0; tries < triesMax; tries++) {
    const job = yield* readToComplete(ask);
    if (job === null) return yield* ask.missing();
    const problem = ask.problem?.(job) ?? null;
    if (problem !== null) return problem;
    if (isEnded(job.state)) return alreadyCompleted(job);
    id = job.id;
    const steps = new Steps(client, job);
    try {
      yield* waitFor(ask.begin(steps, job));
    } catch (thrown) {
      if (steps.isRefusal(thrown)) return thrown;
      throw thrown;
    }
    const wrong = (yield* wrongBlockers(steps.creates)).find((refused) => refused !== null);
    if (wrong) return wrong;
    const answer = yield* store(steps.changes);
    if (answer?.outcome === "bad_blocker")
      return invalidBlocker(id, answer.blockerId, answer.reason);
    if (answer?.outcome === "faulted") return answer.error;
    if (answer === null || answer.outcome === "appended") return null;
    if (ask.isInside) return changedInside(id);
  }
  const message = `Job ${id} kept changing while it was completed; complete it again.`;
  return new StoreBusy({ url: client.runtime.engine.url, message });
}

/** The job that the first step completes. In a transaction it is locked and read again, so that it stays as it was read. */
function* readToComplete({ read, isInside }: StepsAsk): StoreStep<Job | null> {
  let job = yield* read();
  if (!isInside) return job;
  for (let tries = 0; tries < triesMax; tries++) {
    if (job === null || isEnded(job.state)) return job;
    const { service, type, id }: Job = job;
    const isHeld = yield* holdOne({ job: { service, type, id } });
    job = yield* read();
    if (isHeld && job?.id === id) return job;
  }
  return job;
}

/** The one place where the steps meet the store. `null` where there are none. */
function* store([first, ...follow]: readonly Change[]): StoreStep<AppendOutcome | null> {
  if (first === undefined) return null;
  return yield* appendOne(follow.length === 0 ? first : { ...first, follow });
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

/** Others see it: it was created, or has gone on, after the transaction had begun and looked at the database. */
export function notSeenInside(what: string): TransactionConflict {
  const message = `The transaction does not see ${what} as it is now, because that has changed after the transaction had begun. Roll it back and run it again.`;
  return new TransactionConflict({ message });
}
