/**
 * The typed face of chains: start one, look at it, wait for its output, complete it without a worker, remove it.
 * What each step may continue with and what comes out in the end follows from the contract.
 */
import { Result } from "better-result";
import { type AsyncResult, refusal } from "../client/async-result.js";
import type { BlockerInputs } from "../client/blockers.js";
import { completeChain, completeChainSync } from "../client/chain-completion.js";
import { ChainRef } from "../client/chain-ref.js";
import {
  type ChainSnapshot,
  type ChainsFilter,
  type DeleteChainOptions,
  deleteChain,
  getChain,
  listChains,
  startChain,
  startChainSync,
  waitChain,
} from "../client/chains.js";
import type { Client } from "../client/client.js";
import type { CompleteOptions, SyncCompleteOptions } from "../client/completion.js";
import type { CompleteFailure } from "../client/completion-steps.js";
import type { Continuation } from "../client/continuation.js";
import type { CreateOptions, Demanded, SyncCreateOptions } from "../client/create-options.js";
import { InvalidOption, type JobNotFound } from "../client/errors.js";
import type { CreateFailure } from "../client/job-creator.js";
import type { CommandFailure, JobSnapshot } from "../client/job-ref.js";
import { idOf, isObject, kindOf, optionProblem, stringProblem } from "../client/option-checks.js";
import type { PageAsk } from "../client/reads.js";
import type { WaitFailure, WaitOptions } from "../client/wait.js";
import type { JobEntries } from "../contract/definition.js";
import type { Stored } from "../contract/stored.js";
import type { StoreError } from "../engine/errors.js";
import type { ChainRow, Page } from "../engine/query.js";
import type {
  BlockerInputsOf,
  ChainOutputOf,
  ContinuationsOf,
  ContinueWithNamed,
  CreateArgument,
  CurrentOf,
  InputOf,
  OwnValueOf,
  PayloadOf,
  ReachedFrom,
  ValueOf,
} from "./inferred.js";

/** A job of one of some types, told apart by `type`. */
export type JobOfTypes<Entries extends JobEntries, Types> = Types extends keyof Entries & string
  ? JobSnapshot<
      Stored<PayloadOf<CurrentOf<Entries[Types]>>>,
      ValueOf<CurrentOf<Entries[Types]>>
    > & { readonly type: Types }
  : never;

/** A chain that started with a job of a type, as it was when it was read. */
export type ChainOf<Entries extends JobEntries, Type> = ChainSnapshot<
  ChainOutputOf<Entries, Type>,
  JobOfTypes<Entries, ReachedFrom<Entries, Type>>
>;

/** What all of several types have in common: what fits each of them. Boxed, so that a union stays one. */
type Common<Boxed> = (Boxed extends unknown ? (box: Boxed) => void : never) extends (
  box: infer All,
) => void
  ? All extends { readonly box: infer Value }
    ? Value
    : never
  : never;

type ValueBox<Entries extends JobEntries, Types> = Types extends keyof Entries
  ? { readonly box: OwnValueOf<CurrentOf<Entries[Types]>> }
  : never;

type NextBox<Entries extends JobEntries, Types> = Types extends keyof Entries
  ? { readonly box: ContinuationsOf<CurrentOf<Entries[Types]>> }
  : never;

/**
 * Completes a job with what the callback gives: the job that continues it, or `null` at the end of the chain.
 * Of a job that may be of several types it takes only what fits all of them: look at its `type` before.
 */
export type CompleteStepOf<Entries extends JobEntries> = <
  Type extends keyof Entries & string,
  Given extends Common<ValueBox<Entries, Type>> | Continuation,
>(
  job: { readonly id: string; readonly type: Type },
  callback: (step: {
    readonly continueWith: ContinueWithNamed<Common<NextBox<Entries, Type>>, Entries>;
  }) => Given | Promise<Given>,
) => Promise<Given extends Continuation<infer Next> ? JobOfTypes<Entries, Next> : null>;

/** What a completion without a worker is given. */
export interface CompletionOf<Entries extends JobEntries, Type> {
  /** The chain's current job, whatever it waits for. */
  readonly job: JobOfTypes<Entries, ReachedFrom<Entries, Type>>;
  readonly complete: CompleteStepOf<Entries>;
}

/** As `CompleteStepOf`, done when it returns. */
export type SyncCompleteStepOf<Entries extends JobEntries> = <
  Type extends keyof Entries & string,
  Given extends Common<ValueBox<Entries, Type>> | Continuation,
>(
  job: { readonly id: string; readonly type: Type },
  callback: (step: {
    readonly continueWith: ContinueWithNamed<Common<NextBox<Entries, Type>>, Entries>;
  }) => Given,
) => Given extends Continuation<infer Next> ? JobOfTypes<Entries, Next> : null;

/** What a synchronous completion without a worker is given. */
export interface SyncCompletionOf<Entries extends JobEntries, Type> {
  /** The chain's current job, whatever it waits for. */
  readonly job: JobOfTypes<Entries, ReachedFrom<Entries, Type>>;
  readonly complete: SyncCompleteStepOf<Entries>;
}

/** A chain by its ref, which knows its type, or by its id alone. */
type ChainName<Type extends string> = ChainRef<Type> | string;

/** The chains of a service. */
export class Chains<Entries extends JobEntries = JobEntries> {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /**
   * Starts a chain with a job of a type. It takes the options of every create.
   *
   * @example
   * const chain = await service.chains.start("charge", { orderId: "o-1" }).orThrow();
   * const output = await service.chains.wait(chain).orThrow();
   */
  start<Type extends keyof Entries & string>(
    type: Type,
    payload: InputOf<CurrentOf<Entries[Type]>>,
    ...options: CreateArgument<CurrentOf<Entries[Type]>, Entries, "create">
  ): AsyncResult<ChainRef<Type>, CreateFailure>;
  start<Type extends keyof Entries & string>(
    type: Type,
    payload: unknown,
    options?: CreateOptions<BlockerInputs>,
  ): AsyncResult<ChainRef<Type>, CreateFailure> {
    const target = this.#target(type);
    if (target instanceof InvalidOption) return refusal(target);
    return startChain(this.#client, target, payload, options);
  }

  /** As `start`, inside a synchronous transaction of better-sqlite3; the outcome is there when it returns. */
  startSync<Type extends keyof Entries & string>(
    type: Type,
    payload: InputOf<CurrentOf<Entries[Type]>>,
    options: SyncCreateOptions<BlockerInputsOf<CurrentOf<Entries[Type]>, Entries>> &
      Demanded<BlockerInputsOf<CurrentOf<Entries[Type]>, Entries>>,
  ): Result<ChainRef<Type>, CreateFailure> {
    const target = this.#target(type);
    if (target instanceof InvalidOption) return Result.err(target);
    return startChainSync(this.#client, target, payload, options);
  }

  /** A ref to a chain whose id was kept elsewhere. It reads nothing. Throws `InvalidOption` for what is no id. */
  ref<Type extends keyof Entries & string>(type: Type, id: string): ChainRef<Type> {
    const problem = optionProblem("id", id, stringProblem);
    if (problem !== null) throw problem;
    return new ChainRef(id, type, true);
  }

  /** Reads a chain: its current job, its state, its jobs, and its output once it has completed. */
  get<Type extends keyof Entries & string>(
    chain: ChainName<Type>,
  ): AsyncResult<ChainOf<Entries, Type>, JobNotFound | InvalidOption | StoreError> {
    const id = idOf(chain);
    if (id === null) return refusal(noChain(chain));
    // The store holds what the contract's schemas gave.
    return getChain(this.#client, id) as AsyncResult<never, JobNotFound | StoreError>;
  }

  /** Chains, newest first. A filter asks for the first job's names and times, and the current one's state. */
  list(
    ask: ChainsFilter & PageAsk & { readonly cursor?: string } = {},
  ): AsyncResult<Page<ChainRow>, InvalidOption | StoreError> {
    return listChains(this.#client, ask);
  }

  /** Waits until the chain has ended and gives the result of its last job. */
  wait<Type extends keyof Entries & string>(
    chain: ChainName<Type>,
    options: WaitOptions = {},
  ): AsyncResult<ChainOutputOf<Entries, Type>, WaitFailure> {
    const id = idOf(chain);
    return id === null ? refusal(noChain(chain)) : waitChain(this.#client, id, options);
  }

  /**
   * Completes the chain's current job without a worker, also while it is blocked, scheduled or running: with a
   * result, or with the next job, which may be completed in the same way. All steps are stored together.
   * The callback is called again if the job has changed meanwhile. With `tx` they are stored in the caller's
   * transaction, and the chain that comes back lists the jobs that others can see.
   *
   * @example
   * await service.chains.complete(chain, async ({ job, complete }) => {
   *   if (job.type === "awaitApproval") await complete(job, () => ({ approved: true }));
   * });
   */
  complete<Type extends keyof Entries & string>(
    chain: ChainName<Type>,
    take: (completion: CompletionOf<Entries, Type>) => unknown,
    options: CompleteOptions = {},
  ): AsyncResult<ChainOf<Entries, Type>, CompleteFailure> {
    const id = idOf(chain);
    if (id === null) return refusal(noChain(chain));
    const steps = take as unknown as Parameters<typeof completeChain>[2];
    const completed = completeChain(this.#client, id, steps, options);
    return completed as AsyncResult<never, CompleteFailure>;
  }

  /**
   * As `complete`, inside a synchronous transaction of better-sqlite3, with a callback that is not async: each step is
   * done when it returns, and so is the completion.
   *
   * @example
   * db.transaction(() => {
   *   service.chains
   *     .completeSync(chain, ({ job, complete }) => {
   *       if (job.type === "awaitApproval") complete(job, () => ({ approved: true }));
   *     }, { tx: db })
   *     .unwrap();
   * })();
   */
  completeSync<Type extends keyof Entries & string>(
    chain: ChainName<Type>,
    take: (completion: SyncCompletionOf<Entries, Type>) => void,
    options: SyncCompleteOptions,
  ): Result<ChainOf<Entries, Type>, CompleteFailure> {
    const id = idOf(chain);
    if (id === null) return Result.err(noChain(chain));
    const steps = take as unknown as Parameters<typeof completeChainSync>[2];
    const completed = completeChainSync(this.#client, id, steps, options);
    return completed as Result<never, CompleteFailure>;
  }

  /**
   * Removes every job of a chain. Refused while one of them runs or other jobs wait for the chain,
   * unless it is forced. Gives how many jobs there were.
   */
  delete(
    chain: ChainRef | string,
    options: DeleteChainOptions = {},
  ): AsyncResult<number, CommandFailure> {
    const id = idOf(chain);
    return id === null ? refusal(noChain(chain)) : deleteChain(this.#client, id, options);
  }

  #target<Type extends string>(type: Type) {
    const bound = this.#client.currentJob(type);
    if (bound === undefined) {
      const message = `type: The contract has no job ${String(type)}; start a job of any type by untyped.create with { chain: true }.`;
      return new InvalidOption({ field: "type", message });
    }
    const { service, queue, definition } = bound;
    const { payload: schema, settings } = definition;
    return { service, type, queue, schema, settings };
  }
}

function noChain(given: unknown): InvalidOption {
  const what = isObject(given) ? "an object without an id" : kindOf(given);
  const message = `chain: It must be the ref of a chain or its id, not ${what}.`;
  return new InvalidOption({ field: "chain", message });
}
