/**
 * The options of a create, and the checks that refuse one that cannot be used.
 */
import { maxTriesLimit } from "../contract/validate.js";
import type { JobContext } from "../core/job.js";
import { nameProblem } from "../core/names.js";
import { priorityMax, priorityMin } from "../core/order.js";
import { delayMaxMs } from "../core/retry.js";
import { InvalidOption } from "./errors.js";

/** Makes a create repeatable: within the window, the same key gives the same job. */
export interface IdempotencyOptions {
  readonly key: string;
  /** `"any"` (the default) gives the existing job however it ended; `"unfinished"` lets a new one in once it has ended. */
  readonly scope?: "any" | "unfinished";
  /** How long the key is remembered; 24 hours by default. */
  readonly windowMs?: number;
}

/** Every option of a create. */
export interface CreateOptions {
  /** The job's id: letters, digits, `-` and `_`, at most 64; a fresh ULID by default. */
  readonly id?: string;
  /** Higher goes first; the type's own by default. */
  readonly priority?: number;
  /** Run no earlier than after this delay. Not together with `runAt`. */
  readonly delayMs?: number;
  /** Run no earlier than at this time. Not together with `delayMs`. */
  readonly runAt?: Date | number;
  /** When the job expires, in place of the type's `deadlineMs`. */
  readonly deadline?: Date | number;
  /** How often the job is tried, in place of the type's own number. */
  readonly maxTries?: number;
  /** A key of the caller's that makes the create repeatable; known per service, type and version. */
  readonly idempotencyKey?: string | IdempotencyOptions;
  /** At most 20 words to find the job by. */
  readonly tags?: readonly string[];
  /** The request and trace that the job belongs to; the active OpenTelemetry span's by default. */
  readonly context?: Partial<JobContext>;
}

/** How many tags a job may have. */
const tagsMax = 20;

/** How long an idempotency key is remembered unless the create says otherwise. */
export const idempotencyWindowMs = 24 * 60 * 60 * 1_000;

const idempotencyKeyLengthMax = 255;
const requestIdLengthMax = 128;
const tracestateLengthMax = 512;

/** Options that later versions will know. */
const laterOptions: ReadonlySet<string> = new Set(["tx", "blockers", "loadDependencies", "target"]);

type Checks = {
  readonly [Name in keyof CreateOptions]-?: (value: CreateOptions[Name] & {}) => string | null;
};

const checks: Checks = {
  id: (id) => nameProblem("id", id),
  priority: whole(priorityMin, priorityMax),
  delayMs: (delayMs) => rangeProblem(delayMs, 0, delayMaxMs),
  runAt: timeProblem,
  deadline: timeProblem,
  maxTries: whole(1, maxTriesLimit),
  idempotencyKey: idempotencyProblem,
  tags: tagsProblem,
  context: contextProblem,
};

/** What is wrong with the options of a create, or `null` when nothing is. */
export function optionProblem(options: CreateOptions): InvalidOption | null {
  for (const field in options) {
    const value = options[field as keyof CreateOptions];
    if (value === undefined) continue;
    if (!Object.hasOwn(checks, field)) return unknownOption(field);
    const problem = (checks[field as keyof CreateOptions] as (value: unknown) => string | null)(
      value,
    );
    if (problem !== null) return new InvalidOption({ field, message: `${field}: ${problem}` });
  }
  if (options.delayMs !== undefined && options.runAt !== undefined) {
    return new InvalidOption({
      field: "runAt",
      message: "runAt and delayMs exclude each other; give one of them.",
    });
  }
  return null;
}

/** A time of the caller's in milliseconds. */
export function timeMs(time: Date | number): number {
  return typeof time === "number" ? time : time.getTime();
}

function unknownOption(field: string): InvalidOption {
  const message = laterOptions.has(field)
    ? `${field} is not supported by this version of Millrace.`
    : `${field} is not an option of a create; use one of ${Object.keys(checks).join(", ")}.`;
  return new InvalidOption({ field, message });
}

function whole(least: number, most: number): (value: number) => string | null {
  return (value) =>
    Number.isInteger(value) ? rangeProblem(value, least, most) : "It must be a whole number.";
}

/** What is wrong with a number that has its bounds, as a sentence, or `null` when nothing is. */
export function rangeProblem(value: number, least: number, most: number): string | null {
  const good = typeof value === "number" && value >= least && value <= most;
  return good ? null : `${String(value)} is not a number from ${least} to ${most}.`;
}

function timeProblem(time: Date | number): string | null {
  const good =
    typeof time === "number"
      ? Number.isFinite(time)
      : time instanceof Date && !Number.isNaN(time.getTime());
  return good ? null : "It must be a valid Date or milliseconds since 1970.";
}

function tagsProblem(tags: readonly string[]): string | null {
  if (!Array.isArray(tags)) return "It must be a list of words.";
  if (tags.length > tagsMax)
    return `There are ${tags.length} tags; at most ${tagsMax} are allowed.`;
  for (const tag of tags) {
    const problem = nameProblem("tag", tag);
    if (problem !== null) return problem;
  }
  return null;
}

function idempotencyProblem(value: string | IdempotencyOptions): string | null {
  const {
    key,
    scope = "any",
    windowMs = idempotencyWindowMs,
  } = typeof value === "string" ? { key: value } : value;
  if (typeof key !== "string" || key.length === 0 || key.length > idempotencyKeyLengthMax) {
    return `The key must be 1 to ${idempotencyKeyLengthMax} characters.`;
  }
  if (scope !== "any" && scope !== "unfinished") return `scope must be "any" or "unfinished".`;
  const problem = rangeProblem(windowMs, 1, delayMaxMs);
  return problem === null ? null : `windowMs ${problem}`;
}

function contextProblem({
  requestId,
  traceparent,
  tracestate,
}: Partial<JobContext>): string | null {
  const requestIdFits =
    typeof requestId === "string" && requestId !== "" && requestId.length <= requestIdLengthMax;
  if (requestId !== undefined && !requestIdFits)
    return `requestId must be 1 to ${requestIdLengthMax} characters.`;
  if (tracestate !== undefined && traceparent === undefined)
    return "tracestate needs a traceparent.";
  const tooLong = tracestate !== undefined && tracestate.length > tracestateLengthMax;
  return tooLong ? `tracestate is longer than ${tracestateLengthMax} characters.` : null;
}
