/**
 * What a handler gives as the result of its job: checked against the type's schema, and as the JSON that is stored.
 */
import { endProblem } from "../client/continuation.js";
import { cut } from "../client/job-error.js";
import type { Runtime } from "../client/runtime.js";
import { issuesSentence, type Validation, validate } from "../contract/schema.js";
import type { JobError } from "../core/job.js";
import { type Json, jsonText } from "../core/json.js";
import { isSealed, sealedProblem } from "../core/secrets.js";
import type { Outcome } from "./conclude.js";
import type { Hold } from "./hold.js";

/** The outcome of a returned value: the result to store, or that there can be none. */
export function resultOutcome(
  hold: Hold,
  returned: unknown,
  runtime: Runtime,
): Outcome | Promise<Outcome> {
  const { definition } = hold.lane.bound;
  const problem = endProblem(definition);
  if (problem !== null) return terminated("result", `The result is not valid: ${problem}.`);
  if (definition.result === undefined) return asResult(hold, returned, runtime);
  const outcomeOf = (checked: Validation) =>
    checked.ok ? asResult(hold, checked.value, runtime) : notValid("result", checked);
  const checked = validate(definition.result, returned);
  return checked instanceof Promise ? checked.then(outcomeOf) : outcomeOf(checked);
}

/** A result is stored as the JSON that it is, so that later readers see what the store sees. */
function asResult({ job }: Hold, value: unknown, { vault }: Runtime): Outcome {
  if (value === undefined) return { kind: "returned" };
  const json = jsonText(value);
  if (json.ok) {
    const result = JSON.parse(json.text) as Json;
    if (isSealed(result)) return unfit(sealedProblem);
    return { kind: "returned", result: vault ? vault.seal(result, job, "result") : result };
  }
  return unfit(json.problem);
}

function unfit({ path, message }: { readonly path: string; readonly message: string }): Outcome {
  return terminated("result", `The result cannot be stored: ${path || "it"} ${message}.`);
}

/** The outcome of a payload or a result that does not fit its schema. */
export function notValid(
  what: "payload" | "result",
  { issues }: Extract<Validation, { ok: false }>,
): Outcome {
  return terminated(what, `The ${what} is not valid: ${issuesSentence(issues)}`);
}

/** The outcome of a try after which another cannot help. */
export function terminated(
  reason: JobError["reason"],
  message: string,
  code?: string,
): Extract<Outcome, { kind: "terminated" }> {
  const error = { message: cut(message), reason };
  return { kind: "terminated", error: code === undefined ? error : { ...error, code } };
}
