/**
 * Creating jobs by the name of their type: of types that no contract names, with any JSON as the payload,
 * and of the contract's own, whose schema is then applied.
 */
import { Result } from "better-result";
import { definitionsOf, queueOf, type ServiceContract } from "../contract/definition.js";
import { resolveSettings } from "../contract/settings.js";
import { integerMax } from "../core/job.js";
import type { Json } from "../core/json.js";
import { nameProblem } from "../core/names.js";
import type { StoreError } from "../engine/errors.js";
import { type AsyncResult, attempt, refusal } from "./async-result.js";
import type { BlockerInputs } from "./blockers.js";
import type { Client } from "./client.js";
import type { InsideFailure } from "./create-inside.js";
import {
  type CreateOptions,
  createChecks,
  createManyChecks,
  laterOptions,
  type NewJob,
  optionsOfEach,
  type SyncCreateOptions,
} from "./create-options.js";
import { InvalidOption } from "./errors.js";
import {
  type CreateFailure,
  JobCreator,
  type Submission,
  type SubmitFailure,
} from "./job-creator.js";
import type { JobRef } from "./job-ref.js";
import { type OptionChecks, optionsProblem, yesOrNoProblem } from "./option-checks.js";
import type { CreateTarget } from "./prepare.js";
import { noTransaction } from "./transactions/recognise.js";
import { type WaitFailure, type WaitOptions, waitChecks } from "./wait.js";

/** What a create by name may say of the type. */
interface TypeOptions {
  /** The version of the type; the contract's current one, or 1. */
  readonly version?: number;
  /** The queue of a type that no contract names; the type's own by default. */
  readonly queue?: string;
  /** Whether the job is the first of a chain even if its type names no continuations. */
  readonly chain?: boolean;
}

/** What a create by name may say besides the options of every create. A type that names its blockers takes them by name. */
export interface UntypedOptions extends CreateOptions<BlockerInputs>, TypeOptions {}

/** The same for a create that returns its outcome at once. */
export interface SyncUntypedOptions extends SyncCreateOptions<BlockerInputs>, TypeOptions {}

/** Takes what is looked at later, with what it says. */
const checkedLater = () => null;

/** The options that say more of the type. */
const typeChecks = { version: checkedLater, queue: checkedLater };

/** The options of each call by name: those of the typed call, which checks them, and those of the type. */
const ofCreate = named(createChecks);
const { tx: _tx, ...ofCreateOutside } = ofCreate;
const ofRun = { ...ofCreateOutside, ...waitChecks };
const ofMany = named(createManyChecks);

function named(checks: OptionChecks): OptionChecks {
  const names = Object.keys(checks).map((name) => [name, checkedLater]);
  return { ...Object.fromEntries(names), ...typeChecks, chain: yesOrNoProblem };
}

type UntypedCreator = JobCreator<Json, Json, Json | undefined, BlockerInputs>;

/** Of how many types the creators are kept in memory. */
const creatorsMax = 1_000;

/** Creates jobs by the name of their type. */
export class UntypedJobs {
  readonly #client: Client;
  readonly #contract: ServiceContract;
  /** The creators of types whose lane is recorded, for creates that name nothing but the type. */
  readonly #creators = new Map<string, UntypedCreator>();

  constructor(client: Client, contract: ServiceContract) {
    this.#client = client;
    this.#contract = contract;
  }

  /** As `create` of a typed job. */
  create(
    type: string,
    payload: Json,
    options: UntypedOptions = {},
  ): AsyncResult<JobRef, CreateFailure> {
    return this.#with(type, "a create", ofCreate, options, (creator, createOptions) =>
      creator.create(payload, createOptions),
    );
  }

  /** As `submit` of a typed job. */
  submit(
    type: string,
    payload: Json,
    options: UntypedOptions = {},
  ): AsyncResult<Submission<JobRef>, SubmitFailure> {
    return this.#with(type, "a submit", ofCreate, options, (creator, createOptions) =>
      creator.submit(payload, createOptions),
    );
  }

  /** As `run` of a typed job. */
  run(
    type: string,
    payload: Json,
    options: UntypedOptions & WaitOptions = {},
  ): AsyncResult<Json | undefined, CreateFailure | WaitFailure> {
    return this.#with(type, "a run", ofRun, options, (creator, runOptions) =>
      creator.run(payload, runOptions),
    );
  }

  /** As `createMany` of a typed job. */
  createMany(
    type: string,
    jobs: readonly NewJob<Json, BlockerInputs>[],
    options: Pick<UntypedOptions, "version" | "queue" | "chain" | "tx"> = {},
  ): AsyncResult<readonly Result<JobRef, CreateFailure>[], InsideFailure> {
    return this.#with(type, "a createMany", ofMany, options, (creator, rest) =>
      creator.createMany(jobs, rest),
    );
  }

  /** As `createSync` of a typed job. A type that no contract names has to be announced before. */
  createSync(
    type: string,
    payload: Json,
    options: SyncUntypedOptions,
  ): Result<JobRef, CreateFailure> {
    return this.#withSync(type, "a createSync", ofCreate, options, (creator, rest) =>
      creator.createSync(payload, rest),
    );
  }

  /** As `submitSync` of a typed job. A type that no contract names has to be announced before. */
  submitSync(
    type: string,
    payload: Json,
    options: SyncUntypedOptions,
  ): Result<Submission<JobRef>, SubmitFailure> {
    return this.#withSync(type, "a submitSync", ofCreate, options, (creator, rest) =>
      creator.submitSync(payload, rest),
    );
  }

  /** As `createManySync` of a typed job. A type that no contract names has to be announced before. */
  createManySync(
    type: string,
    jobs: readonly NewJob<Json, BlockerInputs>[],
    options: Pick<SyncUntypedOptions, "version" | "queue" | "chain" | "tx">,
  ): Result<readonly Result<JobRef, CreateFailure>[], InsideFailure> {
    return this.#withSync(type, "a createManySync", ofMany, options, (creator, rest) =>
      creator.createManySync(jobs, rest),
    );
  }

  /**
   * Makes a type known that no contract names, so that workers with routes look for its jobs. Every create does so when it
   * is the process's first of that type; inside a transaction of SQLite, where nobody else can write, it cannot.
   */
  announce(
    type: string,
    options: Pick<TypeOptions, "version" | "queue"> = {},
  ): AsyncResult<void, InvalidOption | StoreError> {
    const found = this.#creator(type, "an announce", typeChecks, options);
    if (found instanceof InvalidOption) return refusal(found);
    const { lane } = found;
    return attempt<void, InvalidOption | StoreError>(async () => {
      const refused = lane === null ? null : await this.#client.unnamedLanes.record(lane);
      return refused === null ? Result.ok() : Result.err(refused);
    });
  }

  #with<Value, Failure extends Error>(
    type: string,
    call: string,
    checks: OptionChecks,
    options: UntypedOptions,
    use: (
      creator: UntypedCreator,
      rest: CreateOptions<BlockerInputs>,
    ) => AsyncResult<Value, Failure>,
  ): AsyncResult<Value, Failure | InvalidOption> {
    const found = this.#creator(type, call, checks, options);
    if (found instanceof InvalidOption) return refusal<Value, Failure | InvalidOption>(found);
    const { creator, lane, rest } = found;
    if (lane === null) return use(creator, rest);
    return attempt<Value, Failure | InvalidOption>(async () => {
      const refused = await this.#client.unnamedLanes.record(lane);
      return refused === null ? use(creator, rest) : Result.err(refused);
    }) as AsyncResult<Value, Failure | InvalidOption>;
  }

  #withSync<Value, Failure>(
    type: string,
    call: string,
    checks: OptionChecks,
    options: SyncUntypedOptions,
    use: (
      creator: UntypedCreator,
      rest: SyncCreateOptions<BlockerInputs>,
    ) => Result<Value, Failure>,
  ): Result<Value, Failure | InvalidOption> {
    if (options === undefined) return Result.err(noTransaction("A synchronous create"));
    const found = this.#creator(type, call, checks, options);
    if (found instanceof InvalidOption) return Result.err(found);
    const { creator, lane, rest } = found;
    return lane === null ? use(creator, rest) : Result.err(notAnnounced(type, call));
  }

  /** Who creates jobs of a type, the options of the create itself, and the lane if it has to be recorded before. */
  #creator<Options extends TypeOptions>(
    type: string,
    call: string,
    checks: OptionChecks,
    options: Options,
  ) {
    const elsewhere = checks === ofMany ? optionsOfEach : laterOptions;
    const problem = optionsProblem(call, options, checks, elsewhere);
    if (problem !== null) return problem;
    const { version, queue, chain = false, ...rest } = options;
    const isPlain = version === undefined && queue === undefined && !chain;
    const known = isPlain ? this.#creators.get(type) : undefined;
    if (known !== undefined) return { creator: known, lane: null, rest };
    const target = targetOf(this.#contract, type, version, queue);
    if (target instanceof InvalidOption) return target;
    const creator: UntypedCreator = new JobCreator(
      this.#client,
      chain ? { ...target, startsChain: true } : target,
    );
    const lane = { type, queue: target.queue, version: target.settings.version };
    const isKnown = target.schema !== null || this.#client.unnamedLanes.has(lane);
    if (isKnown && isPlain && this.#creators.size < creatorsMax) this.#creators.set(type, creator);
    return { creator, lane: isKnown ? null : lane, rest };
  }
}

function notAnnounced(type: string, call: string): InvalidOption {
  const message = `No contract names ${type}, and ${call} cannot make it known inside your transaction; await service.untyped.announce("${type}") once before.`;
  return new InvalidOption({ field: "type", message });
}

/** The target of a create by name: the contract's own type, or one that no contract names. */
export function targetOf(
  contract: ServiceContract,
  type: string,
  version: number | undefined,
  queue: string | undefined,
): CreateTarget | InvalidOption {
  const { name: service, jobs } = contract;
  const entry = Object.hasOwn(jobs, type) ? jobs[type] : undefined;
  if (entry === undefined) return unnamedTarget(service, type, version, queue);
  const definition = definitionsOf(entry).findLast(
    ({ settings }) => (version ?? settings.version) === settings.version,
  );
  if (definition === undefined) {
    return new InvalidOption({
      field: "version",
      message: `${type} has no version ${version} in the contract.`,
    });
  }
  if (queue !== undefined && queue !== queueOf(type, definition)) {
    const message = `The contract puts ${type} in the queue ${queueOf(type, definition)}; leave the queue out.`;
    return new InvalidOption({ field: "queue", message });
  }
  return {
    service,
    type,
    queue: queueOf(type, definition),
    schema: definition.payload,
    settings: definition.settings,
  };
}

/** The target of a create of a type that no contract names, with the settings of every type. */
export function unnamedTarget(
  service: string,
  type: string,
  version = 1,
  queue: string | undefined,
): CreateTarget | InvalidOption {
  const typeProblem = nameProblem("type", type);
  if (typeProblem !== null) return new InvalidOption({ field: "type", message: typeProblem });
  const queueProblem = queue === undefined ? null : nameProblem("queue", queue);
  if (queueProblem !== null) return new InvalidOption({ field: "queue", message: queueProblem });
  if (!(Number.isSafeInteger(version) && version >= 1 && version <= integerMax)) {
    return new InvalidOption({
      field: "version",
      message: `version is ${version}; it must be a whole number from 1 to ${integerMax}.`,
    });
  }
  const settings = resolveSettings(
    queue === undefined ? { version } : { version, queue: { name: queue } },
  );
  return { service, type, queue: queueOf(type, { settings }), schema: null, settings };
}
