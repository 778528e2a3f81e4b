/**
 * Which of many creates get as far as the store, and what it answers to each.
 */
import type { Result } from "better-result";
import type { AppendOutcome } from "../engine/engine.js";
import type { PreparedCreate } from "./prepare.js";
import type { SubmitFailure, Submitted } from "./submit.js";

/** Those that get as far as the store. */
export function createsOf(
  prepared: readonly (PreparedCreate | Error)[],
): readonly PreparedCreate[] {
  return prepared.filter((create) => !(create instanceof Error)) as PreparedCreate[];
}

/** What became of the only create. */
export function only(
  submissions: readonly Result<Submitted, SubmitFailure>[],
): Result<Submitted, SubmitFailure> {
  const [submission] = submissions;
  if (submission === undefined) throw new Error("A create inside a transaction had no outcome.");
  return submission;
}

/** The store's answer to one of several creates. */
export function answered(answers: readonly AppendOutcome[], index: number): AppendOutcome {
  const answer = answers[index];
  if (answer === undefined) throw new Error("The store gave no answer to a create.");
  return answer;
}
