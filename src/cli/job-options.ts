/**
 * What is said of a new job, whether it is created or goes on from one that is completed: options, and what is sent.
 */
import type { Option } from "commander";
import { type BlockerOptions, blockerOptions, blockersBody } from "./blockers.js";
import { option } from "./define.js";
import { durationMs, list, time, wholeNumber } from "./values.js";

/** What the options say. */
export interface JobOptions extends BlockerOptions {
  readonly priority?: number;
  readonly delay?: number;
  readonly runAt?: string;
  readonly deadline?: string;
  readonly maxTries?: number;
  readonly tag?: readonly string[];
}

/** The options of a command that makes a job. */
export const jobOptions = (): readonly Option[] => [
  option(
    "--priority <number>",
    "higher goes first (default 0)",
    wholeNumber(-1_000_000, 1_000_000),
  ),
  option("--delay <duration>", "not before this time has passed", durationMs),
  option("--run-at <time>", "not before this time", time),
  option("--deadline <time>", "expires if it has not ended by then", time),
  option("--max-tries <number>", "how often it is tried", wholeNumber(1)),
  ...blockerOptions(),
  option("--tag <tags>", "mark it (repeatable)", list),
];

/** The first of these options that was given, as it is typed. */
export function jobOptionGiven(options: JobOptions): string | undefined {
  const given: Readonly<Record<string, unknown>> = { ...options };
  const found = jobOptions().find((one) => given[one.attributeName()] !== undefined);
  return found?.long ?? undefined;
}

/** The same for the body of a request. */
export function jobBody(options: JobOptions): object {
  const { priority, delay: delayMs, runAt, deadline, maxTries, tag: tags } = options;
  return { priority, delayMs, runAt, deadline, maxTries, tags, ...blockersBody(options) };
}
