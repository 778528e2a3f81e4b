/**
 * Reading a request: its body within a limit, its JSON, and its query by the types that the route's schema names.
 */
import type { z } from "zod";
import type { Incoming } from "./incoming.js";
import { badArgument, refused } from "./refusal.js";

/** How large a body may be unless the server or the route says otherwise. */
export const bodyBytesMax = 512 * 1024;

/** How large the body of a bulk route may be. */
export const bulkBytesMax = 8 * 1024 * 1024;

/** How deep a body may be nested: what is around a payload or a schema comes to its own 32 levels. */
const depthMax = 64;

/** Reads the body as JSON. An empty one is an empty object, so that commands need none. */
export async function bodyJson(request: Incoming, bytesMax: number): Promise<unknown> {
  const text = await request.text(bytesMax);
  if (text === null) throw tooLarge(bytesMax);
  if (text === "" || text.trim() === "") return {};
  const contentType = request.header("content-type");
  if (contentType !== null && contentType !== "application/json" && !jsonType.test(contentType)) {
    const message = `The body must be application/json, not ${contentType}.`;
    const parts = { status: 415, reason: "unsupported_media_type", field: "content-type", message };
    throw refused("invalid_argument", parts);
  }
  const value = parsed(text);
  if (isDeeper(value, depthMax)) {
    const message = `The body is nested deeper than ${depthMax} levels.`;
    throw badArgument("body_too_deep", message);
  }
  return value;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const message = `The body is not JSON: ${error instanceof Error ? error.message : "it cannot be parsed"}.`;
    throw badArgument("invalid_json", message);
  }
}

const jsonType = /^application\/(?:[\w.+-]+\+)?json\s*(?:;|$)/i;

/** Whether a value is nested deeper than so many levels. It looks no deeper itself. */
function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  const members: readonly unknown[] = Array.isArray(value) ? value : Object.values(value);
  return members.some((member) => isDeeper(member, levels - 1));
}

function tooLarge(bytesMax: number) {
  const message = `The body is larger than ${bytesMax} bytes; send less, or in several requests.`;
  return refused("payload_too_large", { reason: "body_too_large", message, details: { bytesMax } });
}

/** How the words of a query become values: by the JSON Schema of each parameter. */
export type QueryKinds = ReadonlyMap<string, "integer" | "boolean" | "list" | "text">;

/** The values of a query, each as its kind has it. A word that does not fit stays, and its schema refuses it. */
export function queryValues(search: string, kinds: QueryKinds): { [name: string]: unknown } {
  const query = new URLSearchParams(search);
  const values: { [name: string]: unknown } = {};
  for (const name of new Set(query.keys())) {
    const words = query.getAll(name);
    const kind = kinds.get(name);
    if (kind === "list") {
      values[name] = words.flatMap((word) => word.split(",")).filter((word) => word !== "");
      continue;
    }
    if (words.length > 1)
      throw badArgument(
        "repeated_parameter",
        `${name} is given ${words.length} times; give it once.`,
        name,
      );
    const [word = ""] = words;
    if (kind === "integer" && /^-?\d{1,16}$/.test(word)) values[name] = Number(word);
    else if (kind === "boolean" && (word === "true" || word === "false"))
      values[name] = word === "true";
    else values[name] = word;
  }
  return values;
}

/** What a schema makes of a value; refuses what does not fit, naming the first field that is at fault. */
export function checked(
  schema: z.ZodType,
  value: unknown,
  where: "path" | "query" | "body",
): unknown {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = result.error.issues.slice(0, issuesMax).map(({ path, message }) => ({
    field: path.map(String).join("."),
    message,
  }));
  const [first = { field: "", message: "is not valid" }] = issues;
  const unknown =
    result.error.issues[0]?.code === "unrecognized_keys" ? "unknown_field" : undefined;
  const field = first.field || where;
  const reason = unknown ?? (where === "body" ? "body_invalid" : `${where}_invalid`);
  const error = badArgument(reason, `${field}: ${first.message}`, field);
  throw issues.length === 1
    ? error
    : refused("invalid_argument", { reason, message: error.message, field, details: { issues } });
}

/** How many issues of a request are told. */
const issuesMax = 20;
