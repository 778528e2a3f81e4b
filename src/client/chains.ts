/**
 * Chains: jobs that continue one another. A chain has the id of its first job, the state of its current one,
 * and the result of its last one as its output.
 */
import { Result } from "better-result";
import { continuesElsewhere } from "../core/chains.js";
import type { Command } from "../core/command.js";
import { isEnded, type Job, type JobState } from "../core/job.js";
import type { Json } from "../core/json.js";
import type { Engine } from "../engine/engine.js";
import { StoreBusy, type StoreError } from "../engine/errors.js";
import {
  type ChainFilter,
  type ChainRow,
  type JobRow,
  type Page,
  pageMax,
  type Queries,
} from "../engine/query.js";
import { type AsyncResult, attempt, refusal } from "./async-result.js";
import type { BlockerInputs } from "./blockers.js";
import { ChainRef } from "./chain-ref.js";
import type { Client } from "./client.js";
import { commandMany, type EachOutcome } from "./commands.js";
import type { CreateOptions, SyncCreateOptions } from "./create-options.js";
import { CommandRefused, chainNotFound, type InvalidOption, JobNotFound } from "./errors.js";
import { type CreateFailure, JobCreator } from "./job-creator.js";
import { type CommandFailure, deleteChecks } from "./job-ref.js";
import { cursorProblem, optionsProblem } from "./option-checks.js";
import type { CreateTarget } from "./prepare.js";
import {
  filterChecks,
  given,
  listProblem,
  type PageAsk,
  pageChecks,
  type ReadFilter,
  storeFilter,
} from "./reads.js";
import { actorOf } from "./runtime.js";
import { listJobs, loadOne, runSteps, type StoreStep } from "./store-steps.js";
import { openedJob } from "./vault.js";
import { type WaitFailure, type WaitOptions, waitForJob } from "./wait.js";

/** A chain as it was when it was read. */
export interface ChainSnapshot<Output = Json | undefined, Current = Job> {
  readonly id: string;
  /** The job that the chain has come to: the newest that has not ended, or else the newest. */
  readonly current: Current;
  /** The state of that job. */
  readonly state: JobState;
  /** The result of the last job, once the chain has completed. */
  readonly output?: Output;
  /** The jobs of the chain, oldest first; of a very long chain the newest 100. */
  readonly jobs: readonly JobRow[];
  /** How many jobs it has in all. */
  readonly count: number;
}

/** What a chain is started with: a type, which its ref then knows. */
type ChainTarget<Type extends string> = CreateTarget & { readonly type: Type };

/** Starts a chain with a job of a type. */
export function startChain<Type extends string>(
  client: Client,
  target: ChainTarget<Type>,
  payload: unknown,
  options: CreateOptions<BlockerInputs> | undefined,
): AsyncResult<ChainRef<Type>, CreateFailure> {
  return attempt<ChainRef<Type>, CreateFailure>(async () =>
    Result.map(await starter(client, target).create(payload, options), chainRefOf(target)),
  );
}

/** As `startChain`, inside a synchronous transaction. */
export function startChainSync<Type extends string>(
  client: Client,
  target: ChainTarget<Type>,
  payload: unknown,
  options: SyncCreateOptions<BlockerInputs>,
): Result<ChainRef<Type>, CreateFailure> {
  return Result.map(starter(client, target).createSync(payload, options), chainRefOf(target));
}

function starter(client: Client, target: CreateTarget) {
  return new JobCreator<unknown, Json, Json, BlockerInputs>(client, {
    ...target,
    startsChain: true,
    needsChain: true,
  });
}

function chainRefOf<Type extends string>({ type }: ChainTarget<Type>) {
  return ({ id, existing }: { readonly id: string; readonly existing: boolean }) =>
    new ChainRef(id, type, existing);
}

/** Reads a chain. `wish` is what the caller wants of it. */
export function getChain(
  client: Client,
  id: string,
  wish: ChainWish = "read",
): AsyncResult<ChainSnapshot, JobNotFound | StoreError> {
  return attempt<ChainSnapshot, JobNotFound>(async () => {
    const { engine } = client.runtime;
    const chain = await runSteps(engine, undefined, chainSteps(client, id, false));
    return chain === null
      ? Result.err(await runSteps(engine, undefined, noChain(client, id, wish)))
      : Result.ok(chain);
  });
}

/** What can be done with a chain, and with a job in its place. */
type ChainWish = "read" | "wait for" | "complete" | "delete";

/** Why there is no chain of an id, and what to do: the id is of a job that is none, or of nothing. */
export function* noChain(client: Client, id: string, wish: ChainWish): StoreStep<JobNotFound> {
  const loaded = yield* loadOne(id);
  if (!loaded || !isOf(client, loaded.job)) return chainNotFound(id);
  const { chainId } = loaded.job;
  // The chain itself, of which the end was removed, or which has come into being or gone meanwhile.
  if (chainId === id) return continuesElsewhere(loaded.job) ? endRemoved(id) : chainNotFound(id);
  const message =
    chainId === undefined
      ? `Job ${id} is no chain; ${wish} it as a job.`
      : `Job ${id} is a part of chain ${chainId}; ${wish} that.`;
  return new JobNotFound({ id, message });
}

/** The error of a chain that nobody can tell the end of any more. */
function endRemoved(id: string): JobNotFound {
  const message = `The last job of chain ${id} was removed, and its output with it; delete the chain to remove the jobs that are left.`;
  return new JobNotFound({ id, message });
}

/** How many continuations are followed beyond the list of jobs to find the job that a chain has come to. */
const followMax = 1_000;

/**
 * The chain of an id as it is now; `null` when none of its jobs is there, or when its end was removed. In a transaction the
 * current job is the one that it sees, while the list of jobs is what others see, unless the transaction is a synchronous one.
 */
export function* chainSteps(
  client: Client,
  id: string,
  isInside: boolean,
): StoreStep<ChainSnapshot | null> {
  const ask = jobsAsk(client, id);
  const listed = yield* listJobs(ask);
  const row = currentRow(listed.entries);
  if (row === undefined && !isInside) return null;
  const stored = yield* loadCurrent(row?.id ?? id);
  // A transaction finds a job by its id whether or not that is the first of a chain.
  if (stored?.chainId !== id || !isOf(client, stored)) return null;
  // The chain has gone on since its jobs were listed, and the current one is to be among them.
  const isOld = !isInside && stored.id !== row?.id;
  const { entries, count } = isOld ? yield* listJobs(ask) : listed;
  const current = openedJob(client.runtime, stored);
  const jobs = [...entries].reverse();
  const snapshot = { id, current, state: current.state, jobs, count };
  if (current.state !== "completed") return snapshot;
  return current.result === undefined ? snapshot : { ...snapshot, output: current.result };
}

/**
 * Loads the current job. The chain may have gone on since its jobs were listed; a transaction may have started it itself,
 * or have come further with it than others see. It is `null` where what continues the chain was removed.
 */
function* loadCurrent(id: string): StoreStep<Job | null> {
  let next = id;
  for (let followed = 0; followed < followMax; followed++) {
    const loaded = yield* loadOne(next);
    if (loaded === null) return null;
    if (loaded.job.continuedBy === undefined) return loaded.job;
    next = loaded.job.continuedBy;
  }
  return null;
}

/** Narrows a list of chains: what is asked of the first job, and the state of the current one. */
export type ChainsFilter = Pick<ReadFilter, keyof ChainFilter>;

const {
  queue: _queue,
  key: _key,
  parentId: _parent,
  chainId: _chain,
  ...chainFilterChecks
} = filterChecks;
const chainListChecks = { ...chainFilterChecks, ...pageChecks, cursor: cursorProblem };

/** Chains, newest first. */
export function listChains(
  client: Client,
  ask: ChainsFilter & PageAsk & { readonly cursor?: string },
): AsyncResult<Page<ChainRow>, InvalidOption | StoreError> {
  const problem = listProblem(ask, chainListChecks);
  if (problem !== null) return refusal(problem);
  const { limit, offset, cursor, ...filter } = ask;
  const page = given({ limit, offset, cursor });
  return attempt<Page<ChainRow>, InvalidOption>(async () =>
    Result.ok(
      await client.runtime.engine.query("chains", { filter: storeFilter(client, filter), ...page }),
    ),
  );
}

/** Waits until the chain has ended, and gives the result of its last job. */
export function waitChain<Output>(
  client: Client,
  id: string,
  options: WaitOptions,
): AsyncResult<Output, WaitFailure> {
  return attempt<Output, WaitFailure>(async () => {
    const row = currentRow((await jobsOfChain(client, id)).entries);
    // The first job of a chain has its id.
    const current = row?.id ?? (client.onItsWay.has(id) ? id : null);
    const next = ({ continuedBy }: Job) => continuedBy ?? null;
    const waited =
      current === null ? null : await waitForJob<Output>(client, current, options, next);
    if (waited !== null && !(waited.isErr() && waited.error._tag === "JobNotFound")) return waited;
    const none = noChain(client, id, "wait for");
    return Result.err(await runSteps(client.runtime.engine, undefined, none));
  });
}

/** What a delete of a chain may say. */
export interface DeleteChainOptions {
  readonly reason?: string;
  /** Deletes it also while one of its jobs is active or other jobs wait for it. */
  readonly force?: boolean;
}

/**
 * Removes every job of a chain, the oldest first and the current one last: whoever is about to wait for the chain holds the oldest, and
 * a refusal leaves the end of the chain to be waited for. Gives how many.
 */
export function deleteChain(
  client: Client,
  id: string,
  options: DeleteChainOptions,
): AsyncResult<number, CommandFailure> {
  const problem = optionsProblem("a delete", options, deleteChecks);
  if (problem !== null) return refusal(problem);
  const { reason = "deleted by hand", force = false } = options;
  return attempt<number, CommandFailure>(async () => {
    let deleted = 0;
    for (let left = true; left; ) {
      const newest = await jobsOfChain(client, id);
      if (newest.entries.length === 0) break;
      const oldest = await oldestOfChain(client, id, newest);
      const awaited = force ? null : await awaitedBy(client, id, oldest);
      if (awaited !== null) return Result.err(awaited);
      const current = currentRow(newest.entries);
      const removed = await removeJobs(client, oldest, current, { reason, force });
      if (removed instanceof Error) return Result.err(removed);
      deleted += removed;
      left = removed > 0;
    }
    if (deleted > 0) return Result.ok(deleted);
    const none = noChain(client, id, "delete");
    return Result.err(await runSteps(client.runtime.engine, undefined, none));
  });
}

/** Other jobs wait for the chain, and would never be told how it ended. */
async function awaitedBy(
  { runtime }: Client,
  id: string,
  rows: readonly JobRow[],
): Promise<CommandRefused | null> {
  const own = new Set(rows.map((row) => row.id));
  const waiting = await runtime.engine.query("dependents", { ids: [...own.add(id)] });
  const others = waiting.filter((waitingId) => !own.has(waitingId));
  if (others.length === 0) return null;
  const message = `Job ${others[0]} waits for chain ${id}; cancel it first, or delete the chain with force.`;
  return new CommandRefused({ id, command: "delete", state: rows[0]?.state ?? null, message });
}

/** The oldest jobs of a chain, newest first, of which the newest are known. */
async function oldestOfChain(
  client: Client,
  id: string,
  { entries, count }: Page<JobRow>,
): Promise<readonly JobRow[]> {
  if (count <= entries.length) return entries;
  const ask = { ...jobsAsk(client, id), offset: count - entries.length };
  return (await client.runtime.engine.query("jobs", ask)).entries;
}

/** Removes jobs of a chain, the current one last. Gives how many, or why one of them cannot be removed. */
async function removeJobs(
  { runtime }: Client,
  rows: readonly JobRow[],
  current: JobRow | undefined,
  { reason, force }: Required<DeleteChainOptions>,
): Promise<number | CommandRefused | StoreError> {
  if (current?.state === "active" && !force) return refusedToRemove(current.id, current.state);
  const origin = () => ({ eventId: runtime.ids.eventId(), actor: actorOf(runtime) }) as const;
  // A job that waits is removed with its chain; one that runs only by force.
  const remove = (job: Job): Command => {
    const mayRemove = force || job.state !== "active";
    return { command: "delete", reason, force: mayRemove, ...origin() };
  };
  const ids = rows.map((row) => row.id);
  const last = ids.filter((id) => id === current?.id);
  const [oldest, ...others] = ids.filter((id) => id !== current?.id).reverse();
  let removed = 0;
  for (const together of [oldest === undefined ? [] : [oldest], others, last]) {
    for (const [index, outcome] of (await commandMany(runtime, together, remove)).entries()) {
      if (outcome.ok) removed++;
      else if ("fault" in outcome || outcome.rejection.reason !== "not_found")
        return notRemoved(runtime.engine, together[index] ?? "", outcome);
    }
  }
  return removed;
}

function notRemoved(
  { url }: Engine,
  id: string,
  outcome: Extract<EachOutcome, { readonly ok: false }>,
): CommandRefused | StoreError {
  if ("fault" in outcome) return outcome.fault;
  const { job, rejection } = outcome;
  if (job === null) return new StoreBusy({ url, message: rejection.message });
  return refusedToRemove(id, job.state);
}

function refusedToRemove(id: string, state: JobState): CommandRefused {
  const message = `Job ${id} of the chain is ${state}; cancel it first, or delete the chain with force.`;
  return new CommandRefused({ id, command: "delete", state, message });
}

/** The jobs of a chain of the service, newest first; an operator, who is of no service, sees those of all. */
function jobsOfChain(client: Client, chainId: string): Promise<Page<JobRow>> {
  return client.runtime.engine.query("jobs", jobsAsk(client, chainId));
}

function jobsAsk({ runtime: { service } }: Client, chainId: string): Queries["jobs"]["ask"] {
  const filter = service === "" ? { chainId } : { chainId, service };
  return { filter, limit: pageMax };
}

/** Whether a job is of the caller's service. */
function isOf({ runtime: { service } }: Client, job: Job): boolean {
  return service === "" || job.service === service;
}

function currentRow(newestFirst: readonly JobRow[]): JobRow | undefined {
  return newestFirst.find(({ state }) => !isEnded(state)) ?? newestFirst[0];
}
