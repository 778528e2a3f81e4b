/**
 * How a contract is written: job types with their schemas and options, and the service that they belong to.
 *
 * @example
 * export const shop = defineService("shop", {
 *   sendReceipt: defineJob({
 *     payload: z.object({ orderId: z.string(), to: z.string() }),
 *     result: z.object({ messageId: z.string() }),
 *   }),
 * });
 */
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Json } from "../core/json.js";
import { nameProblem } from "../core/names.js";
import {
  boundJobs,
  definitionsOf,
  type JobDefinition,
  type JobEntries,
  type JobVersions,
  type NamedTypes,
  queueOf,
  type Schema,
  type ServiceContract,
} from "./definition.js";
import { InvalidDefinition } from "./errors.js";
import type { JobHooks } from "./hooks.js";
import {
  resolveSchedule,
  type ScheduleInput,
  type ScheduleSpec,
  schedulesMax,
} from "./schedules.js";
import {
  type JobOptions,
  type RetentionOptions,
  resolveSettings,
  retentionDefaults,
} from "./settings.js";
import type { Stored } from "./stored.js";
import { checkJobOptions, checkServiceOptions, fail } from "./validate.js";

/** What `defineJob` takes: the schemas, and every option of a job type. */
export interface JobSpec<
  Payload extends Schema,
  Result extends Schema | undefined,
  Version extends number,
  Continuations extends string = string,
  Blockers extends NamedTypes = NamedTypes,
> extends JobOptions {
  /**
   * What a job is given. Its output is stored as JSON and checked again before the handler, so that
   * a schema must accept what it gives: defaults and coercions may be used, one-way transforms may not.
   */
  readonly payload: Payload;
  /** What a handler returns. Without one, what it returns is stored unchecked and typed as JSON. */
  readonly result?: Result;
  readonly version?: Version;
  /**
   * The job types of the service that a job of this type may continue with. One that names continuations and
   * no `result` always continues; one that names both may do either.
   */
  readonly continuations?: readonly Continuations[];
  /**
   * The jobs that one of this type waits for: each with a name, and the type of the service that it is of.
   * Creates must name them, and the handler finds their results under `job.blockers`.
   */
  readonly blockers?: Blockers;
  /**
   * What is called around a job. A hook that throws is recorded in the job's history and never changes the outcome.
   *
   * @example
   * hooks: { onFail: (job) => page(`${job.id}: ${job.error?.message}`) }
   */
  readonly hooks?: JobHooks<
    Stored<StandardSchemaV1.InferOutput<NoInfer<Payload>>>,
    ResultOf<NoInfer<Result>>
  >;
}

/** The result that hooks see. */
type ResultOf<Result> = Result extends Schema
  ? Stored<StandardSchemaV1.InferOutput<Result>> | undefined
  : Json | undefined;

/** As `NoInfer`, for an object whose members are looked at one by one, which the compiler cannot do through `NoInfer`. */
type Given<Types extends NamedTypes> = [Types] extends [infer Same extends NamedTypes]
  ? Same
  : never;

/** Defines a job type. Throws `InvalidDefinition` for an option that cannot work. */
export function defineJob<
  Payload extends Schema,
  Result extends Schema | undefined = undefined,
  const Version extends number = 1,
  const Continuations extends string = never,
  const Blockers extends NamedTypes = never,
>(
  spec: JobSpec<Payload, Result, Version, Continuations, Blockers>,
  // What surrounds the call, such as `versions(…)`, must not widen what the spec leaves out.
): JobDefinition<
  Payload,
  NoInfer<Result>,
  NoInfer<Version>,
  NoInfer<Continuations>,
  Given<Blockers>
> {
  checkJobOptions(spec);
  const { payload, result, hooks, ...options } = spec;
  // Every setting is as the options say; only the compiler cannot follow the version and the names through.
  const settings = resolveSettings(options) as JobDefinition<
    Payload,
    Result,
    Version,
    Continuations,
    Given<Blockers>
  >["settings"];
  const { retention } = options;
  const own = { ...(hooks && { hooks }), ...(retention && { retention }) };
  return { kind: "job", payload, result: result as Result, settings, ...own };
}

/**
 * Puts versions of a job type side by side, lowest first. The last one is current: `create` makes jobs of it,
 * and `version(n)` reaches the others.
 */
export function versions<const Definitions extends readonly [JobDefinition, ...JobDefinition[]]>(
  ...definitions: Definitions
): JobVersions<Definitions> {
  if (definitions.length === 0) fail("versions", "needs at least one definition of defineJob");
  for (const [index, definition] of definitions.entries()) {
    if (!isKind(definition, "job")) fail(`versions[${index}]`, "must come from defineJob");
    const { settings } = definition;
    const before = definitions[index - 1]?.settings.version ?? 0;
    if (settings.version === before)
      fail("version", `${settings.version} is defined twice; give each its own`);
    if (settings.version < before)
      fail("version", `${settings.version} comes after ${before}; list the lowest first`);
  }
  return { kind: "versions", definitions };
}

/** What a service has besides its job types. */
export interface ServiceOptions<Entries extends JobEntries> {
  /** What it starts by itself: schedules by name, which `start` makes, changes and removes as they are listed here. */
  readonly schedules?: { readonly [name: string]: ScheduleSpec<Entries> };
  /** How long ended jobs are kept, for types whose definition does not say it, unnamed ones included. */
  readonly retention?: RetentionOptions;
  /**
   * Whether payloads and results may be stored encrypted only: processes without keys, the server among them, then refuse
   * to create its jobs. A process that connects with `encryption` says so by itself.
   */
  readonly encrypted?: boolean;
}

/**
 * Defines a service, its job types, and what it starts by itself. Throws `InvalidDefinition` for a name or a limit that
 * cannot work.
 */
export function defineService<const Entries extends JobEntries>(
  name: string,
  jobs: Entries,
  options: ServiceOptions<NoInfer<Entries>> = {},
): ServiceContract<Entries> {
  checkName("name", nameProblem("service", name));
  if (typeof jobs !== "object" || jobs === null || Array.isArray(jobs))
    fail("jobs", "must be an object of job types, such as { send: defineJob({ … }) }");
  for (const [type, entry] of Object.entries(jobs)) {
    checkName(`jobs.${type}`, nameProblem("type", type));
    if (!isKind(entry, "job") && !isKind(entry, "versions"))
      fail(`jobs.${type}`, "must come from defineJob or versions");
  }
  checkServiceOptions(options);
  checkRelatives({ kind: "service", name, jobs });
  const { schedules, retention, encrypted = false } = options;
  const kept = retention === undefined ? null : { retention };
  const sealed = encrypted ? { encrypted } : null;
  const contract = withSharedLimits({ kind: "service", name, jobs, ...kept, ...sealed });
  return schedules === undefined ? contract : { ...contract, schedules: declared(jobs, schedules) };
}

function declared(
  jobs: JobEntries,
  schedules: NonNullable<ServiceOptions<JobEntries>["schedules"]>,
): NonNullable<ServiceContract["schedules"]> {
  const definitions = Object.entries(schedules).map(([name, spec]) => {
    const place = `schedules.${name}`;
    checkName(place, nameProblem("schedule", name));
    const definition = resolveSchedule(spec as ScheduleInput, place);
    const entry = Object.hasOwn(jobs, definition.type) ? jobs[definition.type] : undefined;
    const { type, version } = definition;
    if (entry === undefined)
      fail(`${place}.type`, `is ${type}; use ${Object.keys(jobs).join(", ")}`);
    const known = definitionsOf(entry).map(({ settings }) => settings.version);
    if (version !== undefined && !known.includes(version))
      fail(`${place}.version`, `is ${version}; ${type} has ${known.join(", ")}`);
    return [name, definition] as const;
  });
  if (definitions.length > schedulesMax)
    fail("schedules", `are ${definitions.length}; at most ${schedulesMax} are allowed`);
  return Object.fromEntries(definitions);
}

/** Chains and named blockers stay within their service, so that every one is of its job types. */
function checkRelatives(contract: ServiceContract): void {
  for (const { type, definition } of boundJobs(contract)) {
    const { continuations, blockers = {} } = definition.settings;
    checkKnown(contract, `jobs.${type}.continuations`, continuations);
    checkKnown(contract, `jobs.${type}.blockers`, Object.values(blockers));
  }
}

function checkKnown(contract: ServiceContract, field: string, types: readonly string[]): void {
  const unknown = types.find((type) => !Object.hasOwn(contract.jobs, type));
  if (unknown === undefined) return;
  const known = Object.keys(contract.jobs).join(", ");
  fail(field, `names ${unknown}, which is no job of the service; use ${known}`);
}

/** Whether a value, which plain JavaScript may have made, is a part of a contract. */
function isKind(value: unknown, kind: "job" | "versions"): boolean {
  return typeof value === "object" && value !== null && "kind" in value && value.kind === kind;
}

/** A limit of a type or a queue is one number for all who share it, whichever of them has named it. */
function withSharedLimits<Entries extends JobEntries>(
  contract: ServiceContract<Entries>,
): ServiceContract<Entries> {
  const limits = new Map<string, number>();
  for (const { type, queue, definition } of boundJobs(contract)) {
    noteLimit(limits, `type ${type}`, definition.settings.maxActive);
    noteLimit(limits, `queue ${queue}`, definition.settings.queue.maxActive);
  }
  const jobs = Object.entries(contract.jobs).map(([type, entry]) => {
    const fill = (definition: JobDefinition) =>
      withRetention(withLimits(type, definition, limits), contract.retention);
    return [
      type,
      entry.kind === "job" ? fill(entry) : { ...entry, definitions: entry.definitions.map(fill) },
    ];
  });
  return { ...contract, jobs: Object.fromEntries(jobs) as Entries };
}

function noteLimit(
  limits: Map<string, number>,
  place: string,
  maxActive: number | undefined,
): void {
  if (maxActive === undefined) return;
  const other = limits.get(place) ?? maxActive;
  if (other !== maxActive) {
    fail(
      "maxActive",
      `of ${place} is ${other} in one definition and ${maxActive} in another; name one number`,
    );
  }
  limits.set(place, maxActive);
}

function withLimits(
  type: string,
  definition: JobDefinition,
  limits: ReadonlyMap<string, number>,
): JobDefinition {
  const { settings } = definition;
  const typeLimit = limits.get(`type ${type}`);
  const queueLimit = limits.get(`queue ${queueOf(type, definition)}`);
  const queue =
    queueLimit === undefined ? settings.queue : { ...settings.queue, maxActive: queueLimit };
  const limited =
    typeLimit === undefined ? { ...settings, queue } : { ...settings, queue, maxActive: typeLimit };
  return { ...definition, settings: limited };
}

/** What a definition says itself goes before what its service says. */
function withRetention(
  definition: JobDefinition,
  shared: RetentionOptions | undefined,
): JobDefinition {
  if (shared === undefined) return definition;
  const retention = { ...retentionDefaults, ...shared, ...definition.retention };
  return { ...definition, settings: { ...definition.settings, retention } };
}

function checkName(field: string, problem: string | null): void {
  if (problem !== null) throw new InvalidDefinition({ field, message: problem });
}
