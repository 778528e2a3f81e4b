/**
 * The shape of a contract: a service and the job types that it names, with their schemas and settings.
 */
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { CatchUp, Overlap, ScheduleTiming } from "../core/schedule.js";
import type { AnyHooks } from "./hooks.js";
import type { JobSettings, RetentionOptions } from "./settings.js";

/** A schema of any library that speaks Standard Schema. */
export type Schema = StandardSchemaV1;

/** One version of one job type. */
export interface JobDefinition<
  Payload extends Schema = Schema,
  Result extends Schema | undefined = Schema | undefined,
  Version extends number = number,
  Continuations extends string = string,
  Blockers extends NamedTypes = NamedTypes,
> {
  readonly kind: "job";
  readonly payload: Payload;
  readonly result: Result;
  readonly settings: Omit<JobSettings, "version" | "continuations" | "blockers"> & {
    readonly version: Version;
    readonly continuations: readonly Continuations[];
    readonly blockers?: Blockers;
  };
  readonly hooks?: AnyHooks;
  /** What the definition itself says of how long jobs are kept; the settings have the rest filled in. */
  readonly retention?: RetentionOptions;
}

/** Job types of a service under names of their own. */
export type NamedTypes = { readonly [name: string]: string };

/** A job type: one definition, or several versions side by side of which the highest is current. */
export type JobEntry = JobDefinition | JobVersions;

/** Several versions of a job type, from `versions(…)`. */
export interface JobVersions<
  Definitions extends readonly JobDefinition[] = readonly JobDefinition[],
> {
  readonly kind: "versions";
  readonly definitions: Definitions;
}

/** The job types of a service by name. */
export type JobEntries = { readonly [type: string]: JobEntry };

/** A service and its job types, from `defineService`. */
export interface ServiceContract<Entries extends JobEntries = JobEntries> {
  readonly kind: "service";
  readonly name: string;
  readonly jobs: Entries;
  /** How long ended jobs are kept where their type does not say it. */
  readonly retention?: RetentionOptions;
  /** Whether its payloads and results may be stored encrypted only. */
  readonly encrypted?: boolean;
  /** What the service starts by itself, by name. */
  readonly schedules?: { readonly [name: string]: ScheduleDefinition };
}

/** A schedule with its defaults filled in. Its payload has not met its schema yet. */
export interface ScheduleDefinition {
  readonly timing: Exclude<ScheduleTiming, { readonly kind: "every" }> | EveryTiming;
  readonly type: string;
  readonly version?: number;
  readonly payload: unknown;
  readonly priority?: number;
  readonly deadlineMs?: number;
  readonly enabled?: boolean;
  readonly catchUp: CatchUp;
  readonly catchUpMax: number;
  readonly overlap: Overlap;
  readonly tags: readonly string[];
}

/** An interval before it is known when it begins. */
interface EveryTiming {
  readonly kind: "every";
  readonly everyMs: number;
}

/** One version of a type with its name and its queue. */
export interface BoundJob {
  readonly service: string;
  readonly type: string;
  readonly queue: string;
  readonly definition: JobDefinition;
}

/** Every version of every type of a contract. */
export function boundJobs(contract: ServiceContract): readonly BoundJob[] {
  return Object.entries(contract.jobs).flatMap(([type, entry]) =>
    definitionsOf(entry).map((definition) => ({
      service: contract.name,
      type,
      queue: queueOf(type, definition),
      definition,
    })),
  );
}

/** The versions of an entry, lowest first. */
export function definitionsOf(entry: JobEntry): readonly JobDefinition[] {
  if (entry.kind === "job") return [entry];
  return [...entry.definitions].sort((a, b) => a.settings.version - b.settings.version);
}

/** The queue of a type: the one it names, or its own, in which dots and colons become dashes. */
export function queueOf(type: string, definition: Pick<JobDefinition, "settings">): string {
  return definition.settings.queue.name ?? type.replaceAll(/[.:]/g, "-");
}
