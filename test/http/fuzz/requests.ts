// Requests made from the OpenAPI document: valid ones, ones that are wrong in one place, and garbage.
import type { Schema } from "@cfworker/json-schema";
import fc, { type Arbitrary } from "fast-check";
import { apiDocument, operations, type Parameter, type PlacedOperation } from "../documented.js";

/** A request to be made. */
export interface FuzzRequest {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly headers: { readonly [name: string]: string };
  readonly body?: string;
}

/** Strings that have broken other programs. */
const nasty = fc.oneof(
  fc.constantFrom("", " ", "\u0000", "a\u0000b", "\ud800", "𝒳🦊", "__proto__", "constructor"),
  fc.constantFrom(
    "'; DROP TABLE jobs; --",
    "../../etc/passwd",
    "%00",
    "%",
    "$x",
    "a/b",
    "\r\nX: y",
  ),
  fc.constantFrom("NaN", "null", "true", "-1", "1e999", "0x10", "9".repeat(20), "x".repeat(3_000)),
  fc.string({ unit: "binary", maxLength: 20 }),
);

/** Values of any type, some of them large or strange. */
const anything: Arbitrary<unknown> = fc.oneof(
  nasty,
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom(-1, 0, 1.5, 1e308, -0, 2 ** 53, 2 ** 31, null, true, [], {}, [[[]]]),
);

/** Names that several requests share, so that they meet what others have made. */
const shared: { readonly [name: string]: readonly unknown[] } = {
  service: ["shop", "mill"],
  type: ["mail", "ship", "email:new"],
  queue: ["mail", "slow", "DEFAULT"],
  id: ["job-1", "job-2", "job-3", "job-4"],
  jobId: ["job-1", "job-2", "job-3"],
  ids: [["job-1", "job-2", "nobody"]],
  chainId: ["job-1", "job-2"],
  worker: ["w-1", "w-2"],
  token: [1, 2, 3],
  idempotencyKey: ["k-1", "k-2"],
  "Idempotency-Key": ["k-1", "k-2"],
  tag: ["blue"],
  tags: [["blue"], []],
  cursor: ["1", "5", "start"],
  // Nobody waits for long here.
  waitMs: [0, 1, 3],
  timeoutMs: [0, 1, 3],
  hash: ["0123456789abcdef"],
};

/** How deep recursive schemas are followed. */
const depthMax = 5;

/** Values that fit a schema, mostly. A pattern that few strings fit is met by chance only. */
function fitting(schema: Schema, name: string, depth: number): Arbitrary<unknown> {
  const known = shared[name];
  const made = ofSchema(schema, depth);
  if (known === undefined) return made;
  const fits = fc.constantFrom(...known);
  if (name === "waitMs" || name === "timeoutMs") return fits;
  return fc.oneof({ weight: 6, arbitrary: fits }, { weight: 1, arbitrary: made });
}

function ofSchema(schema: Schema, depth: number): Arbitrary<unknown> {
  if (depth > depthMax) return fc.constant(null);
  if (schema.$ref !== undefined) {
    const name = schema.$ref.split("/").at(-1) ?? "";
    return ofSchema(apiDocument.components.schemas[name] ?? {}, depth);
  }
  if (schema.const !== undefined) return fc.constant(schema.const);
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  const either = schema.anyOf ?? schema.oneOf;
  if (either !== undefined) return fc.oneof(...either.map((one) => ofSchema(one, depth + 1)));
  switch (schema.type) {
    case "string":
      return ofString(schema);
    case "integer":
      return fc.integer(range(schema));
    case "number":
      return fc.double({ ...range(schema), noNaN: true, noDefaultInfinity: true });
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    case "array": {
      const { minItems: minLength = 0, maxItems = 4 } = schema;
      const items = ofSchema((schema.items as Schema | undefined) ?? {}, depth + 1);
      return fc.array(items, { minLength, maxLength: Math.min(maxItems, minLength + 4) });
    }
    case "object":
      return ofObject(schema, depth);
    default:
      return fc.jsonValue({ maxDepth: 3 });
  }
}

function range({ minimum, maximum }: Schema): { readonly min: number; readonly max: number } {
  const min = Math.max(minimum ?? -1_000, -(2 ** 31));
  return { min, max: Math.max(min, Math.min(maximum ?? 100_000, 2 ** 31 - 1)) };
}

function ofString({ format, pattern, minLength = 0, maxLength = 20 }: Schema): Arbitrary<string> {
  if (format === "date-time") {
    const bounds = {
      min: new Date("2020-01-01"),
      max: new Date("2040-01-01"),
      noInvalidDate: true,
    };
    return fc.date(bounds).map((date) => date.toISOString());
  }
  if (pattern !== undefined && pattern.length < 60)
    return fc.stringMatching(new RegExp(pattern.replaceAll("/", "\\/")));
  return fc.string({ unit: "grapheme", minLength, maxLength: Math.min(maxLength, minLength + 20) });
}

function ofObject(schema: Schema, depth: number): Arbitrary<unknown> {
  const { properties = {}, required = [] } = schema;
  const members = Object.entries(properties).map(([name, part]) => {
    return [name, fitting(part as Schema, name, depth + 1)] as const;
  });
  return fc.record(Object.fromEntries(members), {
    requiredKeys: Object.keys(properties).filter((name) => (required as string[]).includes(name)),
  });
}

/** Makes one member wrong, adds one, or leaves one out. */
function spoilt(value: unknown): Arbitrary<unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return anything;
  const names = Object.keys(value);
  const put = fc
    .tuple(fc.oneof(fc.constantFrom(...names, "more"), nasty), anything)
    .map(([name, bad]) => ({ ...value, [name]: harmless(name, bad) }));
  if (names.length === 0) return put;
  const left = fc.constantFrom(...names).map((name) => {
    return Object.fromEntries(Object.entries(value).filter(([own]) => own !== name));
  });
  const inside = fc.constantFrom(...names).chain((name) => {
    const part = (value as { readonly [name: string]: unknown })[name];
    return spoilt(part).map((bad) => ({ ...value, [name]: harmless(name, bad) }));
  });
  return fc.oneof(put, left, inside);
}

/** Nobody waits for long, also where a wrong value happens to be a right one. */
function harmless(name: string, value: unknown): unknown {
  const isWait = name === "waitMs" || name === "timeoutMs";
  return isWait && typeof value === "number" && value > 3 && value <= 30_000 ? 3 : value;
}

type Kind = "valid" | "near" | "garbage";

function queryOf(parameters: readonly Parameter[], kind: Kind): Arbitrary<string> {
  const own = parameters.filter((parameter) => parameter.in === "query");
  const pairs = own.map(({ name, required, schema }) => {
    const good = fitting(schema, name, 0).map(String);
    const bad = nasty.map((text) => (name === "timeoutMs" && /^\d{1,5}$/.test(text) ? "3" : text));
    const value = kind === "valid" ? good : fc.oneof(good, bad);
    return fc
      .option(value, { nil: null, freq: required ? 50 : 1 })
      .map((one) => [name, one] as const);
  });
  const extra =
    kind === "garbage" ? fc.array(fc.tuple(nasty, nasty), { maxLength: 2 }) : fc.constant([]);
  return fc.tuple(fc.tuple(...pairs), extra).map(([given, more]) => {
    const query = new URLSearchParams();
    for (const [name, value] of [...given, ...more]) if (value !== null) query.append(name, value);
    return query.size === 0 ? "" : `?${query}`;
  });
}

function pathOf({ path, operation }: PlacedOperation, kind: Kind): Arbitrary<string> {
  const parts = path.split("/").map((segment) => {
    const [, name] = /^\{(\w+)\}$/.exec(segment) ?? [];
    if (name === undefined) return fc.constant(segment);
    const schema = operation.parameters?.find((parameter) => parameter.name === name)?.schema;
    const good = fitting(schema ?? {}, name, 0).map((value) =>
      encodeURIComponent(wellFormed(value)),
    );
    const bad = nasty.map((text) => encodeURIComponent(wellFormed(text)).replaceAll(".", "%2e"));
    const raw = fc.constantFrom("%", "%zz", "..", ".", "%2f", "%00", "a%");
    return kind === "valid" ? good : fc.oneof(good, bad, raw);
  });
  return fc.tuple(...parts).map((segments) => segments.join("/"));
}

function wellFormed(value: unknown): string {
  return String(value).replaceAll(/[\ud800-\udfff]/g, "?");
}

function headersOf({ operation }: PlacedOperation, kind: Kind): Arbitrary<FuzzRequest["headers"]> {
  const own = (operation.parameters ?? []).filter((parameter) => parameter.in === "header");
  const text = fc.oneof(
    fc.string({ maxLength: 30 }),
    fc.constantFrom("1", "job-1", "x".repeat(300)),
  );
  const named = own.map(
    ({ name }) => [name, fitting({ type: "string" }, name, 0).map(String)] as const,
  );
  const accept = fc.constantFrom(
    "*/*",
    "application/json",
    "application/problem+json",
    "text/event-stream",
  );
  const all = fc.record(
    {
      ...Object.fromEntries(named),
      Accept: accept,
      ...(kind === "garbage" && { Authorization: text, "Content-Type": text, traceparent: text }),
      "X-Request-Id": text,
    },
    { requiredKeys: [] },
  );
  // What no header can hold never reaches a server.
  return all.map((headers) =>
    Object.fromEntries(
      Object.entries(headers).filter(([, value]) =>
        /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(value),
      ),
    ),
  );
}

function bodyOf({ operation }: PlacedOperation, kind: Kind): Arbitrary<string | undefined> {
  const content = operation.requestBody?.content["application/json"];
  if (content === undefined) return fc.constant(undefined);
  const good = ofSchema(content.schema, 0);
  if (kind === "valid") return good.map((value) => JSON.stringify(value));
  if (kind === "near") return good.chain(spoilt).map((value) => JSON.stringify(value) ?? "");
  return fc.oneof(
    nasty,
    anything.map((value) => JSON.stringify(value) ?? ""),
    fc.constant("[".repeat(9_999)),
  );
}

function requestOf(placed: PlacedOperation, kind: Kind): Arbitrary<FuzzRequest> {
  const { method, operation } = placed;
  return fc
    .record({
      path: pathOf(placed, kind),
      query: queryOf(operation.parameters ?? [], kind),
      headers: headersOf(placed, kind),
      body: bodyOf(placed, kind),
    })
    .map(({ path, query, headers, body }) => ({
      ...{ method: method.toUpperCase(), path: `${path}${query}`, headers },
      ...(body === undefined ? null : { body }),
    }));
}

/** Requests of every route: most of them valid, many almost so. */
export const requests: Arbitrary<FuzzRequest> = fc.oneof(
  ...operations.flatMap((placed) => [
    { weight: 5, arbitrary: requestOf(placed, "valid") },
    { weight: 4, arbitrary: requestOf(placed, "near") },
    { weight: 1, arbitrary: requestOf(placed, "garbage") },
  ]),
);
