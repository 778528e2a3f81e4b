/**
 * Schedules as a contract or a caller writes them: their options, the checks of these, and what they mean with the
 * defaults filled in.
 */
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { integerMax } from "../core/job.js";
import type { Json } from "../core/json.js";
import { nameProblem } from "../core/names.js";
import { priorityMax, priorityMin } from "../core/order.js";
import { delayMaxMs } from "../core/retry.js";
import {
  type CatchUp,
  catchUpPolicies,
  everyMinMs,
  type Overlap,
  overlapPolicies,
} from "../core/schedule.js";
import { cronProblem, timeZoneProblem } from "./cron.js";
import type {
  JobDefinition,
  JobEntries,
  JobEntry,
  JobVersions,
  ScheduleDefinition,
} from "./definition.js";
import { type Checks, checkMembers, fail, oneOf, whole, yesOrNo } from "./validate.js";

/** Every option of a schedule. One of `cron`, `everyMs` and `at` says when it fires. */
export interface ScheduleOptions {
  /** Minute, hour, day, month and weekday, such as `"30 2 * * 1-5"`; six fields begin with the second. */
  readonly cron?: string;
  /** The zone whose wall clock `cron` goes by, such as `"Europe/Berlin"`; `"UTC"` by default. */
  readonly timeZone?: string;
  /** Fires every so often, counted from the creation of the schedule; 100 ms or more. */
  readonly everyMs?: number;
  /** Fires once, at this time. */
  readonly at?: Date | number;
  /** The version of the job type; the contract's current one, or 1. */
  readonly version?: number;
  /** Higher goes first; the type's own by default. */
  readonly priority?: number;
  /** How long after its instant a job expires, in place of the type's `deadlineMs`. */
  readonly deadlineMs?: number;
  /** Whether it fires; true by default. */
  readonly enabled?: boolean;
  /**
   * What becomes of instants that nobody was there to fire within a minute: `none` (the default) passes them over, `last`
   * fires the newest, `all` fires them up to `catchUpMax`.
   */
  readonly catchUp?: CatchUp;
  /** How many missed instants `all` fires at most, the newest of them; 100 by default. */
  readonly catchUpMax?: number;
  /** Whether an instant fires while the job of the last one has not ended: `allow` (the default) or `skip`. */
  readonly overlap?: Overlap;
  /** Words to find the jobs by, besides `schedule:<name>`; at most 19. */
  readonly tags?: readonly string[];
}

/** A schedule by the name of a job type, with any JSON as the payload. */
export interface ScheduleInput extends ScheduleOptions {
  readonly type: string;
  readonly payload: Json;
}

/** What jobs of an entry take: the payload of its one version, or of any of them. */
type EntryInput<Entry extends JobEntry> =
  Entry extends JobVersions<infer Definitions>
    ? StandardSchemaV1.InferInput<Definitions[number]["payload"]>
    : Entry extends JobDefinition
      ? StandardSchemaV1.InferInput<Entry["payload"]>
      : never;

/** A schedule of a contract: of one of its job types, with a payload that fits. */
export type ScheduleSpec<Entries extends JobEntries> = {
  readonly [Type in SchedulableOf<Entries>]: ScheduleOptions & {
    readonly type: Type;
    readonly payload: EntryInput<Entries[Type]>;
  };
}[SchedulableOf<Entries>];

/** The job types that a schedule can make jobs of: those of which a definition names no blockers. */
type SchedulableOf<Entries extends JobEntries> = {
  readonly [Type in keyof Entries & string]: [NamesBlockers<Entries[Type]>] extends [true]
    ? never
    : Type;
}[keyof Entries & string];

type NamesBlockers<Entry extends JobEntry> =
  Entry extends JobVersions<infer Definitions>
    ? NamesBlockers<Definitions[number]>
    : Entry extends JobDefinition
      ? IsNamed<keyof NonNullable<Entry["settings"]["blockers"]>>
      : never;

/** Whether names are known; those of no blockers at all, or of any, are every string. */
type IsNamed<Names> = string extends Names ? false : true;

/** How many schedules a service may have. */
export const schedulesMax = 1_000;

/** How many missed instants a schedule may ask for. */
const catchUpLimit = 1_000;
const catchUpDefault = 100;

/** One tag less than a job may have, because the schedule's own is added. */
const tagsMax = 19;

/** The latest time that a `Date` can hold, in milliseconds since 1970. */
const timeMaxMs = 8.64e15;

const scheduleChecks: { readonly [Name in keyof ScheduleInput]-?: Checks[string] } = {
  type: (type) => nameProblem("type", type),
  payload: () => null,
  cron: cronProblem,
  timeZone: timeZoneProblem,
  everyMs: whole(everyMinMs, delayMaxMs),
  at: (at) =>
    (typeof at === "number" || at instanceof Date) && Math.abs(Number(at)) <= timeMaxMs
      ? null
      : "must be a valid Date or milliseconds since 1970",
  version: whole(1, integerMax),
  priority: whole(priorityMin, priorityMax),
  deadlineMs: whole(1, delayMaxMs),
  enabled: yesOrNo,
  catchUp: oneOf(...catchUpPolicies),
  catchUpMax: whole(1, catchUpLimit),
  overlap: oneOf(...overlapPolicies),
  tags: tagsCheck,
};

/** The names of all options of a schedule. */
export const scheduleFields: readonly string[] = Object.keys(scheduleChecks);

/** Fills in the defaults. Throws `InvalidDefinition` for the first option that cannot work; `place` goes before its name. */
export function resolveSchedule(spec: ScheduleInput, place = ""): ScheduleDefinition {
  checkMembers(place, spec, scheduleChecks);
  const at = (field: string) => (place ? `${place}.${field}` : field);
  if (spec.type === undefined) fail(at("type"), "is missing; name a job type");
  if (spec.payload === undefined) fail(at("payload"), "is missing; give null or {} if it is empty");
  if (spec.timeZone !== undefined && spec.cron === undefined)
    fail(at("timeZone"), "has no meaning without cron; leave it out");
  if (spec.catchUpMax !== undefined && spec.catchUp !== "all")
    fail(at("catchUpMax"), 'has no meaning unless catchUp is "all"');
  const { version, priority, deadlineMs, enabled } = spec;
  return {
    timing: timingOf(spec, at),
    type: spec.type,
    payload: spec.payload,
    catchUp: spec.catchUp ?? "none",
    catchUpMax: spec.catchUpMax ?? catchUpDefault,
    overlap: spec.overlap ?? "allow",
    tags: [...new Set(spec.tags)],
    ...(version === undefined ? null : { version }),
    ...(priority === undefined ? null : { priority }),
    ...(deadlineMs === undefined ? null : { deadlineMs }),
    ...(enabled === undefined ? null : { enabled }),
  };
}

function timingOf(
  { cron, timeZone = "UTC", everyMs, at }: ScheduleOptions,
  place: (field: string) => string,
): ScheduleDefinition["timing"] {
  const given = Object.entries({ cron, everyMs, at }).filter(([, value]) => value !== undefined);
  const [first, second] = given.map(([field]) => field);
  if (first === undefined) fail(place("cron"), "is missing; give cron, everyMs or at");
  if (second !== undefined) fail(place(second), `does not go with ${first}; give one of them`);
  if (cron !== undefined) return { kind: "cron", expression: cron.trim(), timeZone };
  return everyMs === undefined
    ? { kind: "at", at: Math.round(Number(at)) }
    : { kind: "every", everyMs };
}

function tagsCheck(tags: unknown): string | null {
  if (!Array.isArray(tags)) return "must be a list of words";
  if (tags.length > tagsMax) return `are ${tags.length}; at most ${tagsMax} are allowed`;
  for (const tag of tags) {
    const problem = nameProblem("tag", tag);
    if (problem !== null) return problem;
  }
  return null;
}
