/**
 * Handlers outside the worker's own process: a module or a program, and the parts of them that stay in the worker
 * because they need its transactions.
 */
import { platform } from "node:os";
import { endProblem } from "../../client/continuation.js";
import type { BoundJob } from "../../contract/definition.js";
import type { Json } from "../../core/json.js";
import type { ActiveJob, CompleteStep, PrepareMode } from "../active-job.js";
import type { Handler } from "../lane.js";
import { isHandlerOutcome } from "../outcome.js";

/** The job as `prepare` and `complete` see it in the worker. */
export type OutsideJob<Payload> = Pick<
  ActiveJob<Payload>,
  "id" | "type" | "payload" | "context" | "tries" | "log"
>;

/** What a handler outside has in the worker: a step before the process gets the job, and one after it has returned. */
export interface OutsideSteps<Payload, Value, Completion, ContinueWith, Tx> {
  /** How `prepare` and `complete` use transactions; `"staged"` by default. */
  readonly mode?: PrepareMode;
  /** Runs in the worker before the process gets the job, which finds what it gives as `job.prepared`. */
  readonly prepare?: (step: {
    readonly tx: Tx;
    readonly job: OutsideJob<Payload>;
  }) => Json | Promise<Json>;
  /**
   * Runs in the worker with what the process gave, and completes the job with what it gives itself, in one transaction
   * with what it writes. A type that always continues needs it.
   */
  readonly complete?: (
    step: CompleteStep<ContinueWith, Tx> & {
      readonly value: Value;
      readonly job: OutsideJob<Payload>;
    },
  ) => Completion | Promise<Completion>;
}

/** A handler that is the default export of a module. */
export interface ModuleParts {
  /** The module, such as `new URL("./transcode.js", import.meta.url)`. */
  readonly module: URL;
  /** How many processes are kept ready for jobs of the type; as many as the machine has processors by default. */
  readonly warm?: number;
}

/** A handler that is a program. */
export interface ProgramParts<Payload> {
  /**
   * The program and its arguments, or a function that gives them. The payload comes as JSON on its stdin, or, where an
   * argument holds `{payload}`, in a file of which that is the path.
   */
  readonly exec:
    | readonly string[]
    | ((
        payload: Payload,
        prepared: Json | undefined,
      ) => readonly string[] | Promise<readonly string[]>);
  /** What stdout holds: the result as JSON, which is the default, or as text. Without any output there is no result. */
  readonly output?: "json" | "text";
  /** The exit codes after which retrying cannot help; every other one but 0 is tried again. */
  readonly terminateCodes?: readonly number[];
}

type AnySteps = OutsideSteps<
  unknown,
  unknown,
  unknown,
  Parameters<Parameters<ActiveJob<unknown>["complete"]>[0]>[0]["continueWith"],
  unknown
>;

/** A handler outside, whatever its type. */
export type OutsideHandler = AnySteps & (ModuleParts | ProgramParts<unknown>);

/** Runs a job outside. */
export type RunOutside = (job: ActiveJob<unknown>, prepared: Json | undefined) => Promise<unknown>;

/** The handler that the worker calls: prepare, run outside, complete. */
export function handlerOf(
  { mode = "staged", prepare, complete }: AnySteps,
  run: RunOutside,
): Handler {
  return async (job) => {
    const prepared =
      prepare === undefined
        ? undefined
        : await job.prepare({ mode }, ({ tx }) => prepare({ tx, job }));
    const value = await run(job, prepared);
    if (complete === undefined || isHandlerOutcome(value)) return value;
    return job.complete((step) => complete({ ...step, value, job }));
  };
}

const memberChecks: { readonly [name: string]: (value: unknown) => string | null } = {
  module: (value) =>
    value instanceof URL && value.protocol === "file:"
      ? null
      : 'must be a file, such as new URL("./transcode.js", import.meta.url)',
  warm: (value) => (isCount(value) ? null : "must be a whole number of 0 or more"),
  exec: (value) =>
    typeof value === "function" || isCommand(value)
      ? null
      : 'must be a program and its arguments, such as ["ffprobe", "{payload}"], or a function',
  output: (value) => (value === "json" || value === "text" ? null : 'must be "json" or "text"'),
  terminateCodes: (value) =>
    isListOf("number", value) ? null : "must be a list of exit codes, such as [2]",
  mode: (value) =>
    value === "staged" || value === "atomic" ? null : 'must be "staged" or "atomic"',
  prepare: (value) => (typeof value === "function" ? null : "must be a function"),
  complete: (value) => (typeof value === "function" ? null : "must be a function"),
};

const moduleMembers = ["module", "warm", "mode", "prepare", "complete"];
const programMembers = ["exec", "output", "terminateCodes", "mode", "prepare", "complete"];

/** Why a handler cannot run jobs of a type, in words, or `null`. */
export function handlerProblem(
  { type, definition }: BoundJob,
  handler: Handler | OutsideHandler,
): string | null {
  const isIsolated = definition.settings.isolate !== undefined;
  if (typeof handler === "function") {
    if (!isIsolated) return null;
    return `${type} is isolated, so that no function of this process can handle it; give a module, handle({ module: new URL("./${type}.js", import.meta.url) }), or a program, handle({ exec: […] }).`;
  }
  if (typeof handler !== "object" || handler === null)
    return `The handler of ${type} must be a function, or { module } or { exec } where the type is isolated.`;
  const problem = outsideProblem(handler);
  if (problem !== null) return `The handler of ${type} ${problem}.`;
  if (platform() === "win32")
    return `${type} needs process groups, which Windows does not have; run its worker elsewhere.`;
  if (!isIsolated)
    return `The handler of ${type} runs in a process of its own; say so in the definition of ${type}, with isolate: true or limits.`;
  const end = handler.complete === undefined ? endProblem(definition) : null;
  if (end === null) return null;
  // What a process gives is a value, with which these jobs cannot end.
  const [next] = definition.settings.continuations;
  return `${type} needs a handler with complete: ${end}, as in complete: ({ continueWith }) => continueWith("${next}", …).`;
}

function outsideProblem(handler: object): string | null {
  const isModule = "module" in handler;
  if (isModule === "exec" in handler) return "must have either module or exec";
  const members = isModule ? moduleMembers : programMembers;
  for (const [name, value] of Object.entries(handler)) {
    if (!members.includes(name)) return `has ${name}; it may have ${members.join(", ")}`;
    const problem = value === undefined ? null : memberChecks[name]?.(value);
    if (typeof problem === "string") return `has ${name}, which ${problem}`;
  }
  return null;
}

function isCount(value: unknown): boolean {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

/** Whether a value is a program with its arguments. */
export function isCommand(value: unknown): value is readonly string[] {
  return isListOf("string", value) && value.length > 0 && value[0] !== "";
}

function isListOf(kind: "string" | "number", value: unknown): value is readonly unknown[] {
  return Array.isArray(value) && value.every((item) => typeof item === kind);
}
