/**
 * JSON values, their one canonical form, and the limits that every payload and result obeys.
 */
import { createHash } from "node:crypto";

/** Any JSON value. */
export type Json =
  | string
  | number
  | boolean
  | null
  | readonly Json[]
  | { readonly [name: string]: Json };

/** How large and how deep a payload or a result may be. */
export interface JsonLimits {
  readonly bytesMax: number;
  readonly depthMax: number;
}

/** The limits of payloads and results. */
export const payloadLimits: JsonLimits = { bytesMax: 256 * 1024, depthMax: 32 };

/** Names that would reach an object's prototype in a careless reader, so that no payload may hold them. */
const forbiddenNames: ReadonlySet<string> = new Set(["__proto__", "constructor", "prototype"]);

/** Why a value cannot be stored as JSON. */
export interface JsonProblem {
  readonly path: string;
  readonly message: string;
}

/** The outcome of reading a caller's value as JSON: its text, or what is wrong with it. */
export type JsonText =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly problem: JsonProblem };

/**
 * Writes a caller's value as JSON text. Values that JSON would drop or change silently
 * (functions, symbols, bigints, `NaN`, cycles, maps and sets) are refused with the path to them.
 */
export function jsonText(value: unknown, limits: JsonLimits = payloadLimits): JsonText {
  const problem = findProblem(value, "", 0, limits.depthMax);
  if (problem) return { ok: false, problem };
  const text: string | undefined = JSON.stringify(value ?? null);
  if (text === undefined) return refused("becomes undefined, which JSON cannot hold");
  if (text.length * 3 > limits.bytesMax) {
    const bytes = new TextEncoder().encode(text).length;
    if (bytes > limits.bytesMax) {
      return refused(
        `is ${bytes} bytes as JSON; at most ${limits.bytesMax} are allowed, so store large data elsewhere and pass a reference`,
      );
    }
  }
  return { ok: true, text };
}

function refused(message: string): JsonText {
  return { ok: false, problem: { path: "", message } };
}

function findProblem(
  value: unknown,
  path: string,
  depth: number,
  depthMax: number,
): JsonProblem | null {
  switch (typeof value) {
    case "string":
    case "boolean":
    case "undefined":
      return null;
    case "number":
      return Number.isFinite(value)
        ? null
        : { path, message: `is ${value}, which JSON cannot hold` };
    case "object":
      return value === null ? null : findProblemInside(value, path, depth + 1, depthMax);
    default:
      return { path, message: `is a ${typeof value}, which JSON cannot hold` };
  }
}

function findProblemInside(
  value: object,
  path: string,
  depth: number,
  depthMax: number,
): JsonProblem | null {
  if (depth > depthMax) return { path, message: `is nested deeper than ${depthMax} levels` };
  if ("toJSON" in value && typeof value.toJSON === "function") {
    return findProblem(value.toJSON(), path, depth, depthMax);
  }
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const problem = findProblem(value[index], `${path}/${index}`, depth, depthMax);
      if (problem) return problem;
    }
    return null;
  }
  if (value instanceof Map || value instanceof Set) {
    return {
      path,
      message: "is a Map or Set, which JSON would store as {}; use an object or an array",
    };
  }
  if (value instanceof BigInt) return { path, message: "is a bigint, which JSON cannot hold" };
  for (const name of Object.keys(value)) {
    if (forbiddenNames.has(name))
      return { path: `${path}/${name}`, message: "is a name that payloads may not use" };
    const problem = findProblem(
      (value as Record<string, unknown>)[name],
      `${path}/${name}`,
      depth,
      depthMax,
    );
    if (problem) return problem;
  }
  return null;
}

/**
 * One text for one value: object members sorted by name, members that are `undefined` left out.
 * The form is that of RFC 8785, whose rules for strings and numbers are those of `JSON.stringify`.
 */
export function canonicalJson(value: unknown): string {
  if (value === undefined) return "null";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  const members: string[] = [];
  for (const name of Object.keys(value).sort()) {
    const member = (value as Record<string, unknown>)[name];
    if (member !== undefined) members.push(`${JSON.stringify(name)}:${canonicalJson(member)}`);
  }
  return `{${members.join(",")}}`;
}

/** The SHA-256 of a value's canonical form, in hexadecimal. */
export function canonicalHash(value: unknown): string {
  return createHash("sha256").update(canonicalJson(value)).digest("hex");
}
