/**
 * `complete`: a handler completes its job itself, with a result or with a continuation.
 *
 *   run the callback → make its outcome → wait for the notes → settle, with what follows
 *
 * Where the service has a source of transactions, this happens in one transaction of the user's own client,
 * which commits with the outcome or not at all.
 */
import { invalidBlocker } from "../client/blockers.js";
import type { Client } from "../client/client.js";
import { Continuation, continueWith, prepareContinuation } from "../client/continuation.js";
import { InvalidResult } from "../client/errors.js";
import { functionProblem, optionProblem } from "../client/option-checks.js";
import type { PreparedCreate } from "../client/prepare.js";
import type { Runtime } from "../client/runtime.js";
import { runSteps } from "../client/store-steps.js";
import { createChange } from "../client/submit.js";
import type { SyncTransactionSource, TransactionSource } from "../client/transactions/source.js";
import type { Change } from "../engine/engine.js";
import { isStoreError } from "../engine/errors.js";
import { jobAborted, lostJob } from "./abort.js";
import type { CompleteStep } from "./active-job.js";
import { conclude, type Outcome } from "./conclude.js";
import type { Hold } from "./hold.js";
import type { WorkerHooks } from "./hooks.js";
import { refusedContinuation } from "./lasting-fault.js";
import { ignorable, type Notes } from "./notes.js";
import { enlist } from "./open-transaction.js";
import { Completed, isHandlerOutcome } from "./outcome.js";
import { givenAtOnce, type Phases } from "./phases.js";
import { resultOutcome } from "./result.js";
import {
  afterCommit,
  checkBlockers,
  type OutcomeInside,
  type StoredInside,
  settleInside,
} from "./settle-inside.js";
import type { Fate, Settlements } from "./settlements.js";

/** What `complete` works with. */
export interface CompleteParts {
  readonly client: Client;
  readonly notes: Notes;
  readonly settlements: Settlements;
  readonly hooks: WorkerHooks;
  /** Where the transactions of handlers come from, if anywhere. */
  readonly transactions: TransactionSource<unknown> | undefined;
}

/** The callback of `complete`. */
type CompleteCallback = (step: CompleteStep<typeof continueWith, unknown>) => unknown;

/** The completion of a job: its outcome, and the create of its continuation. */
interface Completion {
  readonly outcome: Extract<Outcome, { kind: "returned" }>;
  readonly follow?: readonly Change[];
  readonly create?: PreparedCreate;
}

/** Completes the job with what the callback gives. Once it resolves, the outcome is stored. */
export function complete(
  hold: Hold,
  parts: CompleteParts,
  phases: Phases,
  callback: CompleteCallback,
): Promise<Completed> {
  const problem = cannotComplete(hold) ?? optionProblem("callback", callback, functionProblem);
  if (problem !== null) return ignorable(Promise.reject(problem));
  hold.isCompleting = true;
  const completion = steps(hold, parts, phases, callback).finally(() => {
    hold.isCompleting = false;
  });
  hold.completion = completion;
  return ignorable(completion);
}

function cannotComplete(hold: Hold): Error | null {
  if (hold.isCompleting || hold.phase !== "running") {
    return new Error(
      `Job ${hold.job.id}: complete may be called once, before the handler returns.`,
    );
  }
  return stopped(hold);
}

/** A try that took too long has failed and a job whose deadline has come has expired, whatever comes afterwards. */
function stopped({ aborted }: Hold): Error | null {
  return aborted?.reason === "timeout" || aborted?.reason === "expired" ? aborted : null;
}

async function steps(
  hold: Hold,
  parts: CompleteParts,
  phases: Phases,
  callback: CompleteCallback,
): Promise<Completed> {
  const { transactions } = parts;
  if (transactions === undefined) return withoutTransaction(hold, parts, callback);
  // A note that came after the outcome would be lost, and one on its way could wait for the transaction.
  if (hold.notesUnderWay > 0) await parts.notes.quiet(hold);
  return transactions.kind === "sync"
    ? inSyncTransaction(hold, parts, transactions, callback)
    : inTransaction(hold, parts, transactions, phases, callback);
}

async function withoutTransaction(
  hold: Hold,
  parts: CompleteParts,
  callback: CompleteCallback,
): Promise<Completed> {
  const given = await callback({ tx: undefined, continueWith });
  const completion = await completionOf(hold, parts.client, given);
  if (completion.create?.blockerTypes !== undefined)
    await lookAtBlockers(hold, completion.create, parts.client.runtime);
  if (hold.notesUnderWay > 0) await parts.notes.quiet(hold);
  await settled(hold, parts, completion);
  return completed(hold, completion);
}

/** They are looked at again before their job begins, so that a fault of the store costs the handler no try here. */
async function lookAtBlockers(
  hold: Hold,
  create: PreparedCreate,
  { engine }: Runtime,
): Promise<void> {
  await runSteps(engine, undefined, checkBlockers(hold, create)).catch((fault) => {
    if (!isStoreError(fault)) throw fault;
  });
}

async function inTransaction(
  hold: Hold,
  parts: CompleteParts,
  source: TransactionSource<unknown>,
  phases: Phases,
  callback: CompleteCallback,
): Promise<Completed> {
  const { runtime } = parts.client;
  try {
    const open = await phases.take();
    const given = await callback({ tx: open.client, continueWith });
    const completion = await completionOf(hold, parts.client, given);
    if (hold.notesUnderWay > 0) await parts.notes.quiet(hold);
    const outcome = outcomeInside(hold, completion, runtime);
    const tx = enlist(source, open.client);
    const settle = () => settleInside(hold, outcome, runtime, tx);
    const stored = await phases.during(() => recorded(hold, parts, settle));
    if (stored === null) throw new LostInside(completion);
    await open.commit();
    return committed(hold, completion, stored, parts);
  } catch (error) {
    await hold.letGo?.();
    return failedInside(hold, parts, error);
  } finally {
    hold.letGo = undefined;
  }
}

async function inSyncTransaction(
  hold: Hold,
  parts: CompleteParts,
  source: SyncTransactionSource<unknown>,
  callback: CompleteCallback,
): Promise<Completed> {
  const { client } = parts;
  try {
    const [completion, stored] = source.run((tx) => {
      const completion = givenAtOnce(
        completionOf(hold, client, givenAtOnce(callback({ tx, continueWith }))),
      ) as Completion;
      const outcome = outcomeInside(hold, completion, client.runtime);
      const enlisted = enlist(source, tx);
      const stored = recorded(hold, parts, () =>
        settleInside(hold, outcome, client.runtime, enlisted),
      );
      if (stored === null) throw new LostInside(completion);
      return [completion, stored as StoredInside] as const;
    });
    return committed(hold, completion, stored, parts);
  } catch (error) {
    return failedInside(hold, parts, error);
  }
}

/** Stores an outcome, and tells telemetry. */
function recorded<Value>({ job }: Hold, { client }: CompleteParts, store: () => Value): Value {
  const recorder = client.runtime.telemetry?.recorder();
  return recorder ? recorder.settle([job], store) : store();
}

/** The job is no longer the worker's: what was done in the transaction is undone. */
class LostInside extends Error {
  readonly completion: Completion;

  constructor(completion: Completion) {
    super("The job is no longer this worker's.");
    this.completion = completion;
  }
}

/** The outcome to store inside, unless the handler was stopped meanwhile. */
function outcomeInside(hold: Hold, completion: Completion, runtime: Runtime): OutcomeInside {
  const tooLate = stopped(hold);
  if (tooLate !== null) throw tooLate;
  const { outcome, follow, create } = completion;
  return { make: conclude(hold, outcome, runtime), follow, continuation: create };
}

function committed(
  hold: Hold,
  completion: Completion,
  stored: StoredInside,
  { client, hooks }: CompleteParts,
): Completed {
  hold.phase = "settled";
  hooks.stored(hold, stored.job, stored.event);
  afterCommit(hold, stored, client.runtime);
  return completed(hold, completion);
}

/** Everything is rolled back. An outcome that came too late is recorded as ignored; otherwise the handler goes on. */
async function failedInside(hold: Hold, parts: CompleteParts, error: unknown): Promise<never> {
  const cause = error instanceof LostInside ? await lostInside(hold, parts, error) : error;
  hold.phase = "running";
  throw cause;
}

/**
 * Records the outcome of a job that somebody else has as ignored. One that is the worker's again was only lost inside, to what the
 * callback did to it there: its outcome must not be stored without what was written beside it.
 */
async function lostInside(hold: Hold, parts: CompleteParts, lost: LostInside): Promise<Error> {
  const { id, token } = hold.job;
  const [loaded] = await parts.client.runtime.engine.load([id]);
  if (loaded?.job.state === "active" && loaded.job.token === token) {
    const message = `Job ${id} was changed in the transaction that was to complete it. Let nothing but complete change it there; everything was rolled back.`;
    return new Error(message);
  }
  await settled(hold, parts, lost.completion);
  return lost;
}

function completed({ job }: Hold, { outcome }: Completion): Completed {
  return new Completed(job.id, outcome.continuation?.jobId);
}

/** What the callback's value means. A value that cannot be used is thrown, and nothing has been stored then. */
function completionOf(
  hold: Hold,
  client: Client,
  given: unknown,
): Completion | Promise<Completion> {
  if (isHandlerOutcome(given)) throw given;
  if (given instanceof Continuation) {
    const create = prepareContinuation(client, hold.job, given);
    return create instanceof Promise
      ? create.then((later) => continued(hold, later))
      : continued(hold, create);
  }
  const outcome = resultOutcome(hold, given, client.runtime);
  const { type } = hold.job;
  return outcome instanceof Promise
    ? outcome.then((later) => ended(type, later))
    : ended(type, outcome);
}

function ended(type: string, outcome: Outcome): Completion {
  if (outcome.kind === "returned") return { outcome };
  if (outcome.kind === "terminated")
    throw new InvalidResult({ type, message: outcome.error.message });
  throw new Error(`A result became ${outcome.kind}.`);
}

function continued(hold: Hold, create: PreparedCreate | Error): Completion {
  if (create instanceof Error) throw refusedContinuation(hold, create);
  const continuation = { jobId: create.event.jobId, type: create.event.type };
  return { outcome: { kind: "returned", continuation }, follow: [createChange(create)], create };
}

async function settled(hold: Hold, parts: CompleteParts, completion: Completion): Promise<void> {
  const { outcome, follow } = completion;
  hold.phase = "settling";
  const make = conclude(hold, outcome, parts.client.runtime);
  const fate = await parts.settlements.settle(hold, make, follow);
  if (fate.fate !== "stored") throw refusal(hold, fate);
}

/** Why the outcome did not count, in the words of the signal where it has some. */
function refusal(hold: Hold, fate: Exclude<Fate, { fate: "stored" }>): Error {
  const { id } = hold.job;
  if (fate.fate === "dropped") return jobAborted(id, "error");
  if (fate.fate === "stale") return lostJob(id, fate.job);
  const { blockerId, reason } = fate.refusal;
  return refusedContinuation(hold, invalidBlocker(id, blockerId, reason));
}
