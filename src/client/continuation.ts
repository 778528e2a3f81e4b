/**
 * The continuation of a job: the create of the next job of its chain, which is stored together with the completion.
 * Handlers and completions without a worker ask for it with the same words.
 */
import type { JobDefinition } from "../contract/definition.js";
import { validate } from "../contract/schema.js";
import { chainOf, continuationId } from "../core/chains.js";
import type { Job, JobContext } from "../core/job.js";
import type { BlockerInputs } from "./blockers.js";
import type { Client } from "./client.js";
import { type CreateOptions, continuationChecks, createProblem } from "./create-options.js";
import { InvalidOption } from "./errors.js";
import { isObject } from "./option-checks.js";
import {
  invalidPayload,
  type PreparedCreate,
  type PrepareFailure,
  prepareCreate,
} from "./prepare.js";

/**
 * What a continuation may say of the next job. Its id follows from the job that it continues, and it is stored in the transaction of
 * the completion, if there is one.
 */
export type ContinuationOptions<Blockers extends BlockerInputs = BlockerInputs> = Omit<
  CreateOptions<Blockers>,
  "id" | "idempotencyKey" | "signature" | "tx"
>;

/** The wish to continue a chain; made by `continueWith`, and given back by whoever completes the job. */
export class Continuation<Type extends string = string> {
  readonly type: Type;
  readonly payload: unknown;
  readonly options: ContinuationOptions;

  constructor(type: Type, payload: unknown, options: ContinuationOptions = {}) {
    this.type = type;
    this.payload = payload;
    this.options = options;
  }
}

/** Asks for a continuation, whatever the contract says; the contract is asked when the job is completed. */
export function continueWith(
  type: string,
  payload: unknown,
  options?: ContinuationOptions,
): Continuation {
  return new Continuation(type, payload, options);
}

/**
 * Prepares the create of the job that continues `job`: in the same chain, under the id that follows from this
 * run of it, with its context. The answer is a promise only when the schema's own is.
 */
export function prepareContinuation(
  client: Client,
  job: Job,
  { type, payload, options }: Continuation,
): PreparedCreate | PrepareFailure | Promise<PreparedCreate | PrepareFailure> {
  const declared = client.boundJob(job.type, job.typeVersion)?.definition.settings.continuations;
  const next = client.currentJob(type);
  if (next === undefined || !declared?.includes(type)) return undeclared(job.type, type, declared);
  const problem =
    ownTransactionProblem(options) ?? createProblem(options, "a continuation", continuationChecks);
  if (problem !== null) return problem;
  const { service, queue, definition } = next;
  const { payload: schema, settings } = definition;
  const prepare = (value: unknown) => {
    const inherited = { requestId: job.context.requestId, ...traceOf(client, job) };
    const id = continuationId(job);
    return prepareCreate(
      client,
      { service, type, queue, schema, settings },
      value,
      { ...options, id, context: { ...inherited, ...options.context } },
      { chainId: chainOf(job) },
    );
  };
  const checked = validate(schema, payload);
  if (checked instanceof Promise) {
    return checked.then((later) =>
      later.ok ? prepare(later.value) : invalidPayload(type, later.issues),
    );
  }
  return checked.ok ? prepare(checked.value) : invalidPayload(type, checked.issues);
}

/** A continuation has no transaction of its own: it is stored together with the completion, or not at all. */
function ownTransactionProblem(options: unknown): InvalidOption | null {
  if (!isObject(options) || options.tx === undefined) return null;
  const message =
    "tx: A continuation is stored together with the completion of its job; give tx to that: to chains.complete, or to complete of a ref.";
  return new InvalidOption({ field: "tx", message });
}

/** The span in which the job is completed if it belongs to the job's trace, and otherwise the one that the job comes from. */
function traceOf({ activeTrace }: Client, { context }: Job): Partial<JobContext> {
  const active = activeTrace();
  if (active?.traceparent.includes(context.traceId)) return active;
  const { traceparent, tracestate } = context;
  return tracestate === undefined ? { traceparent } : { traceparent, tracestate };
}

/** Why a job of a definition cannot end with itself, whatever it gives: it always continues. `null` where it can. */
export function endProblem({ result, settings }: JobDefinition): string | null {
  const { continuations } = settings;
  if (result !== undefined || continuations.length === 0) return null;
  return `its definition names continuations and no result, so that it always continues; continue with ${quoted(continuations).join(" or ")}`;
}

function quoted(names: readonly string[]): readonly string[] {
  return names.map((name) => `"${name}"`);
}

function undeclared(from: string, to: string, declared: readonly string[] = []): InvalidOption {
  const remedy =
    declared.length === 0 ? "it names none" : `it names ${quoted(declared).join(", ")}`;
  const message = `${from} does not continue with ${to}: add "${to}" to the continuations of ${from}; ${remedy}.`;
  return new InvalidOption({ field: "type", message });
}
