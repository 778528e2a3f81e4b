/**
 * Turns whatever a handler threw into the error that a job keeps: message, name and code,
 * each of bounded length, and never a stack trace.
 */
import type { JobError } from "../core/job.js";

/** The longest message that a job keeps. */
const messageLengthMax = 2_000;

/** The longest error name or code that a job keeps. */
const nameLengthMax = 100;

/** The error that a job keeps of a thrown value. */
export function jobError(thrown: unknown, reason: JobError["reason"]): JobError {
  try {
    return describe(thrown, reason);
  } catch {
    return { message: "The handler threw a value that cannot be read.", reason };
  }
}

/** Cuts a text that is too long for a job to keep, and says so. */
export function cut(text: string, lengthMax: number = messageLengthMax): string {
  return text.length <= lengthMax ? text : `${text.slice(0, lengthMax - 1)}…`;
}

function describe(thrown: unknown, reason: JobError["reason"]): JobError {
  if (typeof thrown === "string") return { message: cut(thrown), reason };
  if (typeof thrown !== "object" || thrown === null || !("message" in thrown)) {
    return { message: cut(`The handler threw ${shown(thrown)}.`), reason };
  }
  const { message } = thrown;
  const name = "name" in thrown ? short(thrown.name) : undefined;
  const code = "code" in thrown ? short(thrown.code) : undefined;
  return {
    message: cut(String(message)),
    ...(name === undefined ? null : { name }),
    ...(code === undefined ? null : { code }),
    reason,
  };
}

function short(value: unknown): string | undefined {
  if (typeof value === "number") return String(value);
  return typeof value === "string" && value !== "" ? cut(value, nameLengthMax) : undefined;
}

function shown(thrown: unknown): string {
  return typeof thrown === "object" ? (JSON.stringify(thrown) ?? "an object") : String(thrown);
}
