// Values are checked by any Standard Schema, at once where the schema answers at once.

import type { StandardSchemaV1 } from "@standard-schema/spec";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import {
  isSchema,
  issuesMax,
  issuesSentence,
  jsonSchemaOf,
  validate,
} from "#millrace/contract/schema.js";

/** A schema of no library, to show that none is needed. */
function handmade(
  check: StandardSchemaV1.Props<unknown, unknown>["validate"],
  more: object = {},
): StandardSchemaV1 {
  return { "~standard": { version: 1, vendor: "handmade", validate: check }, ...more };
}

describe("validate", () => {
  it("answers at once for a schema that does", () => {
    expect(validate(z.object({ a: z.number().default(1) }), {})).toEqual({
      ok: true,
      value: { a: 1 },
    });
  });

  it("answers with a promise only for a schema that does", async () => {
    const answer = validate(
      handmade(async (value) => ({ value })),
      7,
    );
    expect(answer).toBeInstanceOf(Promise);
    expect(await answer).toEqual({ ok: true, value: 7 });
  });

  it("names the place of every issue as a JSON Pointer", () => {
    const schema = z.object({ "a/b": z.array(z.string()) });
    const answer = validate(schema, { "a/b": ["x", 5] });
    expect(answer).toMatchObject({ ok: false, issues: [{ path: "/a~1b/1" }] });
  });

  it("reads paths that are made of segments, and bounds the issues", async () => {
    const issues = Array.from({ length: 100 }, () => ({ message: "bad", path: [{ key: "x" }] }));
    const answer = await validate(
      handmade(() => ({ issues })),
      null,
    );
    if (answer.ok) throw new Error("It should have been refused.");
    expect(answer.issues).toHaveLength(issuesMax);
    expect(issuesSentence(answer.issues.slice(0, 2))).toBe("/x: bad; /x: bad");
  });
});

describe("isSchema", () => {
  it("knows schemas, functions among them, from everything else", () => {
    expect(isSchema(z.string())).toBe(true);
    expect(
      isSchema(
        Object.assign(
          () => {},
          handmade(() => ({ value: 1 })),
        ),
      ),
    ).toBe(true);
    for (const value of [null, undefined, 5, {}, { "~standard": {} }, { type: "object" }]) {
      expect(isSchema(value)).toBe(false);
    }
  });
});

describe("jsonSchemaOf", () => {
  const check = () => ({ value: 1 });

  it("asks the standard's own converter first", () => {
    const schema = z.object({ a: z.string().default("x") });
    expect(jsonSchemaOf(schema, "input")).toMatchObject({
      type: "object",
      properties: { a: { type: "string" } },
    });
    expect(jsonSchemaOf(schema, "output")).toMatchObject({ required: ["a"] });
  });

  it("falls back to a method of the library's own", () => {
    const toJSONSchema = ({ io }: { io: string }) => ({ title: io });
    expect(jsonSchemaOf(handmade(check, { toJSONSchema }), "output")).toEqual({ title: "output" });
    expect(
      jsonSchemaOf(handmade(check, { toJsonSchema: () => ({ title: "ark" }) }), "input"),
    ).toEqual({ title: "ark" });
  });

  it("gives null where the library cannot say", () => {
    expect(jsonSchemaOf(handmade(check), "input")).toBeNull();
    expect(jsonSchemaOf(z.object({ at: z.date() }), "input")).toBeNull();
  });
});
