/**
 * Completing a chain without a worker: its current job gets a result or a continuation, and so may the next one.
 */
import { Result } from "better-result";
import type { Job } from "../core/job.js";
import { type AsyncResult, refusal } from "./async-result.js";
import { type ChainSnapshot, chainSteps, noChain } from "./chains.js";
import type { Client } from "./client.js";
import {
  type CompleteOptions,
  type Completion,
  completionTransaction,
  inside,
  isUnseen,
  notSeenInside,
  runCompletion,
  runCompletionSync,
  type StepsGiven,
  type SyncCompleteOptions,
  syncCompletionTransaction,
  takeSteps,
} from "./completion.js";
import type { CompleteFailure, CompleteJobSync, Steps } from "./completion-steps.js";
import { functionProblem, optionProblem } from "./option-checks.js";
import { runSteps, type StoreStep } from "./store-steps.js";

/** What the caller is given inside a synchronous transaction. */
export interface SyncCompletion {
  readonly job: Job;
  readonly complete: CompleteJobSync;
}

/** Takes the caller's steps on the current job of a chain and stores them. Gives the chain as it is afterwards. */
export function completeChain(
  client: Client,
  id: string,
  take: (completion: Completion) => unknown,
  options: CompleteOptions = {},
): AsyncResult<ChainSnapshot, CompleteFailure> {
  const problem = optionProblem("callback", take, functionProblem);
  const tx = problem ?? completionTransaction(client, options);
  if (tx instanceof Error) return refusal(tx);
  const begin = async (steps: Steps, job: Job) => {
    await take({ job, complete: steps.complete });
    await steps.finish();
  };
  const seenByOthers = async () => {
    const seen = chainSteps(client, id, false);
    return (await runSteps(client.runtime.engine, undefined, seen)) !== null;
  };
  return runCompletion(client, tx, completed(client, id, { begin, ...inside(tx, seenByOthers) }));
}

/** As `completeChain`, inside a synchronous transaction of the caller's. */
export function completeChainSync(
  client: Client,
  id: string,
  take: (completion: SyncCompletion) => unknown,
  options: SyncCompleteOptions,
): Result<ChainSnapshot, CompleteFailure> {
  const problem = optionProblem("callback", take, functionProblem);
  const tx = problem ?? syncCompletionTransaction(client, options);
  if (tx instanceof Error) return Result.err(tx);
  const begin = (steps: Steps, job: Job) => take({ job, complete: steps.completeSync });
  return runCompletionSync(client, tx, completed(client, id, { begin, isInside: true }));
}

function* completed(
  client: Client,
  id: string,
  given: StepsGiven,
): StoreStep<Result<ChainSnapshot, CompleteFailure>> {
  const chain = () => chainSteps(client, id, given.isInside);
  const missing = function* () {
    if (yield* isUnseen(given)) return notSeenInside(`chain ${id}`);
    return yield* noChain(client, id, "complete");
  };
  const read = function* () {
    return (yield* chain())?.current ?? null;
  };
  const failure = yield* takeSteps(client, { ...given, read, missing });
  if (failure !== null) return Result.err(failure);
  const done = yield* chain();
  return done === null ? Result.err(yield* missing()) : Result.ok(done);
}
