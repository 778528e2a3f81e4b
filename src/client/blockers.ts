/**
 * The blockers of a create: the jobs and chains that must end before the new job may run.
 */
import { circleWalkMax } from "../core/circle.js";
import type { Blocker, Job } from "../core/job.js";
import { nameProblem } from "../core/names.js";
import { ChainRef } from "./chain-ref.js";
import { InvalidBlocker, InvalidOption } from "./errors.js";
import { fieldsProblem, idOf, isObject, kindOf } from "./option-checks.js";

/** How many jobs and chains one job may wait for. */
const blockersMax = 1_000;

/** Names a job or a chain. A ref that knows what its job gives fits only where that is wanted. */
type Named = { readonly id: string } | string;

/** What a job waits for: a job by its ref or id, a chain by its ref, or either with what a bad end of it means. */
export type BlockerInput<Job extends Named = Named, Chain extends Named = Named> =
  | Job
  | Chain
  | string
  | { readonly job: Job | string; readonly onBadEnd?: Blocker["onBadEnd"] }
  | { readonly chain: Chain | string; readonly onBadEnd?: Blocker["onBadEnd"] };

/** The blockers of a create: a list, or by the names that the job's definition gives them. */
export type BlockerInputs = readonly BlockerInput[] | { readonly [name: string]: BlockerInput };

/** What is wrong with the blockers of a create, as a sentence, or `null` when nothing is. */
export function blockersProblem(value: unknown): string | null {
  if (!Array.isArray(value) && !isObject(value)) return `It must be a list, not ${kindOf(value)}.`;
  const inputs = Object.values(value);
  if (inputs.length > blockersMax)
    return `There are ${inputs.length} blockers; at most ${blockersMax} are allowed.`;
  for (const input of inputs) {
    const problem = inputProblem(input);
    if (problem !== null) return problem;
  }
  return null;
}

function inputProblem(input: unknown): string | null {
  const blocker = blockerOf(input);
  if (blocker === null)
    return `A blocker is a ref, an id, { job, onBadEnd } or { chain, onBadEnd }, not ${kindOf(input)}.`;
  const strange = isObject(input) ? partsProblem(input) : null;
  if (strange !== null) return strange;
  const { jobId, onBadEnd } = blocker;
  if (onBadEnd !== "unreachable" && onBadEnd !== "continue")
    return `onBadEnd must be "unreachable" or "continue".`;
  return nameProblem("id", jobId);
}

/** A ref has whatever fields it has; a job or a chain that is named together with its `onBadEnd` has no others. */
function partsProblem(input: { readonly [name: string]: unknown }): string | null {
  if (input.chain !== undefined) return fieldsProblem(input, "chain", "onBadEnd");
  return input.job === undefined ? null : fieldsProblem(input, "job", "onBadEnd");
}

/** A blocker as it is stored, from any of the ways to name one; `null` where it is none of them. */
function blockerOf(input: unknown): Blocker | null {
  if (typeof input === "string") return { jobId: input, onBadEnd: "unreachable" };
  if (!isObject(input)) return null;
  const onBadEnd = (input.onBadEnd ?? "unreachable") as Blocker["onBadEnd"];
  if (input.chain !== undefined) {
    const jobId = idOf(input.chain);
    return jobId === null ? null : { jobId, onBadEnd, chain: true };
  }
  const jobId = idOf(input.job ?? input);
  if (jobId === null) return null;
  return input instanceof ChainRef || input.job instanceof ChainRef
    ? { jobId, onBadEnd, chain: true }
    : { jobId, onBadEnd };
}

/** The blockers of a new job, in order; those that its definition names are named. */
export function blockersOf(
  inputs: BlockerInputs | undefined,
  type: string,
  declared: BlockerTypes,
): readonly Blocker[] | InvalidOption {
  const names = Object.keys(declared);
  if (names.length === 0) {
    if (Array.isArray(inputs ?? [])) return Object.values(inputs ?? []).map(storedBlocker);
    return wrongBlockers(
      `blockers: the definition of ${type} names none; give a list, without names.`,
    );
  }
  const given: { readonly [name: string]: BlockerInput } =
    inputs === undefined || Array.isArray(inputs) ? {} : (inputs as never);
  const missing = names.find((name) => given[name] === undefined);
  if (missing !== undefined)
    return wrongBlockers(
      `blockers: ${type} waits for ${names.join(", ")}; give ${missing} by its name, too.`,
    );
  const unknown = Object.keys(given).find((name) => !Object.hasOwn(declared, name));
  if (unknown !== undefined)
    return wrongBlockers(`blockers: ${type} waits for ${names.join(", ")}, not for ${unknown}.`);
  return names.map((name) => ({ ...storedBlocker(given[name]), name }));
}

function storedBlocker(input: unknown): Blocker {
  const blocker = blockerOf(input);
  if (blocker === null) throw new Error("A blocker was not checked.");
  return blocker;
}

function wrongBlockers(message: string): InvalidOption {
  return new InvalidOption({ field: "blockers", message });
}

/** The blocker through which a job would wait for itself; `null` when it does not. */
export function ownBlocker(
  blockers: readonly Blocker[],
  job: { readonly id: string; readonly chainId?: string },
): InvalidBlocker | null {
  const own = blockers.find(
    ({ jobId, chain }) => jobId === job.id || (chain === true && jobId === job.chainId),
  );
  return own === undefined ? null : invalidBlocker(job.id, own.jobId, "cycle");
}

/** The types that a definition says of its blockers, by their names. */
export type BlockerTypes = { readonly [name: string]: string };

/** What tells whether a job is what a definition names: its type, of one service. */
export type BlockerKind = Pick<Job, "service" | "type">;

/** What is wrong with the type of a named blocker of a service's job, as a clause; `null` where nothing is. */
export function blockerTypeProblem(
  name: string,
  found: BlockerKind,
  service: string,
  declared: BlockerTypes,
): string | null {
  const type = declared[name];
  // Another service may have a type of the same name, whose jobs give something else.
  if (found.service !== service)
    return `the blocker ${name} is a job of the service ${found.service}, and the contract names ${type} of ${service}`;
  if (found.type === type) return null;
  return `the blocker ${name} is a job of the type ${found.type}, and the contract names ${type}`;
}

type ReasonOfStore = Exclude<InvalidBlocker["reason"], "type">;

const problems: Readonly<Record<ReasonOfStore, string>> = {
  missing: ": there is no such job or chain; create it first.",
  cycle: ", which waits for this job or its chain; neither would ever run.",
  too_many: `: its blockers and what they wait for are more than ${circleWalkMax} jobs and chains, too many to tell whether one waits for its own chain; let it wait for fewer.`,
};

/** The error of a blocker that cannot be waited for. */
export function invalidBlocker(
  id: string,
  blockerId: string,
  reason: ReasonOfStore,
): InvalidBlocker {
  const message = `Job ${id} cannot wait for ${blockerId}${problems[reason]}`;
  return new InvalidBlocker({ id, blockerId, reason, message });
}
