/**
 * Schedules: which instants have come since the last look, which of them are fired, and the id of the job of each.
 * Pure: what a cron expression means is handed in.
 */
import { createHash } from "node:crypto";

/** Instants by the wall clock of a time zone. */
export interface CronTiming {
  readonly kind: "cron";
  /** Minute, hour, day, month and weekday, with seconds before them if there are six. */
  readonly expression: string;
  readonly timeZone: string;
}

/** When a schedule fires. */
export type ScheduleTiming =
  | CronTiming
  /** Every so often after a point in time. */
  | { readonly kind: "every"; readonly everyMs: number; readonly anchor: number }
  /** Once. */
  | { readonly kind: "at"; readonly at: number };

/** What a cron expression means. */
export interface CronReader {
  /** The first instant after a time; `null` when none comes any more. */
  next(timing: CronTiming, after: number): number | null;
  /** The newest instants before a time, newest first. */
  previous(timing: CronTiming, before: number, count: number): readonly number[];
}

/** What becomes of instants that nobody was there to fire in time. */
export const catchUpPolicies = ["none", "last", "all"] as const;
export type CatchUp = (typeof catchUpPolicies)[number];

/** What happens when an instant comes while the job of the one before has not ended. */
export const overlapPolicies = ["allow", "skip"] as const;
export type Overlap = (typeof overlapPolicies)[number];

/** How late an instant may be fired without counting as missed. Longer than another leader takes to take over. */
const missedAfterMs = 60_000;

/** The shortest interval. */
export const everyMinMs = 100;

/** The most instants that can come within `missedAfterMs`. */
const onTimeMax = missedAfterMs / everyMinMs + 1;

/** What of a schedule decides about its instants. */
export interface ScheduleClockwork {
  readonly timing: ScheduleTiming;
  readonly catchUp: CatchUp;
  readonly catchUpMax: number;
  /** Everything up to this time has been decided about, and is never looked at again. */
  readonly decidedUntil: number;
}

/** What is to be done about the instants that have come. */
export interface DuePlan {
  /** The instants to fire, oldest first. */
  readonly fire: readonly number[];
  /** The newest instant that is passed over; `null` if none is. */
  readonly missed: number | null;
  /** Up to where this decides. */
  readonly until: number;
}

/** The first instant after a time; `null` when none comes any more. */
export function nextInstant(
  timing: ScheduleTiming,
  after: number,
  cron: CronReader,
): number | null {
  switch (timing.kind) {
    case "cron":
      return cron.next(timing, after);
    case "every": {
      const { everyMs, anchor } = timing;
      const steps = Math.max(Math.floor((after - anchor) / everyMs) + 1, 1);
      return anchor + steps * everyMs;
    }
    case "at":
      return timing.at > after ? timing.at : null;
  }
}

/** The newest instants before a time, oldest first. */
function instantsBefore(
  timing: ScheduleTiming,
  before: number,
  count: number,
  cron: CronReader,
): readonly number[] {
  switch (timing.kind) {
    case "cron":
      return cron.previous(timing, before, count).toReversed();
    case "every": {
      const { everyMs, anchor } = timing;
      const steps = Math.ceil((before - anchor) / everyMs) - 1;
      const kept = Math.max(Math.min(count, steps), 0);
      return Array.from({ length: kept }, (_, index) => {
        return anchor + (steps - kept + 1 + index) * everyMs;
      });
    }
    case "at":
      return timing.at < before ? [timing.at] : [];
  }
}

/**
 * Decides about the instants that have come since the last look; `null` when none has.
 * Those of the last minute are on time and fired. For older ones the catch-up policy says what becomes of them:
 * `none` passes them over, `last` fires the newest of all that have come and no other, `all` fires the newest of them,
 * up to the schedule's limit.
 */
export function planDue(
  { timing, catchUp, catchUpMax, decidedUntil }: ScheduleClockwork,
  now: number,
  cron: CronReader,
): DuePlan | null {
  const lateUntil = Math.max(decidedUntil, now - missedAfterMs);
  const onTime = instantsBetween(timing, lateUntil, now, onTimeMax, cron);
  // One more than are fired shows whether there are any that are not.
  const late =
    lateUntil === decidedUntil
      ? []
      : newestBetween(
          timing,
          decidedUntil,
          lateUntil,
          catchUp === "all" ? catchUpMax + 1 : 1,
          cron,
        );
  const newest = onTime.at(-1) ?? late.at(-1);
  if (newest === undefined) return null;
  if (late.length === 0) return { fire: onTime, missed: null, until: newest };
  switch (catchUp) {
    case "none":
      return { fire: onTime, missed: late.at(-1) ?? null, until: newest };
    case "last":
      return { fire: [newest], missed: null, until: newest };
    case "all": {
      const missed = late.length > catchUpMax ? (late[0] ?? null) : null;
      const caughtUp = late.slice(missed === null ? 0 : 1);
      return { fire: [...caughtUp, ...onTime], missed, until: newest };
    }
  }
}

/** The newest instants after one time, up to another, at most so many, oldest first. */
function newestBetween(
  timing: ScheduleTiming,
  after: number,
  until: number,
  count: number,
  cron: CronReader,
): readonly number[] {
  // There are few, most of the time, and looking ahead finds them faster than looking back finds as many as there may be.
  const first = instantsBetween(timing, after, until, count, cron);
  if (first.length < count) return first;
  return instantsBefore(timing, until + 1, count, cron);
}

function instantsBetween(
  timing: ScheduleTiming,
  after: number,
  until: number,
  count: number,
  cron: CronReader,
): readonly number[] {
  const instants: number[] = [];
  let at = nextInstant(timing, after, cron);
  while (at !== null && at <= until && instants.length < count) {
    instants.push(at);
    at = nextInstant(timing, at, cron);
  }
  return instants;
}

/** How many digits of the hash tell schedules apart in the ids of their jobs. */
const hashLength = 20;

/**
 * The id of the job of an instant: always the same, whoever fires it and however often, so that it is fired once.
 * It ends with the instant in UTC.
 */
export function scheduledJobId(service: string, name: string, instant: number): string {
  const hash = createHash("sha256").update(`${service}/${name}`).digest("hex");
  const at = new Date(instant).toISOString().replaceAll(/[-:.]/g, "");
  return `schedule-${hash.slice(0, hashLength)}-${at}`;
}

/** The tag that the jobs of a schedule have. */
export function scheduleTag(name: string): string {
  return `schedule:${name}`;
}
