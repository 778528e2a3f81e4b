/**
 * Checks of the options of a call, so that a mistake is answered with the option's name and a remedy.
 */
import { InvalidOption } from "./errors.js";
import { isLikeClient } from "./transactions/transaction-client.js";

/** Says what is wrong with the value of an option, as a sentence, or `null` when nothing is. */
export type OptionCheck = (value: unknown) => string | null;

/** The options that a call knows, each with its check. */
export type OptionChecks = { readonly [option: string]: OptionCheck };

/** The latest time that a `Date` can hold, in milliseconds since 1970. */
const timeMaxMs = 8.64e15;

/** Names that are no options of a call but might be taken for some, each with a clause that says where they belong. */
export type OptionsElsewhere = { readonly [option: string]: string };

const nowhere: OptionsElsewhere = {};

/** What is wrong with the options of a call, or `null` when nothing is. */
export function optionsProblem(
  call: string,
  options: unknown,
  checks: OptionChecks,
  elsewhere: OptionsElsewhere = nowhere,
): InvalidOption | null {
  if (!isObject(options) || !isPlain(options)) {
    const problem = clientProblem(call, options, checks) ?? objectProblem(call, options);
    if (problem !== null) return problem;
  }
  let isEmpty = true;
  const fields = options as { readonly [name: string]: unknown };
  for (const field in fields) {
    isEmpty = false;
    const value = fields[field];
    if (value === undefined) continue;
    const check = Object.hasOwn(checks, field) ? checks[field] : undefined;
    if (check === undefined) {
      const client = clientProblem(call, options, checks);
      if (client !== null) return client;
      const clause = Object.hasOwn(elsewhere, field)
        ? elsewhere[field]
        : `is not an option of ${call}; use one of ${Object.keys(checks).join(", ")}.`;
      return new InvalidOption({ field, message: `${field} ${clause}` });
    }
    const problem = optionProblem(field, value, check);
    if (problem !== null) return problem;
  }
  // Some clients show none of their members.
  return isEmpty ? clientProblem(call, options, checks) : null;
}

/** The error of a client of a database in place of options, which would not be used at all; `null` where it is none. */
function clientProblem(call: string, options: unknown, checks: OptionChecks): InvalidOption | null {
  if (!isLikeClient(options)) return null;
  const given = `The options of ${call} look like a client of a database`;
  return Object.hasOwn(checks, "tx")
    ? new InvalidOption({ field: "tx", message: `${given}; give it by its name, as { tx }.` })
    : new InvalidOption({ field: "options", message: `${given}, which it does not take.` });
}

function isPlain(options: object): boolean {
  const prototype = Object.getPrototypeOf(options);
  return prototype === Object.prototype || prototype === null;
}

/** The error of options that are no object, or `null` when they are one. */
function objectProblem(call: string, options: unknown): InvalidOption | null {
  if (isObject(options)) return null;
  const message = `The options of ${call} must be an object, not ${kindOf(options)}.`;
  return new InvalidOption({ field: "options", message });
}

/** What is wrong with one option, or `null` when nothing is. */
export function optionProblem(
  field: string,
  value: unknown,
  check: OptionCheck,
): InvalidOption | null {
  const problem = check(value);
  return problem === null ? null : new InvalidOption({ field, message: `${field}: ${problem}` });
}

/** What is wrong with the names of an option's own fields, as a sentence, or `null` where all are known. */
export function fieldsProblem(
  value: { readonly [name: string]: unknown },
  ...known: readonly string[]
): string | null {
  for (const name in value)
    if (value[name] !== undefined && !known.includes(name))
      return `It has no field ${name}; use ${known.join(", ")}.`;
  return null;
}

/** Whether a value has members to look at. */
export function isObject(value: unknown): value is { readonly [name: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The id of what is named by its id or its ref; `null` where it is neither. */
export function idOf(named: unknown): string | null {
  if (typeof named === "string") return named;
  return isObject(named) && typeof named.id === "string" ? named.id : null;
}

/** What a value is, in a word of a message. */
export function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : typeof value;
}

/** A time of the caller's in whole milliseconds, which are all that a store keeps. */
export function timeMs(time: Date | number): number {
  return Math.round(typeof time === "number" ? time : time.getTime());
}

/** Takes a `Date`, or milliseconds that a `Date` can hold. */
export function timeProblem(time: unknown): string | null {
  const isTime = typeof time === "number" || time instanceof Date;
  return isTime && Math.abs(timeMs(time)) <= timeMaxMs
    ? null
    : "It must be a valid Date or milliseconds since 1970.";
}

/** Takes whole numbers within bounds. */
export function whole(least: number, most: number): OptionCheck {
  return (value) =>
    Number.isInteger(value) && rangeProblem(value, least, most) === null
      ? null
      : `${String(value)} is not a whole number from ${least} to ${most}.`;
}

/** What is wrong with a number that has its bounds, as a sentence, or `null` when nothing is. */
export function rangeProblem(value: unknown, least: number, most: number): string | null {
  const good = typeof value === "number" && value >= least && value <= most;
  return good ? null : `${String(value)} is not a number from ${least} to ${most}.`;
}

/** Takes strings. */
export function stringProblem(value: unknown): string | null {
  return typeof value === "string" ? null : `It must be a string, not ${kindOf(value)}.`;
}

/** Takes functions. */
export function functionProblem(value: unknown): string | null {
  return typeof value === "function" ? null : `It must be a function, not ${kindOf(value)}.`;
}

/** Takes `true` and `false`. */
export function yesOrNoProblem(value: unknown): string | null {
  return typeof value === "boolean" ? null : `It must be true or false, not ${kindOf(value)}.`;
}

/** Takes whatever has the members of an `AbortSignal`, so that a signal of another realm is one, too. */
export function signalProblem(value: unknown): string | null {
  const signal = isObject(value) ? value : {};
  const good =
    typeof signal.aborted === "boolean" &&
    typeof signal.addEventListener === "function" &&
    typeof signal.removeEventListener === "function";
  return good ? null : "It must be an AbortSignal, such as the signal of an AbortController.";
}

/** Takes cursors of the feed, each as its store gives them. */
export function feedCursorProblem(value: unknown): string | null {
  const good = typeof value === "string" && feedCursorPattern.test(value);
  return good ? null : "It must be a cursor as an earlier answer gave it.";
}

/** What the cursors of all feeds are made of: positions, and snapshots of PostgreSQL. */
export const feedCursorPattern = /^[0-9:,/]{1,4000}$/;

/** Takes cursors of lists, which are positions in decimal digits. */
export function cursorProblem(value: unknown): string | null {
  const good =
    typeof value === "string" && /^\d{1,16}$/.test(value) && Number.isSafeInteger(Number(value));
  return good ? null : "It must be a cursor as an earlier answer gave it.";
}

/** Takes objects that have some functions. */
export function membersProblem(...names: readonly string[]): OptionCheck {
  return (value) =>
    isObject(value) && names.every((name) => typeof value[name] === "function")
      ? null
      : `It must be an object with the functions ${names.join(", ")}.`;
}
