/**
 * Reading JSON Schemas as plain data: their keywords, the shapes that a value may have, and what references lead to.
 */
import { canonicalJson, type Json } from "../core/json.js";

/** A JSON Schema that is not `true` or `false`. */
export type Keywords = { readonly [keyword: string]: Json };

/** Keywords that say something about a schema and nothing about a value. */
const annotations: ReadonlySet<string> = new Set([
  "$schema",
  "$id",
  "id",
  "$comment",
  "$defs",
  "definitions",
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
  "readOnly",
  "writeOnly",
]);

/** The schemas of which each value fits one, where there are several: alternatives, or types side by side. */
export function shapesOf(old: Keywords): readonly Json[] | null {
  const { allOf, ...whole } = old;
  if (allOf !== undefined) {
    const parts = list(allOf).map((part) => keywordsOf(part));
    return [parts.reduce(together, whole)];
  }
  const { anyOf, oneOf, ...rest } = old;
  const choices = anyOf ?? oneOf;
  if (choices !== undefined) {
    return list(choices).map((choice) =>
      typeof choice === "boolean" ? choice : together(rest, keywordsOf(choice)),
    );
  }
  if (!Array.isArray(old.type)) return null;
  return old.type.map((type: Json) => ({ ...old, type }));
}

/** Keywords that hold schemas which apply to the same value. */
const combining = ["$ref", "anyOf", "oneOf", "allOf"] as const;

/**
 * A schema that takes at least what both take. Where both speak of the same, one of them is enough to go by;
 * but the properties that the other's parts name may then hold anything.
 */
function together(one: Keywords, other: Keywords): Keywords {
  const hides = combining.some((keyword) => keyword in one && keyword in other);
  const properties = {
    ...keywordsOf(one.properties ?? {}, false),
    ...keywordsOf(other.properties ?? {}, false),
  };
  const required = [...new Set([...list(one.required), ...list(other.required)])];
  const open = hides ? { additionalProperties: true } : null;
  return { ...one, ...other, properties, required, ...open };
}

/** Whether a property with values of its own tells the alternatives apart, so that a value fits at most one. */
export function isDiscriminated(oneOf: Json | undefined): boolean {
  const choices = list(oneOf).map((choice) => keywordsOf(choice));
  return list(choices[0]?.required).some((name) => {
    const values = choices.map(({ required, properties }) => {
      const property = keywordsOf(properties ?? {}, false)[String(name)];
      return list(required).includes(name) && property !== undefined
        ? valuesOf(keywordsOf(property))?.map(canonicalJson)
        : undefined;
    });
    const all = values.flat();
    return !values.includes(undefined) && new Set(all).size === all.length;
  });
}

/** The part of a schema that speaks of values. Names of properties are never taken for keywords. */
export function keywordsOf(schema: Json, isSchema = true): Keywords {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return {};
  const entries = Object.entries(schema as Keywords);
  return Object.fromEntries(
    isSchema ? entries.filter(([name]) => !annotations.has(name)) : entries,
  );
}

/** What a reference within a schema leads to, together with what stands beside it; `null` if nothing. */
export function resolved(root: Json, schema: Keywords): Json | null {
  const { $ref, ...beside } = schema;
  if ($ref === undefined) return schema;
  if (typeof $ref !== "string" || !$ref.startsWith("#")) return null;
  let found: Json | undefined = root;
  for (const part of $ref.split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof found !== "object" || found === null) return null;
    found = (found as Keywords)[name];
  }
  if (found === undefined) return null;
  return Object.keys(beside).length === 0 ? found : { allOf: [found, beside] };
}

/** Whether equal text means an equal schema: references may lead to different places. */
export function isClosed(schema: Keywords): boolean {
  return !canonicalJson(schema).includes('"$ref"');
}

/** The types that values of a schema may have. */
export function typesOf(schema: Keywords): readonly string[] {
  if (schema.type !== undefined) return list(schema.type).map(String);
  const values = valuesOf(schema);
  if (values === undefined) return ["null", "boolean", "number", "string", "array", "object"];
  return [...new Set(values.map(typeOf))];
}

function typeOf(value: Json): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return Number.isInteger(value) ? "integer" : typeof value;
}

/** The values that a schema lists, if it does. */
export function valuesOf(schema: Keywords): readonly Json[] | undefined {
  if ("const" in schema) return [schema.const ?? null];
  return schema.enum === undefined ? undefined : list(schema.enum);
}

/** A keyword's value as a list: several, one, or none. */
export function list(value: Json | undefined): readonly Json[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value as Json];
}
