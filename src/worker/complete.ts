/**
 * `complete`: a handler completes its job itself, with a result or with a continuation.
 *
 *   run the callback → make its outcome → wait for the notes → settle, with what follows
 *
 * The seam for transactions: whoever hands a transaction to the callback takes the change that
 * `completionOf` gives and settles it on that same transaction, in place of `settled`.
 */
import type { Client } from "../client/client.js";
import { Continuation, continueWith, prepareContinuation } from "../client/continuation.js";
import { JobAlreadyCompleted } from "../client/errors.js";
import { createChange } from "../client/submit.js";
import { isEnded } from "../core/job.js";
import type { Change } from "../engine/engine.js";
import { type AbortReason, jobAborted } from "./abort.js";
import { conclude, type Outcome } from "./conclude.js";
import type { Hold } from "./hold.js";
import { ignorable, type Notes } from "./notes.js";
import { Completed, isHandlerOutcome } from "./outcome.js";
import { InvalidResult, resultOutcome } from "./result.js";
import type { Fate, Settlements } from "./settlements.js";

/** What `complete` works with. */
export interface CompleteParts {
  readonly client: Client;
  readonly notes: Notes;
  readonly settlements: Settlements;
}

/** What the callback of `complete` is given. */
interface CompleteStep {
  readonly continueWith: typeof continueWith;
}

/** The completion of a job: its outcome, and the create of its continuation. */
interface Completion {
  readonly outcome: Extract<Outcome, { kind: "returned" }>;
  readonly follow?: readonly Change[];
}

/** Completes the job with what the callback gives. Once it resolves, the outcome is stored. */
export function complete(
  hold: Hold,
  parts: CompleteParts,
  callback: (step: CompleteStep) => unknown,
): Promise<Completed> {
  const problem = cannotComplete(hold);
  if (problem !== null) return ignorable(Promise.reject(problem));
  hold.isCompleting = true;
  const completion = steps(hold, parts, callback).finally(() => {
    hold.isCompleting = false;
  });
  hold.completion = completion;
  return ignorable(completion);
}

/** A try that took too long has failed and a job whose deadline has come has expired, whatever comes afterwards. */
function cannotComplete(hold: Hold): Error | null {
  if (hold.isCompleting || hold.phase !== "running") {
    return new Error(
      `Job ${hold.job.id}: complete may be called once, before the handler returns.`,
    );
  }
  const { aborted } = hold;
  return aborted?.reason === "timeout" || aborted?.reason === "expired" ? aborted : null;
}

async function steps(
  hold: Hold,
  parts: CompleteParts,
  callback: (step: CompleteStep) => unknown,
): Promise<Completed> {
  const given = await callback({ continueWith });
  const completion = await completionOf(hold, parts.client, given);
  if (hold.notesUnderWay > 0) await parts.notes.quiet(hold);
  await settled(hold, parts, completion);
  return new Completed(hold.job.id, completion.outcome.continuation?.jobId);
}

/** What the callback's value means. A value that cannot be used is thrown, and nothing has been stored then. */
export async function completionOf(
  hold: Hold,
  client: Client,
  given: unknown,
): Promise<Completion> {
  if (isHandlerOutcome(given)) throw given;
  if (!(given instanceof Continuation)) {
    const outcome = await resultOutcome(hold, given);
    if (outcome.kind === "returned") return { outcome };
    if (outcome.kind === "terminated") throw new InvalidResult({ message: outcome.error.message });
    throw new Error(`A result became ${outcome.kind}.`);
  }
  const create = await prepareContinuation(client, hold.job, given);
  if (create instanceof Error) throw create;
  const continuation = { jobId: create.event.jobId, type: create.event.type };
  return { outcome: { kind: "returned", continuation }, follow: [createChange(create)] };
}

async function settled(hold: Hold, parts: CompleteParts, completion: Completion): Promise<void> {
  const { outcome, follow } = completion;
  hold.phase = "settling";
  const make = conclude(hold, outcome, parts.client.runtime);
  const fate = await parts.settlements.settle(hold, make, follow);
  if (fate.fate !== "stored") throw refusal(hold, fate);
}

/** Why the outcome did not count, in the words of the signal where it has some. */
function refusal({ job: { id } }: Hold, fate: Exclude<Fate, { fate: "stored" }>): Error {
  const aborted = (reason: AbortReason) => jobAborted(id, reason);
  if (fate.fate === "dropped") return aborted("error");
  if (fate.job === null) return aborted("not_found");
  const { state } = fate.job;
  if (!isEnded(state)) return aborted("taken_by_another_worker");
  const message = `Job ${id} was ended as ${state} by somebody else; what this handler gave does not count.`;
  return new JobAlreadyCompleted({ id, state, message });
}
