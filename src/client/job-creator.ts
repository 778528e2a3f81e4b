/**
 * Creating jobs of one type: one, many, with the queue policy's outcome, or with the result awaited.
 * A create does no more work than its options ask for, because callers make tens of thousands a second.
 */
import { Result } from "better-result";
import { type Validation, validate } from "../contract/schema.js";
import type { AppendOutcome } from "../engine/engine.js";
import type { StoreError, TransactionError } from "../engine/errors.js";
import { answered, createsOf, only } from "./answers.js";
import { AsyncResult, attempt, refusal, storeFault } from "./async-result.js";
import { wrongBlockers } from "./blocker-types.js";
import type { BlockerInput, BlockerInputs } from "./blockers.js";
import type { Client } from "./client.js";
import { type InsideFailure, submitInside, submitInsideSync } from "./create-inside.js";
import {
  type CreateOptions,
  createChecks,
  createManyChecks,
  createProblem,
  type Demanded,
  type NewJob,
  type OptionsArgument,
  optionsOf,
  optionsOfEach,
  type SyncCreateOptions,
} from "./create-options.js";
import {
  checksLater,
  chosenTwice,
  listProblem,
  noJob,
  notEnqueued,
  ownTransaction,
} from "./create-refusals.js";
import type { IdempotencyConflict, InvalidOption, JobExists, JobNotEnqueued } from "./errors.js";
import { JobRef } from "./job-ref.js";
import { isObject, optionsProblem } from "./option-checks.js";
import {
  type CreateTarget,
  invalidPayload,
  type PreparedCreate,
  type PrepareFailure,
  prepareCreate,
} from "./prepare.js";
import { sentMany, sentOne } from "./sent.js";
import { runSteps } from "./store-steps.js";
import { createChange, followKey, type Rejected, type Submitted, submitted } from "./submit.js";
import type { SendAsk } from "./telemetry.js";
import type { BetterSqliteClient } from "./transactions/better-sqlite.js";
import { noTransaction } from "./transactions/recognise.js";
import type { TransactionClient } from "./transactions/transaction-client.js";
import { type WaitFailure, type WaitOptions, waitChecks, waitForJob } from "./wait.js";

/** How many of them go to the store at a time, so that it stores some while the next are being prepared. */
const createManyPart = 256;

/** The first part is small, so that the store has something to do soon. */
const firstPart = 32;

/** Answers come between turns, and so the store can be sent the next part while the one after is being prepared. */
const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

/** A run waits for its job, which nobody can start before the caller's transaction ends. */
const { tx: _tx, ...createChecksOfRun } = createChecks;
const runChecks = { ...createChecksOfRun, ...waitChecks };

/** The failures of a submit. */
export type SubmitFailure =
  | PrepareFailure
  | IdempotencyConflict
  | JobExists
  | TransactionError
  | StoreError;

/** The failures of a create: those of a submit, and a key that let no new job in. */
export type CreateFailure = SubmitFailure | JobNotEnqueued;

/** What a submit did. `job` is the new job, or the one that stands for it. */
export type Submission<Ref> =
  | { readonly outcome: "accepted" | "existing" | "coalesced"; readonly job: Ref }
  | { readonly outcome: "replaced"; readonly job: Ref; readonly replacedJobId: string }
  | ({ readonly outcome: "rejected" } & Rejected);

/** What a run may say: how its job is created, and how long it is waited for. */
type RunOptions<Blockers extends BlockerInputs> = Omit<CreateOptions<Blockers>, "tx"> & WaitOptions;

/** The outcome of each job of a `createMany`, in their order. */
type Created<Ref> = readonly Result<Ref, CreateFailure>[];

/** The result of a create or a submit, as telemetry looks at it. */
type SentResult = Parameters<typeof sentOne>[0];

/** Makes jobs of one type and version. `Input` is what its schema takes, `Payload` and `Value` what is stored, `Given` what completes them. */
export class JobCreator<
  Input,
  Payload,
  Value,
  Blockers extends BlockerInputs = readonly BlockerInput[],
  Given = unknown,
> {
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
    ...options: OptionsArgument<CreateOptions<Blockers>, Blockers>
  ): AsyncResult<JobRef<Payload, Value, Given>, CreateFailure>;
  create(
    payload: Input,
    options?: CreateOptions<Blockers>,
  ): AsyncResult<JobRef<Payload, Value, Given>, CreateFailure> {
    return new AsyncResult(this.#submit(payload, options, this.#created));
  }

  /** Creates a job, and tells what the queue policy and the idempotency key made of it. */
  submit(
    payload: Input,
    ...options: OptionsArgument<CreateOptions<Blockers>, Blockers>
  ): AsyncResult<Submission<JobRef<Payload, Value, Given>>, SubmitFailure>;
  submit(
    payload: Input,
    options?: CreateOptions<Blockers>,
  ): AsyncResult<Submission<JobRef<Payload, Value, Given>>, SubmitFailure> {
    return new AsyncResult(this.#submit(payload, options, this.#submission));
  }

  /** Creates up to `createManyMax` jobs in one go. Each has its own outcome, in the order of the jobs. */
  createMany(
    jobs: readonly NewJob<Input, Blockers>[],
    options: { readonly tx?: TransactionClient } = {},
  ): AsyncResult<Created<JobRef<Payload, Value, Given>>, InsideFailure> {
    const problem = manyProblem(options);
    if (problem !== null) return refusal(problem);
    const { tx } = options;
    const looking = this.#client.runtime.encryptionDemand?.look();
    const work = async () => {
      if (tx !== undefined) return this.#manyInside(jobs, tx);
      if (looking !== undefined) await looking;
      return this.#createMany(jobs);
    };
    const recorder = this.#client.runtime.telemetry?.recorder();
    return new AsyncResult(recorder ? recorder.send(this.#batch(jobs), work, sentMany) : work());
  }

  /** As `create`, inside a synchronous transaction of better-sqlite3; the outcome is there when it returns. */
  createSync(
    payload: Input,
    options: SyncCreateOptions<Blockers> & Demanded<Blockers>,
  ): Result<JobRef<Payload, Value, Given>, CreateFailure> {
    return this.#submitSync(payload, options, this.#created);
  }

  /** As `submit`, inside a synchronous transaction of better-sqlite3. */
  submitSync(
    payload: Input,
    options: SyncCreateOptions<Blockers> & Demanded<Blockers>,
  ): Result<Submission<JobRef<Payload, Value, Given>>, SubmitFailure> {
    return this.#submitSync(payload, options, this.#submission);
  }

  /** As `createMany`, inside a synchronous transaction of better-sqlite3. */
  createManySync(
    jobs: readonly NewJob<Input, Blockers>[],
    options: { readonly tx: BetterSqliteClient },
  ): Result<Created<JobRef<Payload, Value, Given>>, InsideFailure> {
    const problem = options === undefined ? noTransaction(syncCreate) : manyProblem(options);
    if (problem !== null) return Result.err(problem);
    const { tx } = options;
    void this.#client.runtime.encryptionDemand?.look();
    const work = () => this.#manyInsideSync(jobs, tx);
    const recorder = this.#client.runtime.telemetry?.recorder();
    return recorder ? recorder.send(this.#batch(jobs), work, sentMany) : work();
  }

  #manyInsideSync(
    jobs: readonly NewJob<Input, Blockers>[],
    tx: BetterSqliteClient,
  ): Result<Created<JobRef<Payload, Value, Given>>, InsideFailure> {
    const problem = listProblem(jobs);
    if (problem !== null) return Result.err(problem);
    const chosenIds = new Set<string>();
    const prepared = jobs.map((job) => this.#prepareOne(job, this.#checkNow(job), chosenIds));
    const submissions = submitInsideSync(this.#client, tx, createsOf(prepared));
    return submissions.isErr()
      ? Result.err(submissions.error)
      : Result.ok(this.#inOrder(prepared, submissions.value));
  }

  /** Creates a job, waits until it has ended, and gives its result. */
  run(
    payload: Input,
    ...options: OptionsArgument<RunOptions<Blockers>, Blockers>
  ): AsyncResult<Value, CreateFailure | WaitFailure>;
  run(
    payload: Input,
    options: RunOptions<Blockers> = {},
  ): AsyncResult<Value, CreateFailure | WaitFailure> {
    const problem = createProblem(options, "a run", runChecks);
    if (problem !== null) return refusal(problem);
    const { timeoutMs, signal, ...createOptions } = options;
    return attempt<Value, CreateFailure | WaitFailure>(async () => {
      const created = await this.#submit(payload, createOptions, this.#created);
      if (created.isErr()) return Result.err(created.error);
      const waitOptions = {
        ...(timeoutMs === undefined ? null : { timeoutMs }),
        ...(signal === undefined ? null : { signal }),
      };
      return waitForJob<Value>(this.#client, created.value.id, waitOptions);
    });
  }

  #submit<Value extends SentResult>(
    payload: Input,
    options: CreateOptions<Blockers> | undefined,
    answerOf: (result: Result<Submitted, SubmitFailure>, create: PreparedCreate) => Value,
  ): Promise<Value | Result<never, SubmitFailure>> {
    const recorder = this.#client.runtime.telemetry?.recorder();
    if (!recorder) return this.#checkAndAppend(payload, options, answerOf);
    const work = () => this.#checkAndAppend(payload, options, answerOf);
    return recorder.send(this.#one(options), work, sentOne);
  }

  #checkAndAppend<Value>(
    payload: Input,
    options: CreateOptions<Blockers> | undefined,
    answerOf: (result: Result<Submitted, SubmitFailure>, create: PreparedCreate) => Value,
  ): Promise<Value | Result<never, SubmitFailure>> {
    const looking = this.#client.runtime.encryptionDemand?.look();
    // An open transaction may hold up the store that would answer, so that the answer counts for the next create.
    if (looking !== undefined && options?.tx === undefined)
      return looking.then(() => this.#checkAndAppend(payload, options, answerOf));
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
    options: CreateOptions<Blockers> | undefined,
    answerOf: (result: Result<Submitted, SubmitFailure>, create: PreparedCreate) => Value,
  ): Promise<Value | Result<never, SubmitFailure>> {
    const create = this.#prepare(checked, options);
    if (create instanceof Error) return Promise.resolve(Result.err(create));
    const { engine } = this.#client.runtime;
    if (options?.tx !== undefined) {
      return submitInside(this.#client, options.tx, [create]).then((submissions) =>
        submissions.isErr()
          ? Result.err(submissions.error)
          : answerOf(only(submissions.value), create),
      );
    }
    const append = () => {
      const change = createChange(create, 0, options?.id === undefined);
      return engine.append([change]).then((answers) => {
        const result = this.#answer(create, answered(answers, 0));
        if (!(result instanceof Promise)) return answerOf(result, create);
        return result.then((followed) => answerOf(followed, create), storeFault);
      }, storeFault);
    };
    if (create.blockerTypes === undefined) return append();
    const looking = runSteps(engine, undefined, wrongBlockers([create]));
    return looking.then(async ([wrong]) => (wrong ? Result.err(wrong) : append()), storeFault);
  }

  /** What the store's answer means. A promise only when an idempotency key has to be followed. */
  #answer(
    create: PreparedCreate,
    answer: AppendOutcome,
  ): Result<Submitted, SubmitFailure> | Promise<Result<Submitted, SubmitFailure>> {
    const { engine } = this.#client.runtime;
    const result = submitted(create, answer);
    return result ?? runSteps(engine, undefined, followKey(create, answer, engine.url));
  }

  #submitSync<Value extends SentResult>(
    payload: Input,
    options: SyncCreateOptions<Blockers>,
    answerOf: (result: Result<Submitted, SubmitFailure>, create: PreparedCreate) => Value,
  ): Value | Result<never, SubmitFailure> {
    // Nobody can wait here, so that the answer counts for the next create.
    void this.#client.runtime.encryptionDemand?.look();
    const work = () => this.#checkAndAppendSync(payload, options, answerOf);
    const recorder = this.#client.runtime.telemetry?.recorder();
    return recorder ? recorder.send(this.#one(options), work, sentOne) : work();
  }

  #checkAndAppendSync<Value>(
    payload: Input,
    options: SyncCreateOptions<Blockers>,
    answerOf: (result: Result<Submitted, SubmitFailure>, create: PreparedCreate) => Value,
  ): Value | Result<never, SubmitFailure> {
    if (options === undefined) return Result.err(noTransaction(syncCreate));
    const checked = this.#validate(payload);
    if (checked instanceof Promise) return Result.err(checksLater(this.type, checked));
    const create = this.#prepare(checked, options);
    if (create instanceof Error) return Result.err(create);
    const submissions = submitInsideSync(this.#client, options.tx, [create]);
    if (submissions.isErr()) return Result.err(submissions.error);
    return answerOf(only(submissions.value), create);
  }

  /** What telemetry is told of a create. */
  #one(options: Pick<CreateOptions, "context"> | undefined): SendAsk {
    const context = options?.context;
    return context === undefined ? this.#target : { ...this.#target, context };
  }

  #batch(jobs: readonly unknown[]): SendAsk {
    return { ...this.#target, batch: Array.isArray(jobs) ? jobs.length : 0 };
  }

  #validate(payload: unknown): Validation | Promise<Validation> {
    const { schema } = this.#target;
    return schema === null ? { ok: true, value: payload } : validate(schema, payload);
  }

  #prepare(
    checked: Validation,
    options?: CreateOptions<Blockers>,
  ): PreparedCreate | PrepareFailure {
    if (!checked.ok) return invalidPayload(this.#target.type, checked.issues);
    return prepareCreate(this.#client, this.#target, checked.value, options);
  }

  async #createMany(
    jobs: readonly NewJob<Input, Blockers>[],
  ): Promise<Result<Created<JobRef<Payload, Value, Given>>, InvalidOption>> {
    const problem = listProblem(jobs);
    if (problem !== null) return Result.err(problem);
    const chosenIds = new Set<string>();
    const parts: Promise<Created<JobRef<Payload, Value, Given>>>[] = [];
    let size = firstPart;
    for (let start = 0; start < jobs.length; size = Math.min(size * 2, createManyPart)) {
      const left = jobs.length - start;
      // A few that are left at the end go along, because each part is a commit.
      const part = jobs.slice(start, start + (left < size + firstPart ? left : size));
      start += part.length;
      // A job may wait for one that comes before it in the same call.
      if (part.some((job) => isObject(job) && job.blockers !== undefined)) await Promise.all(parts);
      parts.push(this.#createPrepared(await this.#prepareMany(part, chosenIds), chosenIds));
      await nextTurn();
    }
    return Result.ok((await Promise.all(parts)).flat());
  }

  async #prepareMany(
    jobs: readonly NewJob<Input, Blockers>[],
    chosenIds: Set<string>,
  ): Promise<readonly (PreparedCreate | SubmitFailure)[]> {
    const prepared: (PreparedCreate | SubmitFailure)[] = [];
    for (const job of jobs) {
      const checked = isObject(job) ? this.#validate(job.payload) : noJob(job);
      prepared.push(
        this.#prepareOne(job, checked instanceof Promise ? await checked : checked, chosenIds),
      );
    }
    return prepared;
  }

  /** Prepares one of many, unless its payload could not even be checked. */
  #prepareOne(
    job: NewJob<Input, Blockers>,
    checked: Validation | SubmitFailure,
    chosenIds: Set<string>,
  ): PreparedCreate | SubmitFailure {
    if (checked instanceof Error) return checked;
    if ("tx" in job) return ownTransaction();
    const create = this.#prepare(checked, optionsOf(job));
    const { id } = job;
    if (id === undefined) return create;
    // A batch holds one change per job, so that a second job of the same id is refused here.
    if (chosenIds.has(id)) return chosenTwice(id);
    chosenIds.add(id);
    return create;
  }

  /** Checks the payload of one of many where nobody can wait. */
  #checkNow(job: NewJob<Input, Blockers>): Validation | SubmitFailure {
    if (!isObject(job)) return noJob(job);
    const checked = this.#validate(job.payload);
    return checked instanceof Promise ? checksLater(this.type, checked) : checked;
  }

  async #manyInside(
    jobs: readonly NewJob<Input, Blockers>[],
    tx: unknown,
  ): Promise<Result<Created<JobRef<Payload, Value, Given>>, InsideFailure>> {
    const problem = listProblem(jobs);
    if (problem !== null) return Result.err(problem);
    const prepared = await this.#prepareMany(jobs, new Set());
    const submissions = await submitInside(this.#client, tx, createsOf(prepared));
    return submissions.isErr()
      ? Result.err(submissions.error)
      : Result.ok(this.#inOrder(prepared, submissions.value));
  }

  /** The outcome of every job, also of those that did not get as far as the store. */
  #inOrder(
    prepared: readonly (PreparedCreate | SubmitFailure)[],
    submissions: readonly Result<Submitted, SubmitFailure>[],
  ): Created<JobRef<Payload, Value, Given>> {
    let next = 0;
    return prepared.map((create) =>
      create instanceof Error
        ? Result.err(create)
        : this.#created(submissions[next++] as Result<Submitted, SubmitFailure>, create),
    );
  }

  /** The same, with the refusals of those that name a blocker of the wrong type. */
  async #fitting(
    prepared: readonly (PreparedCreate | SubmitFailure)[],
  ): Promise<readonly (PreparedCreate | SubmitFailure)[]> {
    if (this.#target.settings.blockers === undefined) return prepared;
    const steps = wrongBlockers(createsOf(prepared));
    const wrong = [...(await runSteps(this.#client.runtime.engine, undefined, steps))];
    return prepared.map((create) => (create instanceof Error ? create : (wrong.shift() ?? create)));
  }

  async #createPrepared(
    given: readonly (PreparedCreate | SubmitFailure)[],
    chosenIds: ReadonlySet<string>,
  ): Promise<Created<JobRef<Payload, Value, Given>>> {
    let prepared = given;
    try {
      prepared = await this.#fitting(given);
      const creates = createsOf(prepared);
      const changes = creates.map((create) =>
        createChange(create, 0, !chosenIds.has(create.event.jobId)),
      );
      const answers = await this.#client.runtime.engine.append(changes);
      const submissions: Result<Submitted, SubmitFailure>[] = [];
      for (const [index, create] of creates.entries()) {
        const result = this.#answer(create, answered(answers, index));
        submissions.push(result instanceof Promise ? await result : result);
      }
      return this.#inOrder(prepared, submissions);
    } catch (error) {
      const fault = storeFault(error);
      return prepared.map((create) => (create instanceof Error ? Result.err(create) : fault));
    }
  }

  readonly #created = (
    result: Result<Submitted, SubmitFailure>,
    create: PreparedCreate,
  ): Result<JobRef<Payload, Value, Given>, CreateFailure> => {
    if (result.isErr()) return Result.err(result.error);
    const done = result.value;
    if (done.outcome === "rejected" || done.outcome === "coalesced")
      return Result.err(notEnqueued(done, create));
    return Result.ok(
      new JobRef<Payload, Value, Given>(this.#client, done.id, done.outcome === "existing"),
    );
  };

  readonly #submission = (
    result: Result<Submitted, SubmitFailure>,
  ): Result<Submission<JobRef<Payload, Value, Given>>, SubmitFailure> => {
    if (result.isErr()) return Result.err(result.error);
    const done = result.value;
    if (done.outcome === "rejected") return Result.ok(done);
    const isNew = done.outcome === "accepted" || done.outcome === "replaced";
    const job = new JobRef<Payload, Value, Given>(this.#client, done.id, !isNew);
    if (done.outcome === "replaced")
      return Result.ok({ outcome: done.outcome, job, replacedJobId: done.replacedJobId });
    return Result.ok({ outcome: done.outcome, job });
  };
}

/** What is wrong with the options of a `createMany` as a whole, or `null` when nothing is. */
const manyProblem = (options: object) =>
  optionsProblem("a createMany", options, createManyChecks, optionsOfEach);

const syncCreate = "A synchronous create";
