/**
 * Cron expressions in time zones, read by `croner`. The rest of the code knows them by `CronReader` alone.
 */
import { Cron } from "croner";
import type { CronReader, CronTiming } from "../core/schedule.js";

/** How many expressions are kept parsed. */
const parsedMax = 1_000;

/** Expressions longer than this are no mistake of a person's. */
const expressionLengthMax = 256;

const parsed = new Map<string, Cron>();

/** Reads cron expressions. One that was not checked before throws. */
export const cronReader: CronReader = {
  next: (timing, after) => parse(timing).nextRun(new Date(after))?.getTime() ?? null,
  previous: (timing, before, count) =>
    // The library leaves out what lies less than a second before the reference.
    parse(timing)
      .previousRuns(count, new Date(Math.ceil(before / 1_000) * 1_000))
      .map((at) => at.getTime()),
};

/** What is wrong with an expression, as a sentence, or `null` when nothing is. */
export function cronProblem(expression: unknown): string | null {
  if (typeof expression !== "string") return `It must be a string, not ${typeof expression}.`;
  const fields = expression.trim().split(/\s+/);
  if (expression.length > expressionLengthMax || (fields.length !== 5 && fields.length !== 6)) {
    return `"${expression.slice(0, expressionLengthMax)}" is not a cron expression: give minute, hour, day, month and weekday, such as "30 2 * * *", with seconds before them if you need them.`;
  }
  try {
    const timing = { kind: "cron", expression, timeZone: "UTC" } as const;
    if (cronReader.next(timing, Date.UTC(2000, 0, 1)) !== null) return null;
  } catch (error) {
    const why = error instanceof Error ? error.message.replace(/^CronPattern: /, "") : "";
    return `"${expression}" is not a cron expression: ${why.replace(/\.?$/, ".")}`;
  }
  return `"${expression}" never comes: no such day exists.`;
}

/** What is wrong with the name of a time zone, as a sentence, or `null` when nothing is. */
export function timeZoneProblem(timeZone: unknown): string | null {
  const problem = `"${String(timeZone)}" is not a time zone: use a name of the IANA list, such as "Europe/Berlin" or "UTC".`;
  if (typeof timeZone !== "string" || !/^[A-Za-z]/.test(timeZone)) return problem;
  try {
    new Intl.DateTimeFormat("en", { timeZone });
    return null;
  } catch {
    return problem;
  }
}

function parse({ expression, timeZone }: CronTiming): Cron {
  const name = `${timeZone} ${expression}`;
  const known = parsed.get(name);
  if (known !== undefined) return known;
  // Without a function to call the library sets no timer.
  const cron = new Cron(expression, { timezone: timeZone });
  if (parsed.size >= parsedMax) parsed.clear();
  parsed.set(name, cron);
  return cron;
}
