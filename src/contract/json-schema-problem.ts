/**
 * What keeps a JSON Schema from being used, found before the first value is checked by it: references that lead nowhere,
 * patterns that are none, and keywords of a wrong shape.
 */
import { dereference } from "@cfworker/json-schema";
import type { Json } from "../core/json.js";

/** A part of a schema, with where its reference leads as the library has noted it. */
type Part = { readonly [keyword: string]: unknown } & { readonly __absolute_ref__?: string };

const types: ReadonlySet<unknown> = new Set([
  ...["null", "boolean", "number", "integer", "string", "array", "object"],
]);

/** Keywords that hold a list, and those that hold an object. */
const lists = ["allOf", "anyOf", "oneOf", "prefixItems", "enum", "required"] as const;
const maps = ["properties", "patternProperties", "dependentSchemas", "$defs"] as const;

/** What is wrong with a JSON Schema, as a sentence that goes on after its name, or `null`. */
export function jsonSchemaProblem(schema: Json): string | null {
  if (typeof schema !== "boolean" && !isObject(schema))
    return "is no JSON Schema, which is an object, true or false";
  try {
    const parts = dereference(schema as object | boolean) as { readonly [uri: string]: Part };
    for (const [uri, part] of Object.entries(parts)) {
      const problem = typeof part === "boolean" ? null : partProblem(part, parts);
      if (problem !== null) return `has at #${new URL(uri).hash.slice(1)} ${problem}`;
    }
    return null;
  } catch (error) {
    return `cannot be read as JSON Schema: ${error instanceof Error ? error.message : error}`;
  }
}

/** The patterns of one part of a schema. */
export function patternsOf({ pattern, patternProperties }: Part): readonly unknown[] {
  const names = isObject(patternProperties) ? Object.keys(patternProperties) : [];
  return pattern === undefined ? names : [pattern, ...names];
}

function partProblem(part: Part, parts: { readonly [uri: string]: Part }): string | null {
  const { type, $ref, __absolute_ref__: uri } = part;
  const wrongType = (Array.isArray(type) ? type : [type]).find((each) => !types.has(each));
  if (type !== undefined && wrongType !== undefined) return `the type ${String(wrongType)}`;
  if ($ref !== undefined && parts[uri ?? ""] === undefined)
    return `the reference ${String($ref)}, which leads nowhere in the schema`;
  const list = lists.find((name) => part[name] !== undefined && !Array.isArray(part[name]));
  if (list !== undefined) return `${list}, which must be a list`;
  const map = maps.find((name) => part[name] !== undefined && !isObject(part[name]));
  if (map !== undefined) return `${map}, which must be an object`;
  const pattern = patternsOf(part).find((each) => !isPattern(each));
  return pattern === undefined ? null : `the pattern ${String(pattern)}, which is none`;
}

function isPattern(pattern: unknown): boolean {
  try {
    return typeof pattern === "string" && new RegExp(pattern, "u") !== null;
  } catch {
    return false;
  }
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
