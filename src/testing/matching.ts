/**
 * Finding jobs by what a test says of them: every part that it names must fit, the rest may be anything.
 */
import type { JobSnapshot } from "../client/job-ref.js";

/** A value of which any part may be left out. Lists are compared whole, entry by entry. */
export type Partly<Value> = Value extends readonly (infer Entry)[]
  ? readonly Partly<Entry>[]
  : Value extends object
    ? { readonly [Name in keyof Value]?: Partly<Value[Name]> | undefined }
    : Value;

/** What a test says of a job: some of its parts, or a function that knows. */
export type JobMatch<Payload, Value> =
  | Partly<JobSnapshot<Payload, Value>>
  | ((job: JobSnapshot<Payload, Value>) => boolean);

/** Whether a job is as a test says. */
export function matches<Payload, Value>(
  job: JobSnapshot<Payload, Value>,
  match: JobMatch<Payload, Value>,
): boolean {
  return typeof match === "function" ? match(job) : fits(job, match);
}

/** Whether every part that is named has that value. A part that is named `undefined` must be absent. */
function fits(actual: unknown, expected: unknown): boolean {
  if (typeof expected !== "object" || expected === null) return Object.is(actual, expected);
  if (typeof actual !== "object" || actual === null) return false;
  if (Array.isArray(expected)) {
    const sameLength = Array.isArray(actual) && actual.length === expected.length;
    return sameLength && expected.every((entry, index) => fits(actual[index], entry));
  }
  return Object.entries(expected).every(([name, value]) => {
    return fits((actual as Readonly<Record<string, unknown>>)[name], value);
  });
}
