/**
 * Storing the completion of a job inside a transaction of its handler: what the handler has written there,
 * the outcome and the continuation commit together or not at all.
 */
import { wrongBlockers } from "../client/blocker-types.js";
import { invalidBlocker } from "../client/blockers.js";
import type { PreparedCreate } from "../client/prepare.js";
import type { Runtime } from "../client/runtime.js";
import {
  loadOne,
  runSteps,
  runStepsSync,
  type StoreStep,
  settleOne,
} from "../client/store-steps.js";
import { decide } from "../core/decide.js";
import type { JobEvent } from "../core/event.js";
import type { Job } from "../core/job.js";
import type { CallerTransaction } from "../engine/transaction.js";
import { discard, removalOf } from "./discard.js";
import type { Hold } from "./hold.js";
import { refusedContinuation } from "./lasting-fault.js";
import { changeOf, decisionsMax, type MakeCommand } from "./settlements.js";

/** An outcome that is stored together with what follows from it. */
export interface OutcomeInside {
  readonly make: MakeCommand;
  readonly follow: Parameters<typeof changeOf>[0]["follow"];
  readonly continuation: PreparedCreate | undefined;
}

/** What the transaction has stored; it counts once the transaction has committed. */
export interface StoredInside {
  readonly job: Job;
  readonly event: JobEvent;
}

/** Stores an outcome in a transaction. `null` when the job is no longer the worker's, and all must be rolled back. */
export function settleInside(
  hold: Hold,
  outcome: OutcomeInside,
  runtime: Runtime,
  tx: CallerTransaction,
): StoredInside | null | Promise<StoredInside | null> {
  const steps = settleSteps(hold, outcome, runtime);
  const { engine } = runtime;
  return tx.kind === "sync" ? runStepsSync(engine.within(tx), steps) : runSteps(engine, tx, steps);
}

/** A job of a type that keeps nothing goes right after the transaction that ended it. */
export function afterCommit(hold: Hold, { job, event }: StoredInside, runtime: Runtime): void {
  const removal = removalOf({ hold, job }, event, runtime);
  if (removal) void discard([removal], runtime);
}

/** Throws `InvalidBlocker` where the continuation of a job names a blocker of the wrong type. */
export function* checkBlockers(
  hold: Hold,
  continuation: PreparedCreate | undefined,
): StoreStep<void> {
  if (continuation?.blockerTypes === undefined) return;
  const [wrong] = yield* wrongBlockers([continuation]);
  if (wrong) throw refusedContinuation(hold, wrong);
}

/** Decides and stores; begins again where the job was changed meanwhile but is still the worker's. */
function* settleSteps(
  hold: Hold,
  { make, follow, continuation }: OutcomeInside,
  { engine }: Runtime,
): StoreStep<StoredInside | null> {
  yield* checkBlockers(hold, continuation);
  let { job } = hold;
  for (let decisions = 0; decisions < decisionsMax; decisions++) {
    const decision = decide(job, make(), engine.now());
    if (!decision.ok) return null;
    const { event } = decision;
    const answer = yield* settleOne(changeOf({ hold, job, follow }, event));
    if (answer.outcome === "appended") return { job, event };
    if (answer.outcome === "faulted") throw answer.error;
    if (answer.outcome === "bad_blocker")
      throw refusedContinuation(hold, invalidBlocker(job.id, answer.blockerId, answer.reason));
    const loaded = yield* loadOne(job.id);
    if (!loaded) return null;
    job = loaded.job;
  }
  throw new Error(`Job ${job.id} kept changing while its completion was decided.`);
}
