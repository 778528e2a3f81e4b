// A schema that is said to take all that another took does so; what cannot be told counts as narrower.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { narrowings } from "#millrace/contract/schema-diff.js";
import type { Json } from "#millrace/core/json.js";

function json(schema: z.ZodType): Json {
  return JSON.parse(JSON.stringify(z.toJSONSchema(schema, { io: "input" }))) as Json;
}

function reasons(before: z.ZodType, after: z.ZodType): readonly string[] {
  return narrowings(json(before), json(after));
}

const cat = z.object({ kind: z.literal("cat") });
const dog = z.object({ kind: z.literal("dog"), good: z.boolean() });

interface Tree {
  readonly name: string;
  readonly children: readonly Tree[];
}
function tree(name: z.ZodType<string>): z.ZodType<Tree> {
  const node: z.ZodType<Tree> = z.lazy(() => z.object({ name, children: z.array(node) }));
  return node;
}

describe("a schema takes what another took when", () => {
  it.for<[string, z.ZodType, z.ZodType]>([
    ["they are equal", dog, z.object({ kind: z.literal("dog"), good: z.boolean() })],
    ["it only says more about itself", z.string(), z.string().describe("a name")],
    ["it takes everything", dog, z.unknown()],
    ["a property is new and optional", z.object({}), z.object({ a: z.string().optional() })],
    ["a property is new and has a default", z.object({}), z.object({ a: z.string().default("x") })],
    [
      "a property may now be missing",
      z.object({ a: z.string() }),
      z.object({ a: z.string().optional() }),
    ],
    ["a property is no longer looked at", z.object({ a: z.string() }), z.object({})],
    ["a value may now be null", z.string(), z.string().nullable()],
    ["an integer may be any number", z.int(), z.number()],
    ["bounds are wider", z.number().gt(0).max(5), z.number().min(0).lt(6)],
    ["lengths are wider", z.string().min(2).max(3), z.string().min(1).max(4)],
    ["a constant becomes one of several", z.literal("a"), z.enum(["a", "b"])],
    ["a listed value becomes free", z.enum(["a", "b"]), z.string()],
    [
      "a union grows",
      z.union([z.string(), z.number()]),
      z.union([z.string(), z.number(), z.null()]),
    ],
    [
      "a discriminated union grows",
      z.discriminatedUnion("kind", [cat]),
      z.discriminatedUnion("kind", [cat, dog]),
    ],
    ["items are wider", z.array(z.int()), z.array(z.number().nullable())],
    ["a pair becomes a list", z.tuple([z.string(), z.string()]), z.array(z.string())],
    [
      "an object was strict",
      z.strictObject({ a: z.string() }),
      z.object({ a: z.string(), b: z.string().optional() }),
    ],
    [
      "both parts of an intersection do",
      z.intersection(cat, z.object({ n: z.int() })),
      z.object({ n: z.number() }),
    ],
    ["a recursive one is the same", tree(z.string().min(2)), tree(z.string())],
    ["a multiple is of a divisor", z.number().multipleOf(6), z.number().multipleOf(3)],
  ])("%s", ([, before, after]) => {
    expect(reasons(before, after)).toEqual([]);
  });
});

describe("a schema may refuse what another took when", () => {
  it.for<[string, z.ZodType, z.ZodType, string]>([
    ["a property is new", z.object({}), z.object({ a: z.string() }), "/a must be there"],
    [
      "a property has another type",
      z.object({ a: z.string() }),
      z.object({ a: z.number() }),
      "/a must be number",
    ],
    [
      "a property may no longer be null",
      z.object({ a: z.string().nullable() }),
      z.object({ a: z.string() }),
      "/a must be string",
    ],
    ["unknown properties are refused", z.object({}), z.strictObject({}), "/* is no longer allowed"],
    [
      "others could hold anything",
      z.looseObject({}),
      z.object({ a: z.string().optional() }),
      "/a must be string",
    ],
    ["a number must be whole", z.number(), z.int(), "it must be integer"],
    ["a bound is tighter", z.number().min(0), z.number().gt(0), "it must be larger"],
    ["an upper bound is new", z.number(), z.number().max(5), "it must be smaller"],
    ["a text must be longer", z.string(), z.string().min(1), "it must be longer"],
    [
      "a list must be shorter",
      z.array(z.string()).max(3),
      z.array(z.string()).max(2),
      "it must be shorter",
    ],
    ["a value is gone", z.enum(["a", "b"]), z.enum(["a"]), 'it may no longer be "b"'],
    ["values are listed", z.string(), z.enum(["a"]), "it must be one of some values"],
    ["a text must look otherwise", z.string(), z.email(), "it has another format"],
    [
      "a shape of a union is gone",
      z.union([z.string(), z.number()]),
      z.string(),
      "it must be string",
    ],
    [
      "a variant is gone",
      z.discriminatedUnion("kind", [cat, dog]),
      z.discriminatedUnion("kind", [cat]),
      "it had a shape",
    ],
    ["items are narrower", z.array(z.string()), z.array(z.string().min(1)), "/* must be longer"],
    [
      "a list becomes a pair",
      z.array(z.string()),
      z.tuple([z.string(), z.string()]),
      "it must be longer",
    ],
    ["a multiple is new", z.number(), z.number().multipleOf(5), "it must be a multiple"],
    [
      "a recursive one is narrower inside",
      tree(z.string()),
      tree(z.string().min(2)),
      "/name must be longer",
    ],
    ["a free value is typed", z.unknown(), z.string(), "it must be string"],
  ])("%s", ([, before, after, reason]) => {
    expect(reasons(before, after).join("; ")).toContain(reason);
  });

  it("what it says cannot be followed", () => {
    expect(narrowings({ type: "string" }, { $ref: "https://elsewhere.example/x" })).not.toEqual([]);
    expect(narrowings({ type: "string" }, { not: { const: "x" } })).toEqual(["it has another not"]);
    expect(narrowings({ type: "string" }, { oneOf: [{ type: "string" }, {}] })).not.toEqual([]);
  });

  it("it is too large to be compared", () => {
    const union = (size: number): Json => ({
      anyOf: Array.from({ length: size }, (_, index) => ({
        type: "object",
        properties: { at: { const: index } },
        required: ["at"],
      })),
    });
    expect(narrowings(union(20), union(21))).toEqual([]);
    expect(narrowings(union(200), union(201))).not.toEqual([]);
  });
});

/** Schemas of many shapes. */
const schemas = fc.letrec<{ schema: z.ZodType }>((tie) => ({
  schema: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.constantFrom<z.ZodType>(
      z.string(),
      z.string().min(1),
      z.string().max(1),
      z.number(),
      z.int(),
      z.number().min(1),
      z.number().lt(1),
      z.boolean(),
      z.null(),
      z.unknown(),
      z.literal("a"),
      z.enum(["a", "bb"]),
    ),
    tie("schema").map((schema) => schema.nullable()),
    tie("schema").map((schema) => z.array(schema)),
    fc.array(tie("schema"), { minLength: 1, maxLength: 3 }).map((all) => z.union(all)),
    fc.tuple(tie("schema"), tie("schema")).map((pair) => z.tuple(pair)),
    fc
      .dictionary(fc.constantFrom("a", "b"), fc.tuple(tie("schema"), fc.boolean()))
      .chain((shape) =>
        fc
          .constantFrom(z.object, z.strictObject, z.looseObject)
          .map((make) =>
            make(
              Object.fromEntries(
                Object.entries(shape).map(([name, [schema, isOptional]]) => [
                  name,
                  isOptional ? schema.optional() : schema,
                ]),
              ),
            ),
          ),
      ),
  ),
})).schema;

const values = fc.letrec<{ value: Json }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.constantFrom<Json>("", "a", "bb", 0, 1, 1.5, 2, true, null),
    fc.array(tie("value"), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom("a", "b", "c"), tie("value")),
  ),
})).value;

it("never says that all is taken when something is refused", () => {
  let taken = 0;
  fc.assert(
    fc.property(
      schemas,
      schemas,
      fc.array(values, { minLength: 20, maxLength: 20 }),
      (before, after, given) => {
        if (reasons(before, after).length > 0) return;
        for (const value of given) {
          const stored = before.safeParse(value);
          if (!stored.success) continue;
          taken += 1;
          expect(after.safeParse(stored.data).success).toBe(true);
        }
      },
    ),
    { numRuns: 3_000, seed: 7 },
  );
  expect(taken).toBeGreaterThan(100);
});
