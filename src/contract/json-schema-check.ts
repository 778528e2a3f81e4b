/**
 * A JSON Schema as a schema that checks values, so that what a manifest holds works like what a contract was written with.
 * Whoever may accept a contract must not be able to stop the server by it, so that a check that may take long is stopped.
 */
import { createContext, Script } from "node:vm";
import { dereference, type Schema as JsonSchema, Validator } from "@cfworker/json-schema";
import type { Json } from "../core/json.js";
import type { Schema } from "./definition.js";
import { patternsOf } from "./json-schema-problem.js";
import { issuesMax } from "./schema.js";

/** How long one value may be checked. */
const checkMaxMs = 250;

/** How many alternatives a pattern may have before it counts as one that may take long. */
const choicesMax = 8;

/** Makes a checking schema of a JSON Schema (draft 2020-12). It interprets the schema and never turns it into code. */
export function jsonSchemaCheck(jsonSchema: Json): Schema {
  const validator = new Validator(jsonSchema as object | boolean, "2020-12", false);
  const check = (value: unknown) => validator.validate(value);
  const mayTakeLong = Object.values(dereference(jsonSchema as JsonSchema)).some(isIntricate);
  return {
    "~standard": {
      version: 1,
      vendor: "millrace",
      validate(value) {
        try {
          const { valid, errors } = mayTakeLong ? inTime(() => check(value)) : check(value);
          return valid ? { value } : { issues: told(errors) };
        } catch (error) {
          return { issues: [{ message: whyUnchecked(error) }] };
        }
      },
      jsonSchema: { input: () => jsonSchema, output: () => jsonSchema },
    } as Schema["~standard"],
  };
}

/**
 * Why the validator can make nothing of a value. It throws at names that have half of a surrogate pair, which no path can
 * hold, and at schemas that make no sense, and is stopped: none of that may pass for a fault of the process.
 */
function whyUnchecked(error: unknown): string {
  if (error instanceof URIError) return "has a name with half of a surrogate pair";
  // A stopped check throws an error of another realm.
  const { code, message } = error as { readonly code?: string; readonly message?: string };
  if (code === "ERR_SCRIPT_EXECUTION_TIMEOUT")
    return `cannot be checked by the contract's schema within ${checkMaxMs} ms`;
  return `cannot be checked by the contract's schema: ${message ?? String(error)}`;
}

/** An error of a part comes with one of each whole around it, which says less. */
function told(errors: ReturnType<Validator["validate"]>["errors"]) {
  const deepest = errors.filter(({ keyword }) => !combining.has(keyword));
  return (deepest.length > 0 ? deepest : errors)
    .slice(0, issuesMax)
    .map(({ error, instanceLocation }) => ({
      message: error,
      path: instanceLocation.split("/").slice(1).map(unescaped),
    }));
}

const combining: ReadonlySet<string> = new Set(["properties", "items", "prefixItems", "allOf"]);

function unescaped(segment: string): string {
  return decodeURIComponent(segment).replaceAll("~1", "/").replaceAll("~0", "~");
}

const idle = () => undefined;
const called: { work: () => unknown } = { work: idle };
const context = createContext(called);
const caller = new Script("work()");

/** Does synchronous work and stops it, by throwing, when it takes too long. It costs a thread, so that not all work goes through it. */
function inTime<Value>(work: () => Value): Value {
  called.work = work;
  try {
    return caller.runInContext(context, { timeout: checkMaxMs }) as Value;
  } finally {
    called.work = idle;
  }
}

/** Whether a part of a schema may take much longer to go by than a value takes to read. */
function isIntricate(part: JsonSchema | boolean): boolean {
  if (typeof part === "boolean") return false;
  const { $ref, uniqueItems } = part;
  return $ref !== undefined || uniqueItems !== undefined || patternsOf(part).some(isAmbiguous);
}

/**
 * Whether a pattern may go through a text in many ways. Those that plainly do not, such as `^[a-z]+$`, repeat no group and
 * have one repetition at most, which begins at a fixed place.
 */
function isAmbiguous(pattern: unknown): boolean {
  const bare = String(pattern)
    .replaceAll(/\\.|\[(?:\\.|[^\]\\])*\]/gsu, "x")
    .replaceAll(/\(\?(?:[:=!]|<[=!])/g, "(");
  const choices = bare.split("|").length - 1;
  const repetitions = bare.match(/[*+?]|\{\d+,/g)?.length ?? 0;
  if (/\)[*+?{]/.test(bare)) return true;
  if (repetitions === 0) return choices > choicesMax;
  return repetitions > 1 || choices > 0 || !bare.startsWith("^");
}
