/**
 * Schemas of any library that speaks Standard Schema: checking values against them,
 * and reading them as JSON Schema where the library can give that.
 */
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Json } from "../core/json.js";
import type { Schema } from "./definition.js";

/** One thing that is wrong with a value. `path` is a JSON Pointer, empty for the value as a whole. */
export interface SchemaIssue {
  readonly path: string;
  readonly message: string;
}

/** What checking a value gave: the schema's output, or what is wrong. */
export type Validation =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly issues: readonly SchemaIssue[] };

/** The most issues that are reported of one value. */
export const issuesMax = 20;

/** Checks a value. The answer is a promise only when the schema's own is, so that others cost no turn. */
export function validate(schema: Schema, value: unknown): Validation | Promise<Validation> {
  const result = schema["~standard"].validate(value);
  return result instanceof Promise ? result.then(validation) : validation(result);
}

/** All issues as one sentence, such as `/to: expected a string; /orderId: is missing`. */
export function issuesSentence(issues: readonly SchemaIssue[]): string {
  return issues.map(({ path, message }) => (path ? `${path}: ${message}` : message)).join("; ");
}

/** The JSON Schema of what a schema takes or gives, or `null` when its library cannot say. */
export function jsonSchemaOf(schema: Schema, side: "input" | "output"): Json | null {
  // A converter throws when it meets something that JSON Schema has no word for.
  try {
    const found = standardJsonSchema(schema, side) ?? ownJsonSchema(schema, side);
    return found === undefined ? null : (JSON.parse(JSON.stringify(found)) as Json);
  } catch {
    return null;
  }
}

/** Whether a value is a schema of a library that speaks Standard Schema. */
export function isSchema(value: unknown): value is Schema {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  const standard = (value as { readonly "~standard"?: { readonly validate?: unknown } })[
    "~standard"
  ];
  return (
    typeof standard === "object" && standard !== null && typeof standard.validate === "function"
  );
}

function validation(result: StandardSchemaV1.Result<unknown>): Validation {
  if (result.issues === undefined) return { ok: true, value: result.value };
  return { ok: false, issues: result.issues.slice(0, issuesMax).map(issueOf) };
}

function issueOf(issue: StandardSchemaV1.Issue): SchemaIssue {
  const path = (issue.path ?? [])
    .map((segment) => String(typeof segment === "object" ? segment.key : segment))
    .map((name) => `/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`)
    .join("");
  return { path, message: issue.message };
}

/** Standard JSON Schema: the converter that newer libraries carry beside `validate`. */
function standardJsonSchema(schema: Schema, side: "input" | "output"): unknown {
  const { jsonSchema } = schema["~standard"] as { readonly jsonSchema?: Converter };
  return jsonSchema?.[side]({ target: "draft-2020-12" });
}

type Converter = {
  readonly [side in "input" | "output"]: (options: { readonly target: string }) => unknown;
};

/** A method of the library's own, as zod and arktype name it. */
function ownJsonSchema(schema: Schema, side: "input" | "output"): unknown {
  const { toJSONSchema, toJsonSchema } = schema as {
    readonly toJSONSchema?: (options: { readonly io: string }) => unknown;
    readonly toJsonSchema?: () => unknown;
  };
  if (typeof toJSONSchema === "function") return toJSONSchema.call(schema, { io: side });
  return typeof toJsonSchema === "function" ? toJsonSchema.call(schema) : undefined;
}
