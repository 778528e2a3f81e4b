/**
 * Whether a JSON Schema takes everything that another one took. The comparison is structural and errs on the
 * side of "no": what it cannot follow counts as narrower.
 */
import { canonicalJson, type Json } from "../core/json.js";
import {
  isClosed,
  isDiscriminated,
  type Keywords,
  keywordsOf,
  list,
  resolved,
  shapesOf,
  typesOf,
  valuesOf,
} from "./json-schema.js";

/** How many pairs of schemas are compared before a schema counts as too large to follow. */
const comparisonsMax = 2_000;

/** How many reasons are given. */
const reasonsMax = 10;

/** One comparison: the roots that references lead into, and the pairs of references that are being followed. */
interface Comparison {
  readonly before: Json;
  readonly after: Json;
  readonly following: Set<string>;
  comparisons: number;
}

/** The types that a keyword speaks of; one that is not listed speaks of all of them. */
const typesOfKeyword: { readonly [keyword: string]: readonly string[] } = {
  minimum: ["number", "integer"],
  maximum: ["number", "integer"],
  exclusiveMinimum: ["number", "integer"],
  exclusiveMaximum: ["number", "integer"],
  multipleOf: ["number", "integer"],
  minLength: ["string"],
  maxLength: ["string"],
  pattern: ["string"],
  format: ["string"],
  minItems: ["array"],
  maxItems: ["array"],
  uniqueItems: ["array"],
  items: ["array"],
  prefixItems: ["array"],
  properties: ["object"],
  required: ["object"],
  additionalProperties: ["object"],
  propertyNames: ["object"],
  minProperties: ["object"],
  maxProperties: ["object"],
};

/** The reasons, as parts of a sentence, why a value that fits `before` may not fit `after`; none if all do. */
export function narrowings(before: Json, after: Json): readonly string[] {
  const comparison = { before, after, following: new Set<string>(), comparisons: 0 };
  const reasons = compare(comparison, before, after, "");
  return [...new Set(reasons)].slice(0, reasonsMax);
}

function compare(run: Comparison, before: Json, after: Json, at: string): readonly string[] {
  run.comparisons += 1;
  if (run.comparisons > comparisonsMax) return [`${place(at)} is too large to be compared`];
  if (before === false || after === true) return [];
  if (after === false) return [`${place(at)} is no longer allowed`];
  const [old, next] = [keywordsOf(before), keywordsOf(after)];
  if (Object.keys(next).length === 0) return [];
  if (isClosed(old) && isClosed(next) && canonicalJson(old) === canonicalJson(next)) return [];
  if ("$ref" in old || "$ref" in next) return compareReferences(run, old, next, at);
  const shapes = shapesOf(old);
  if (shapes !== null) return shapes.flatMap((shape) => compare(run, shape, next, at));
  return compareShape(run, old, next, at);
}

/** A recursive schema meets the same pair again, which then adds nothing. */
function compareReferences(
  run: Comparison,
  old: Keywords,
  next: Keywords,
  at: string,
): readonly string[] {
  const pair = canonicalJson([old, next]);
  if (run.following.has(pair)) return [];
  const [before, after] = [resolved(run.before, old), resolved(run.after, next)];
  if (before === null || after === null) return [`${place(at)} refers to what cannot be found`];
  run.following.add(pair);
  const reasons = compare(run, before, after, at);
  run.following.delete(pair);
  return reasons;
}

/** Compares a schema of one shape with one that may have several. */
function compareShape(
  run: Comparison,
  old: Keywords,
  next: Keywords,
  at: string,
): readonly string[] {
  const { anyOf, oneOf, allOf, ...rest } = next;
  const choices = anyOf ?? (isDiscriminated(oneOf) ? oneOf : undefined);
  if (choices !== undefined) {
    const fits = list(choices).some((choice) => compare(run, old, choice, at).length === 0);
    if (!fits) return [`${place(at)} had a shape that none of those allowed now takes`];
  } else if (oneOf !== undefined) {
    return [`${place(at)} may have one of several shapes, which cannot be compared`];
  }
  return [
    ...list(allOf).flatMap((part) => compare(run, old, part, at)),
    ...Object.keys(rest).flatMap((keyword) => compareKeyword(run, old, rest, keyword, at)),
  ];
}

function compareKeyword(
  run: Comparison,
  old: Keywords,
  next: Keywords,
  keyword: string,
  at: string,
): readonly string[] {
  const types = typesOfKeyword[keyword];
  if (types !== undefined && !typesOf(old).some((type) => types.includes(type))) return [];
  switch (keyword) {
    case "type":
      return compareTypes(old, next, at);
    case "enum":
    case "const":
      return compareValues(old, next, at);
    case "minimum":
    case "exclusiveMinimum":
      return atLeast(old, next) ? [] : [`${place(at)} must be larger`];
    case "maximum":
    case "exclusiveMaximum":
      return atMost(old, next) ? [] : [`${place(at)} must be smaller`];
    case "minLength":
    case "minItems":
    case "minProperties":
      return Number(old[keyword] ?? 0) >= Number(next[keyword])
        ? []
        : [`${place(at)} must be longer`];
    case "maxLength":
    case "maxItems":
    case "maxProperties":
      return Number(old[keyword] ?? Number.POSITIVE_INFINITY) <= Number(next[keyword])
        ? []
        : [`${place(at)} must be shorter`];
    case "required":
      return list(next.required)
        .filter((name) => !list(old.required).includes(name))
        .map((name) => `${place(`${at}/${String(name)}`)} must be there`);
    case "properties":
      return compareProperties(run, old, next, at);
    case "additionalProperties":
      return compareAdditional(run, old, next, at);
    case "items":
    case "prefixItems":
      return compareItems(run, old, next, at);
    case "multipleOf":
      return isMultiple(old.multipleOf, next.multipleOf) ? [] : [`${place(at)} must be a multiple`];
    default:
      return canonicalJson(old[keyword]) === canonicalJson(next[keyword])
        ? []
        : [`${place(at)} has another ${keyword}`];
  }
}

function compareTypes(old: Keywords, next: Keywords, at: string): readonly string[] {
  const allowed = list(next.type).map(String);
  const gone = typesOf(old).filter(
    (type) => !allowed.includes(type) && !(type === "integer" && allowed.includes("number")),
  );
  return gone.length === 0 ? [] : [`${place(at)} must be ${allowed.join(" or ")}`];
}

function compareValues(old: Keywords, next: Keywords, at: string): readonly string[] {
  const [had, allowed] = [valuesOf(old), valuesOf(next)?.map(canonicalJson) ?? []];
  const gone = had?.filter((value) => !allowed.includes(canonicalJson(value)));
  if (gone === undefined) return [`${place(at)} must be one of some values`];
  return gone.length === 0
    ? []
    : [`${place(at)} may no longer be ${gone.map(canonicalJson).join(", ")}`];
}

/**
 * A property that was not named before counts as one that nobody sent, unless the schema said what others may hold:
 * libraries leave them open and drop them.
 */
function compareProperties(
  run: Comparison,
  old: Keywords,
  next: Keywords,
  at: string,
): readonly string[] {
  const had = keywordsOf(old.properties ?? {}, false);
  return Object.entries(keywordsOf(next.properties ?? {}, false)).flatMap(([name, schema]) => {
    const before = Object.hasOwn(had, name) ? had[name] : old.additionalProperties;
    return before === undefined ? [] : compare(run, before, schema, `${at}/${name}`);
  });
}

/** What properties that only `before` named may hold, and those that no schema names. */
function compareAdditional(
  run: Comparison,
  old: Keywords,
  next: Keywords,
  at: string,
): readonly string[] {
  const others = next.additionalProperties ?? true;
  const named = keywordsOf(next.properties ?? {}, false);
  const dropped = Object.entries(keywordsOf(old.properties ?? {}, false)).filter(
    ([name]) => !Object.hasOwn(named, name),
  );
  return [
    ...dropped.flatMap(([name, schema]) => compare(run, schema, others, `${at}/${name}`)),
    ...compare(run, old.additionalProperties ?? true, others, `${at}/*`),
  ];
}

/** Items one by one as far as either schema names them, then all others. */
function compareItems(
  run: Comparison,
  old: Keywords,
  next: Keywords,
  at: string,
): readonly string[] {
  const [had, named] = [list(old.prefixItems), list(next.prefixItems)];
  const [others, nextOthers] = [old.items ?? true, next.items ?? true];
  const single = Array.from({ length: Math.max(had.length, named.length) }, (_, index) =>
    compare(run, had[index] ?? others, named[index] ?? nextOthers, `${at}/${index}`),
  );
  return [...single.flat(), ...compare(run, others, nextOthers, `${at}/*`)];
}

function atLeast(old: Keywords, next: Keywords): boolean {
  return !lies(next, -1, old.minimum, old.exclusiveMinimum);
}

function atMost(old: Keywords, next: Keywords): boolean {
  return !lies(next, 1, old.maximum, old.exclusiveMaximum);
}

/** Whether the bound that `next` sets cuts off what the old bounds, inclusive and exclusive, let through. */
function lies(
  next: Keywords,
  sign: 1 | -1,
  old: Json | undefined,
  oldExclusive: Json | undefined,
): boolean {
  const [inclusive, exclusive] =
    sign === 1 ? [next.maximum, next.exclusiveMaximum] : [next.minimum, next.exclusiveMinimum];
  const had = sign * Number(old ?? sign * Number.POSITIVE_INFINITY);
  const hadExclusive = sign * Number(oldExclusive ?? sign * Number.POSITIVE_INFINITY);
  const cutsInclusive =
    inclusive !== undefined && Math.min(had, hadExclusive) > sign * Number(inclusive);
  const bound = sign * Number(exclusive);
  const cutsExclusive = exclusive !== undefined && had >= bound && hadExclusive > bound;
  return cutsInclusive || cutsExclusive;
}

function isMultiple(old: Json | undefined, next: Json | undefined): boolean {
  return typeof old === "number" && typeof next === "number" && Number.isInteger(old / next);
}

function place(at: string): string {
  return at === "" ? "it" : at;
}
