/**
 * What a handler gives as the result of its job: checked against the type's schema, and as the JSON that is stored.
 */

import { cut } from "../client/job-error.js";
import { issuesSentence, type Validation, validate } from "../contract/schema.js";
import type { JobError } from "../core/job.js";
import { jsonText } from "../core/json.js";
import type { Outcome } from "./conclude.js";
import type { Hold } from "./hold.js";

/** The outcome of a returned value: the result to store, or that there can be none. */
export function resultOutcome(hold: Hold, returned: unknown): Outcome | Promise<Outcome> {
  const { definition } = hold.lane.bound;
  if (definition.result === undefined) return asResult(returned);
  const checked = validate(definition.result, returned);
  return checked instanceof Promise ? checked.then(checkedOutcome) : checkedOutcome(checked);
}

function checkedOutcome(checked: Validation): Outcome {
  return checked.ok ? asResult(checked.value) : notValid("result", checked);
}

/** A result is stored as the JSON that it is, so that later readers see what the store sees. */
function asResult(value: unknown): Outcome {
  if (value === undefined) return { kind: "returned" };
  const json = jsonText(value);
  if (json.ok) return { kind: "returned", result: JSON.parse(json.text) };
  const { path, message } = json.problem;
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
