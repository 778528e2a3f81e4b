/**
 * Creating jobs of one type: one, many, with the queue policy's outcome, or with the result awaited.
 * A create does no more work than its options ask for, because callers make tens of thousands a second.
 */
import { Result } from "better-result";
import { type Validation, validate } from "../contract/schema.js";
import { type AppendOutcome, batchMax, type Change } from "../engine/engine.js";
import type { StoreError } from "../engine/errors.js";
import { AsyncResult, attempt, refusal, storeFault } from "./async-result.js";
import type { Client } from "./client.js";
import { type CreateOptions, createChecks, createProblem } from "./create-options.js";
import {
  type IdempotencyConflict,
  InvalidOption,
  type InvalidPayload,
  JobExists,
  JobNotEnqueued,
} from "./errors.js";
import { JobRef } from "./job-ref.js";
import { isObject, kindOf } from "./option-checks.js";
import {
  type CreateTarget,
  invalidPayload,
  type PreparedCreate,
  prepareCreate,
} from "./prepare.js";
import { createChange, type Rejected, type Submitted, submitted } from "./submit.js";
import { type WaitFailure, type WaitOptions, waitChecks, waitForJob } from "./wait.js";

/** The most jobs that one `createMany` makes. */
export const createManyMax = batchMax;

/** How many of them go to the store at a time, so that it stores some while the next are being prepared. */
const createManyPart = 250;

const runChecks = { ...createChecks, ...waitChecks };

/** The failures of a submit. */
export type SubmitFailure =
  | InvalidPayload
  | InvalidOption
  | IdempotencyConflict
  | JobExists
  | StoreError;

/** The failures of a create: those of a submit, and a key that let no new job in. */
export type CreateFailure = SubmitFailure | JobNotEnqueued;

/** What a submit did. `job` is the new job, or the one that stands for it. */
export type Submission<Ref> =
  | { readonly outcome: "accepted" | "existing" | "coalesced"; readonly job: Ref }
  | { readonly outcome: "replaced"; readonly job: Ref; readonly replacedJobId: string }
  | ({ readonly outcome: "rejected" } & Rejected);

/** One job of a `createMany`: its payload and its options. */
export interface NewJob<Input> extends CreateOptions {
  readonly payload: Input;
}

/** Makes jobs of one type and version. `Input` is what its schema takes, `Payload` and `Value` what is stored. */
export class JobCreator<Input, Payload, Value> {
  readonly #client: Client;
  readonly #target: CreateTarget;

  constructor(client: Client, target: CreateTarget) {
    this.#client = client;
    this.#target = target;
  }

  /** The job type's name. */
  get type(): string {
    return this.#target.type;
  }

  /**
   * Creates a job. It is durable once the result is there.
   * When the job's key is full, the failure is a `JobNotEnqueued`.
   */
  create(
    payload: Input,
    options?: CreateOptions,
  ): AsyncResult<JobRef<Payload, Value>, CreateFailure> {
    return new AsyncResult(this.#submit(payload, options, this.#created));
  }

  /** Creates a job, and tells what the queue policy and the idempotency key made of it. */
  submit(
    payload: Input,
    options?: CreateOptions,
  ): AsyncResult<Submission<JobRef<Payload, Value>>, SubmitFailure> {
    return new AsyncResult(this.#submit(payload, options, this.#submission));
  }

  /** Creates up to `createManyMax` jobs in one go. Each has its own outcome, in the order of the jobs. */
  createMany(
    jobs: readonly NewJob<Input>[],
  ): AsyncResult<readonly Result<JobRef<Payload, Value>, CreateFailure>[], InvalidOption> {
    return new AsyncResult(this.#createMany(jobs));
  }

  /** Creates a job, waits until it has ended, and gives its result. */
  run(
    payload: Input,
    options: CreateOptions & WaitOptions = {},
  ): AsyncResult<Value, CreateFailure | WaitFailure> {
    const problem = createProblem(options, "a run", runChecks);
    if (problem !== null) return refusal(problem);
    const { timeoutMs, signal, ...createOptions } = options;
    return attempt<Value, CreateFailure | WaitFailure>(async () => {
      const created = await this.create(payload, createOptions);
      if (created.isErr()) return Result.err(created.error);
      const waitOptions = {
        ...(timeoutMs === undefined ? null : { timeoutMs }),
        ...(signal === undefined ? null : { signal }),
      };
      return waitForJob<Value>(this.#client, created.value.id, waitOptions);
    });
  }

  #submit<Value>(
    payload: Input,
    options: CreateOptions | undefined,
    answerOf: (result: Result<Submitted, SubmitFailure>, create: PreparedCreate) => Value,
  ): Promise<Value | Result<never, SubmitFailure>> {
    // A schema or a payload with code of its own may throw; the caller awaits, and so it rejects.
    try {
      const checked = this.#validate(payload);
      if (!(checked instanceof Promise)) return this.#append(checked, options, answerOf);
      return checked.then((validation) => this.#append(validation, options, answerOf));
    } catch (fault) {
      return Promise.reject(fault);
    }
  }

  #append<Value>(
    checked: Validation,
    options: CreateOptions | undefined,
    answerOf: (result: Result<Submitted, SubmitFailure>, create: PreparedCreate) => Value,
  ): Promise<Value | Result<never, SubmitFailure>> {
    const create = this.#prepare(checked, options);
    if (create instanceof Error) return Promise.resolve(Result.err(create));
    return this.#client.runtime.engine.append([createChange(create)]).then((answers) => {
      const result = submitted(this.#client, create, answered(answers, 0));
      if (!(result instanceof Promise)) return answerOf(result, create);
      return result.then((followed) => answerOf(followed, create), storeFault);
    }, storeFault);
  }

  #validate(payload: unknown): Validation | Promise<Validation> {
    const { schema } = this.#target;
    return schema === null ? { ok: true, value: payload } : validate(schema, payload);
  }

  #prepare(
    checked: Validation,
    options?: CreateOptions,
  ): PreparedCreate | InvalidPayload | InvalidOption {
    if (!checked.ok) return invalidPayload(this.#target.type, checked.issues);
    return prepareCreate(this.#client, this.#target, checked.value, options);
  }

  async #createMany(
    jobs: readonly NewJob<Input>[],
  ): Promise<Result<readonly Result<JobRef<Payload, Value>, CreateFailure>[], InvalidOption>> {
    if (!Array.isArray(jobs)) return Result.err(noList(jobs));
    if (jobs.length > createManyMax) return Result.err(tooMany(jobs.length));
    const chosenIds = new Set<string>();
    const parts: Promise<readonly Result<JobRef<Payload, Value>, CreateFailure>[]>[] = [];
    for (let start = 0; start < jobs.length; start += createManyPart) {
      const part = jobs.slice(start, start + createManyPart);
      parts.push(this.#createPrepared(await this.#prepareMany(part, chosenIds)));
    }
    return Result.ok((await Promise.all(parts)).flat());
  }

  async #prepareMany(
    jobs: readonly NewJob<Input>[],
    chosenIds: Set<string>,
  ): Promise<readonly (PreparedCreate | SubmitFailure)[]> {
    const prepared: (PreparedCreate | SubmitFailure)[] = [];
    for (const job of jobs) {
      if (!isObject(job)) {
        prepared.push(noJob(job));
        continue;
      }
      const checked = this.#validate(job.payload);
      const options = optionsOf(job);
      const create = this.#prepare(checked instanceof Promise ? await checked : checked, options);
      const { id } = job;
      // A batch holds one change per job, so that a second job of the same id is refused here.
      if (id !== undefined && chosenIds.has(id)) prepared.push(chosenTwice(id));
      else prepared.push(create);
      if (id !== undefined) chosenIds.add(id);
    }
    return prepared;
  }

  async #createPrepared(
    prepared: readonly (PreparedCreate | SubmitFailure)[],
  ): Promise<readonly Result<JobRef<Payload, Value>, CreateFailure>[]> {
    try {
      const answers = await this.#client.runtime.engine.append(changesOf(prepared));
      return await this.#manyCreated(prepared, answers);
    } catch (error) {
      const fault = storeFault(error);
      return prepared.map((create) => (create instanceof Error ? Result.err(create) : fault));
    }
  }

  async #manyCreated(
    prepared: readonly (PreparedCreate | SubmitFailure)[],
    answers: readonly AppendOutcome[],
  ): Promise<readonly Result<JobRef<Payload, Value>, CreateFailure>[]> {
    const results: Result<JobRef<Payload, Value>, CreateFailure>[] = [];
    let next = 0;
    for (const create of prepared) {
      if (create instanceof Error) {
        results.push(Result.err(create));
        continue;
      }
      const result = submitted(this.#client, create, answered(answers, next++));
      results.push(this.#created(result instanceof Promise ? await result : result, create));
    }
    return results;
  }

  readonly #created = (
    result: Result<Submitted, SubmitFailure>,
    create: PreparedCreate,
  ): Result<JobRef<Payload, Value>, CreateFailure> => {
    if (result.isErr()) return Result.err(result.error);
    const done = result.value;
    if (done.outcome === "rejected" || done.outcome === "coalesced")
      return Result.err(notEnqueued(done, create));
    return Result.ok(
      new JobRef<Payload, Value>(this.#client, done.id, done.outcome === "existing"),
    );
  };

  readonly #submission = (
    result: Result<Submitted, SubmitFailure>,
  ): Result<Submission<JobRef<Payload, Value>>, SubmitFailure> => {
    if (result.isErr()) return Result.err(result.error);
    const done = result.value;
    if (done.outcome === "rejected") return Result.ok(done);
    const isNew = done.outcome === "accepted" || done.outcome === "replaced";
    const job = new JobRef<Payload, Value>(this.#client, done.id, !isNew);
    if (done.outcome === "replaced")
      return Result.ok({ outcome: done.outcome, job, replacedJobId: done.replacedJobId });
    return Result.ok({ outcome: done.outcome, job });
  };
}

/** The options of one of many; most have none, and cost nothing then. */
function optionsOf<Input>(job: NewJob<Input>): CreateOptions | undefined {
  for (const name in job) {
    if (name === "payload") continue;
    const { payload: _, ...options } = job;
    return options;
  }
  return undefined;
}

function changesOf(prepared: readonly (PreparedCreate | SubmitFailure)[]): readonly Change[] {
  const changes: Change[] = [];
  for (const create of prepared) if (!(create instanceof Error)) changes.push(createChange(create));
  return changes;
}

function answered(answers: readonly AppendOutcome[], index: number): AppendOutcome {
  const answer = answers[index];
  if (answer === undefined) throw new Error("The store gave no answer to a create.");
  return answer;
}

function notEnqueued(
  done: Extract<Submitted, { outcome: "rejected" | "coalesced" }>,
  { event }: PreparedCreate,
): JobNotEnqueued {
  const { key, maxActive, maxQueued } = event.key ?? { key: "", maxActive: 0, maxQueued: 0 };
  const limit = maxActive + maxQueued;
  if (done.outcome === "coalesced") {
    const message = `The key ${key} is full; job ${done.id} stands for this one.`;
    return new JobNotEnqueued({ reason: "coalesced", key, limit, existingJobId: done.id, message });
  }
  const { outcome: _, ...rejected } = done;
  const message = `The key ${key} is full: ${done.active} active and ${done.queued} queued of ${limit}; create the job later, or allow more.`;
  return new JobNotEnqueued({ ...rejected, message });
}

function chosenTwice(id: string): JobExists {
  return new JobExists({
    id,
    message: `The id ${id} is given to two jobs of one call; give each its own.`,
  });
}

function noList(jobs: unknown): InvalidOption {
  const message = `createMany takes a list of { payload, … }, not ${kindOf(jobs)}.`;
  return new InvalidOption({ field: "jobs", message });
}

function noJob(job: unknown): InvalidOption {
  const message = `A job of a createMany must be an object with a payload, not ${kindOf(job)}.`;
  return new InvalidOption({ field: "jobs", message });
}

function tooMany(count: number): InvalidOption {
  const message = `${count} jobs are too many for one createMany; give at most ${createManyMax} and call it again.`;
  return new InvalidOption({ field: "jobs", message });
}
