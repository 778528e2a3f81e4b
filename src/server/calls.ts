/**
 * The ten admin calls: what each takes and gives, and what is wrong with an input.
 */
import {
  isObject,
  kindOf,
  type OptionCheck,
  type OptionChecks,
  optionsProblem,
  stringProblem,
} from "../client/option-checks.js";
import { filterChecks, pageChecks } from "../client/reads.js";
import type { JobState } from "../core/job.js";
import { nameProblem } from "../core/names.js";
import type { JobFilter } from "../engine/query.js";
import { ValidationError } from "./errors.js";
import { timeOf } from "./time-text.js";
import type { HealthWire, JobWire, KeyWire, PageWire, ServiceWire } from "./wire.js";

/** Which part of a list is asked for. */
export interface PageInput {
  /** At most 100. */
  readonly limit: number;
  readonly offset?: number;
}

/** Narrows a list of dead jobs. Times are RFC 3339 text. */
export interface DeadFilterInput extends Omit<JobFilter, "since" | "until" | "state"> {
  readonly since?: string;
  readonly until?: string;
}

/** Narrows a list of jobs. */
export interface FilterInput extends DeadFilterInput {
  readonly state?: readonly JobState[];
}

/** Names a job. */
export interface IdInput {
  readonly id: string;
}

/** Names a key. */
export interface KeyInput {
  readonly service: string;
  readonly type: string;
  readonly key: string;
}

/** One job as the answer of a call. */
export interface OneJob {
  readonly job: JobWire;
}

/** Each call with its input and its output. */
export interface JobsCalls {
  Health: { readonly input: object; readonly output: HealthWire };
  ListServices: { readonly input: PageInput; readonly output: PageWire<ServiceWire> };
  List: { readonly input: FilterInput & PageInput; readonly output: PageWire<JobWire> };
  Get: { readonly input: IdInput; readonly output: OneJob };
  GetKey: { readonly input: KeyInput; readonly output: KeyWire };
  Retry: { readonly input: IdInput; readonly output: OneJob };
  Cancel: { readonly input: IdInput; readonly output: OneJob };
  ListDLQ: { readonly input: DeadFilterInput & PageInput; readonly output: PageWire<JobWire> };
  ReplayDLQ: { readonly input: IdInput; readonly output: OneJob };
  DismissDLQ: { readonly input: IdInput; readonly output: OneJob };
}

/** The name of a call. */
export type JobsCallName = keyof JobsCalls;

/** What an input must hold, and what it may. */
interface InputRule {
  readonly needs: readonly string[];
  readonly checks: OptionChecks;
}

const { state: _, ...checksWithoutState } = filterChecks;
const deadChecks = { ...checksWithoutState, since: timeTextProblem, until: timeTextProblem };
const named: OptionCheck = (value) =>
  stringProblem(value) ?? (value === "" ? "It must not be empty." : null);
const idProblem: OptionCheck = (value) => stringProblem(value) ?? nameProblem("id", value);
const oneJob: InputRule = { needs: ["id"], checks: { id: idProblem } };

const rules: { readonly [Name in JobsCallName]: InputRule } = {
  Health: { needs: [], checks: {} },
  ListServices: { needs: ["limit"], checks: pageChecks },
  List: { needs: ["limit"], checks: { ...deadChecks, ...pageChecks, state: filterChecks.state } },
  Get: oneJob,
  GetKey: {
    needs: ["service", "type", "key"],
    checks: { service: named, type: named, key: named },
  },
  Retry: oneJob,
  Cancel: oneJob,
  ListDLQ: { needs: ["limit"], checks: { ...deadChecks, ...pageChecks } },
  ReplayDLQ: oneJob,
  DismissDLQ: oneJob,
};

/** The names of all calls. */
export const jobsCallNames = Object.keys(rules) as readonly JobsCallName[];

/** Throws `ValidationError` for an input that the call cannot use. */
export function checkInput<Name extends JobsCallName>(
  name: Name,
  input: unknown,
): asserts input is JobsCalls[Name]["input"] {
  const call = `Jobs.${name}`;
  const { needs, checks } = rules[name];
  if (!isObject(input)) {
    const message = `The input of ${call} must be an object, not ${kindOf(input)}.`;
    throw new ValidationError({ field: "input", message });
  }
  const problem = optionsProblem(call, input, checks);
  if (problem) throw new ValidationError({ field: problem.field, message: problem.message });
  for (const field of needs)
    if (input[field] === undefined)
      throw new ValidationError({ field, message: `${call} needs ${field}.` });
}

/** Takes times as RFC 3339 has them. */
function timeTextProblem(value: unknown): string | null {
  const good = typeof value === "string" && timeOf(value) !== null;
  return good ? null : `It must be a time such as 2030-01-31T12:00:00Z (RFC 3339).`;
}
