/**
 * Values of options and arguments: durations, times, whole numbers, choices and JSON. What is wrong is said by name.
 */
import { readFile } from "node:fs/promises";
import { InvalidArgumentError } from "commander";
import { hasDay } from "../server/time-text.js";
import { Failure, messageOf } from "./failure.js";

const unitsMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** The most bytes of a payload or result that are read from a file or from stdin. */
const inputBytesMax = 8 * 1024 * 1024;

/** A duration such as `500ms`, `30s`, `5m`, `2h` or `7d`, in milliseconds. */
export function durationMs(text: string): number {
  const parts = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text);
  if (parts === null)
    throw new InvalidArgumentError("Give a duration such as 500ms, 30s, 5m, 2h or 7d.");
  const [, count, unit] = parts as unknown as [string, string, keyof typeof unitsMs];
  return Math.round(Number(count) * unitsMs[unit]);
}

/** A time such as `2030-01-31T12:00:00Z`, as the API takes it. */
export function time(text: string): string {
  const at = Date.parse(text);
  if (/^\d{4}-\d\d-\d\d/.test(text) && hasDay(text) && !Number.isNaN(at))
    return new Date(at).toISOString();
  throw new InvalidArgumentError("Give a time such as 2030-01-31T12:00:00Z.");
}

/** A time, or how long ago it was, such as `1h`. */
export function timeOrAgo(text: string): string {
  if (!/^\d+(?:\.\d+)?(?:ms|s|m|h|d)$/.test(text)) return time(text);
  return new Date(Date.now() - durationMs(text)).toISOString();
}

/** A whole number within bounds. */
export function wholeNumber(least: number, most = Number.MAX_SAFE_INTEGER) {
  return (text: string): number => {
    const value = Number(text);
    if (/^-?\d+$/.test(text) && value >= least && value <= most) return value;
    const bounds =
      most === Number.MAX_SAFE_INTEGER ? `from ${least} on` : `from ${least} to ${most}`;
    throw new InvalidArgumentError(`Give a whole number ${bounds}.`);
  };
}

/** A whole number, or `none` to take a limit away. */
export function limitOrNone(text: string): number | "none" {
  return text === "none" ? "none" : wholeNumber(1)(text);
}

/** Collects an option that may be given several times, also as a comma list. */
export function list(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, ...text.split(",").filter((part) => part !== "")];
}

/** Collects `name=value` pairs. */
export function pairs(text: string, before: Readonly<Record<string, string>> = {}) {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("Give a name and a value, such as seconds=10.");
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}

/** JSON that is given inline, as `@file`, or as `-` for stdin. */
export async function jsonInput(what: string, text: string): Promise<unknown> {
  const source = await inputText(what, text);
  try {
    return JSON.parse(source);
  } catch (error) {
    throw new Failure("usage", `The ${what} is not JSON: ${messageOf(error)}`);
  }
}

async function inputText(what: string, text: string): Promise<string> {
  if (text === "-") return readStdin(what);
  if (!text.startsWith("@")) return text;
  const path = text.slice(1);
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw new Failure("usage", `The ${what} cannot be read: ${messageOf(error)}`);
  }
}

async function readStdin(what: string): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of process.stdin) {
    parts.push(part);
    bytes += part.length;
    if (bytes > inputBytesMax)
      throw new Failure("usage", `The ${what} is larger than ${inputBytesMax} bytes.`);
  }
  return Buffer.concat(parts).toString("utf8");
}
