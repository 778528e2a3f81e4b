/**
 * The options of a create, and the checks that refuse one that cannot be used.
 */
import { maxTriesLimit } from "../contract/validate.js";
import type { JobContext, JobSignature } from "../core/job.js";
import { isKeepable, nameProblem } from "../core/names.js";
import { priorityMax, priorityMin } from "../core/order.js";
import { delayMaxMs } from "../core/retry.js";
import { type BlockerInput, type BlockerInputs, blockersProblem } from "./blockers.js";
import { InvalidOption } from "./errors.js";
import {
  isObject,
  kindOf,
  type OptionCheck,
  type OptionChecks,
  optionsProblem,
  rangeProblem,
  timeProblem,
  whole,
} from "./option-checks.js";
import { signatureProblem } from "./signing.js";
import type { BetterSqliteClient } from "./transactions/better-sqlite.js";
import type { TransactionClient } from "./transactions/transaction-client.js";

/** Makes a create repeatable: within the window, the same key gives the same job. */
export interface IdempotencyOptions {
  /** 1 to 255 characters, none of them a control character. */
  readonly key: string;
  /**
   * `"any"` (the default) gives the existing job however it ended; `"unfinished"` lets a new one in once it has ended, and
   * what continued it, too.
   */
  readonly scope?: "any" | "unfinished";
  /** How long the key is remembered; 24 hours by default. */
  readonly windowMs?: number;
}

/** Every option of a create. */
export interface CreateOptions<Blockers extends BlockerInputs = readonly BlockerInput[]> {
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
  /**
   * The jobs and chains that must end before this one may run, at most 1,000. One that ends badly makes it
   * `unreachable`, unless its `onBadEnd` says `"continue"`. A type whose definition names blockers takes them by name.
   */
  readonly blockers?: Blockers;
  /** At most 20 words to find the job by. */
  readonly tags?: readonly string[];
  /** The request and trace that the job belongs to; the active OpenTelemetry span's by default. */
  readonly context?: Partial<JobContext>;
  /** The signature of a job that was signed elsewhere; goes with the `id` that it was signed for. */
  readonly signature?: JobSignature;
  /** The caller's own transaction: the job is there when it commits, and never was when it rolls back. */
  readonly tx?: TransactionClient;
}

/** The options of a create that returns its outcome at once, inside a synchronous transaction. */
export interface SyncCreateOptions<Blockers extends BlockerInputs = readonly BlockerInput[]>
  extends Omit<CreateOptions<Blockers>, "tx"> {
  /** A better-sqlite3 connection to the store's file, with a transaction open. */
  readonly tx: BetterSqliteClient;
}

/** Whether a definition names blockers, so that there is no create without them. */
type AreNamed<Blockers> = Blockers extends readonly unknown[]
  ? false
  : string extends keyof Blockers
    ? false
    : true;

/** What the options of a create must hold: the blockers, where the definition names them. */
export type Demanded<Blockers> =
  AreNamed<Blockers> extends true ? { readonly blockers: Blockers } : unknown;

/** Options as the last argument of a call, which may be left out unless the definition names blockers. */
export type OptionsArgument<Options, Blockers> =
  AreNamed<Blockers> extends true
    ? [options: Options & { readonly blockers: Blockers }]
    : [options?: Options | undefined];

/** One job of a `createMany`: its payload and its options. */
export type NewJob<Input, Blockers extends BlockerInputs = readonly BlockerInput[]> = NewJobParts<
  Input,
  Blockers
> &
  Demanded<Blockers>;

interface NewJobParts<Input, Blockers extends BlockerInputs>
  extends Omit<CreateOptions<Blockers>, "tx"> {
  readonly payload: Input;
}

/** The options of one of many; most have none, and cost nothing then. */
export function optionsOf<Input, Blockers extends BlockerInputs>(
  job: NewJobParts<Input, Blockers>,
): CreateOptions<Blockers> | undefined {
  for (const name in job) {
    if (name === "payload") continue;
    const { payload: _, ...options } = job;
    return options;
  }
  return undefined;
}

/** How many tags a job may have. */
const tagsMax = 20;

/** How long an idempotency key is remembered unless the create says otherwise. */
export const idempotencyWindowMs = 24 * 60 * 60 * 1_000;

const idempotencyKeyLengthMax = 255;
const requestIdLengthMax = 128;
const tracestateLengthMax = 512;

/** Options that later versions will know. */
const laterOptions: ReadonlySet<string> = new Set(["target"]);

/** The options of a create, each with its check. */
export const createChecks: { readonly [Name in keyof CreateOptions]-?: OptionCheck } = {
  id: idProblem,
  priority: whole(priorityMin, priorityMax),
  delayMs: (delayMs) => rangeProblem(delayMs, 0, delayMaxMs),
  runAt: timeProblem,
  deadline: timeProblem,
  maxTries: whole(1, maxTriesLimit),
  idempotencyKey: idempotencyProblem,
  blockers: blockersProblem,
  tags: tagsProblem,
  context: contextProblem,
  signature: signatureProblem,
  // Recognised where it is used.
  tx: () => null,
};

const {
  id: _id,
  idempotencyKey: _key,
  signature: _signature,
  tx: _tx,
  ...restChecks
} = createChecks;

/** The options of a continuation: its id is derived, which makes it repeatable already, and it is stored with the completion. */
export const continuationChecks: OptionChecks = restChecks;

/** What is wrong with the options of a create, or of a call that takes more, or `null` when nothing is. */
export function createProblem(
  options: CreateOptions<BlockerInputs>,
  call = "a create",
  checks: OptionChecks = createChecks,
): InvalidOption | null {
  const problem = optionsProblem(call, options, checks, laterOptions);
  if (problem !== null) return problem;
  if (options.signature !== undefined && options.id === undefined) {
    const message = "A signature is of one job; give the id that it was signed for, too.";
    return new InvalidOption({ field: "id", message });
  }
  if (options.delayMs === undefined || options.runAt === undefined) return null;
  const message = "runAt and delayMs exclude each other; give one of them.";
  return new InvalidOption({ field: "runAt", message });
}

function idProblem(id: unknown): string | null {
  return typeof id === "string"
    ? nameProblem("id", id)
    : `An id must be a string, not ${kindOf(id)}.`;
}

function tagsProblem(tags: unknown): string | null {
  if (!Array.isArray(tags)) return "It must be a list of words.";
  if (tags.length > tagsMax)
    return `There are ${tags.length} tags; at most ${tagsMax} are allowed.`;
  for (const tag of tags) {
    const problem = nameProblem("tag", tag);
    if (problem !== null) return problem;
  }
  return null;
}

function idempotencyProblem(value: unknown): string | null {
  const given = typeof value === "string" ? { key: value } : value;
  if (!isObject(given)) return "It must be a string, or an object with a key.";
  const { key, scope = "any", windowMs = idempotencyWindowMs } = given;
  if (typeof key !== "string" || key.length === 0 || key.length > idempotencyKeyLengthMax) {
    return `The key must be 1 to ${idempotencyKeyLengthMax} characters.`;
  }
  if (!isKeepable(key))
    return "The key holds a control character or half of a surrogate pair; leave it out.";
  if (scope !== "any" && scope !== "unfinished") return `scope must be "any" or "unfinished".`;
  const problem = rangeProblem(windowMs, 1, delayMaxMs);
  return problem === null ? null : `windowMs ${problem}`;
}

function contextProblem(context: unknown): string | null {
  if (!isObject(context)) return `It must be an object, not ${kindOf(context)}.`;
  const { requestId, traceparent, tracestate } = context;
  const requestIdFits =
    typeof requestId === "string" && requestId !== "" && requestId.length <= requestIdLengthMax;
  if (requestId !== undefined && !requestIdFits)
    return `requestId must be 1 to ${requestIdLengthMax} characters.`;
  if (traceparent !== undefined && typeof traceparent !== "string")
    return "traceparent must be a string.";
  if (tracestate === undefined) return null;
  if (traceparent === undefined) return "tracestate needs a traceparent.";
  if (typeof tracestate !== "string") return "tracestate must be a string.";
  return tracestate.length > tracestateLengthMax
    ? `tracestate is longer than ${tracestateLengthMax} characters.`
    : null;
}
