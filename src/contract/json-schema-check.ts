/**
 * A JSON Schema as a schema that checks values, so that what a manifest holds works like what a contract was written with.
 */
import { type ValidationResult, Validator } from "@cfworker/json-schema";
import type { Json } from "../core/json.js";
import type { Schema } from "./definition.js";
import { issuesMax } from "./schema.js";

/** Makes a checking schema of a JSON Schema (draft 2020-12). It interprets the schema and never turns it into code. */
export function jsonSchemaCheck(jsonSchema: Json): Schema {
  const validator = new Validator(jsonSchema as object | boolean, "2020-12", false);
  return {
    "~standard": {
      version: 1,
      vendor: "millrace",
      validate(value) {
        const checked = check(validator, value);
        if (typeof checked === "string") return { issues: [{ message: checked }] };
        const { valid, errors } = checked;
        if (valid) return { value };
        // An error of a part comes with one of each whole around it, which says less.
        const deepest = errors.filter(({ keyword }) => !combining.has(keyword));
        const told = deepest.length > 0 ? deepest : errors;
        return {
          issues: told.slice(0, issuesMax).map(({ error, instanceLocation }) => ({
            message: error,
            path: instanceLocation.split("/").slice(1).map(unescaped),
          })),
        };
      },
      jsonSchema: { input: () => jsonSchema, output: () => jsonSchema },
    } as Schema["~standard"],
  };
}

/**
 * What the validator makes of a value, or why it can make nothing of it. It throws at names that have half of a surrogate
 * pair, which no path can hold, and at schemas that make no sense: neither may pass for a fault of the process.
 */
function check(validator: Validator, value: unknown): ValidationResult | string {
  try {
    return validator.validate(value);
  } catch (error) {
    if (error instanceof URIError) return "has a name with half of a surrogate pair";
    return `cannot be checked: ${error instanceof Error ? error.message : String(error)}`;
  }
}

const combining: ReadonlySet<string> = new Set(["properties", "items", "prefixItems", "allOf"]);

function unescaped(segment: string): string {
  return decodeURIComponent(segment).replaceAll("~1", "/").replaceAll("~0", "~");
}
