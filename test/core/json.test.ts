// JSON: the canonical form and its hash, limits, names.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { canonicalHash, canonicalJson, jsonText, payloadLimits } from "#millrace/core/json.js";
import { type NameKind, nameProblem } from "#millrace/core/names.js";

/** The same value with the members of its objects in another order. */
function shuffled(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(shuffled);
  const members = Object.entries(value).reverse();
  return Object.fromEntries(members.map(([name, member]) => [name, shuffled(member)]));
}

describe("canonical JSON", () => {
  it("is JSON of the same value, whatever the order of members", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = canonicalJson(value);
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)));
        expect(canonicalJson(shuffled(value))).toBe(text);
        expect(canonicalJson(JSON.parse(text))).toBe(text);
      }),
    );
  });

  it("differs where values differ", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (a, b) => {
        const same = canonicalJson(a) === canonicalJson(b);
        expect(canonicalHash(a) === canonicalHash(b)).toBe(same);
      }),
    );
  });

  it.each([
    [{ b: 1, a: [true, null, "x"] }, '{"a":[true,null,"x"],"b":1}'],
    [{ a: undefined, b: 1 }, '{"b":1}'],
    [{ "€": 1, "\r": 2, "1": 3 }, '{"\\r":2,"1":3,"€":1}'],
    [[1e21, -0, 0.000_001, 1e-7], "[1e+21,0,0.000001,1e-7]"],
    ['"\\\u0007\u2028', '"\\"\\\\\\u0007\u2028"'],
    [undefined, "null"],
  ])("of %j is %s", (value, text) => {
    expect(canonicalJson(value)).toBe(text);
  });

  it("has the hash of its text", () => {
    const known = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    expect(canonicalHash({})).toBe(known);
  });
});

describe("a payload", () => {
  it("that is JSON is taken as it is", () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
        const outcome = jsonText(value);
        const text = JSON.stringify(value);
        const bad = /"(?:__proto__|constructor|prototype)":/.test(text);
        if (!bad) expect(outcome).toEqual({ ok: true, text });
      }),
    );
  });

  const cycle: Record<string, unknown> = {};
  cycle.self = cycle;

  it.each([
    ["a function", { a: { f: () => 1 } }, "/a/f"],
    ["a symbol", [Symbol("s")], "/0"],
    ["a bigint", { n: 1n }, "/n"],
    ["NaN", { n: Number.NaN }, "/n"],
    ["infinity", [[Number.POSITIVE_INFINITY]], "/0/0"],
    ["a map", { m: new Map() }, "/m"],
    ["a set", new Set(), ""],
    ["a prototype's name", { a: JSON.parse('{"__proto__": 1}') as unknown }, "/a/__proto__"],
    ["a constructor", { constructor: 1 }, "/constructor"],
    ["what becomes undefined", { toJSON: () => undefined }, ""],
    ["NaN behind an array", Object.assign([1], { toJSON: () => [Number.NaN] }), "/0"],
    ["a boxed bigint", { n: Object(1n) as unknown }, "/n"],
  ])("with %s is refused with the path to it", (_, value, path) => {
    const outcome = jsonText(value);
    expect(outcome).toMatchObject({ ok: false, problem: { path } });
  });

  it("with a cycle is refused as too deep", () => {
    const outcome = jsonText(cycle);
    expect(outcome.ok ? "" : outcome.problem.message).toContain("deeper than");
  });

  it("is as deep and as large as the limits say", () => {
    const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);
    expect(jsonText(nested(payloadLimits.depthMax)).ok).toBe(true);
    expect(jsonText(nested(payloadLimits.depthMax + 1)).ok).toBe(false);
    const text = (bytes: number) => "x".repeat(bytes - 2);
    expect(jsonText(text(payloadLimits.bytesMax)).ok).toBe(true);
    expect(jsonText(text(payloadLimits.bytesMax + 1)).ok).toBe(false);
    expect(jsonText("€".repeat(payloadLimits.bytesMax / 3)).ok).toBe(false);
  });

  it("may hold dates and what else knows how to become JSON", () => {
    const date = new Date(0);
    expect(jsonText({ date })).toEqual({ ok: true, text: '{"date":"1970-01-01T00:00:00.000Z"}' });
    expect(jsonText(undefined)).toEqual({ ok: true, text: "null" });
    expect(jsonText({ a: undefined })).toEqual({ ok: true, text: "{}" });
  });
});

describe("names", () => {
  const good: Record<NameKind, readonly string[]> = {
    service: ["shop", "a", "-x", "a_b-C9", "x".repeat(64)],
    queue: ["emails", "0"],
    instance: ["web-1"],
    schedule: ["nightly", "every-5"],
    type: ["email:new", "node.hostname.get", "a", "-", "x".repeat(64)],
    id: ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "a-b_c"],
    tag: ["red", "two words", "ümläut", "x".repeat(128)],
  };
  const bad: Record<NameKind, readonly unknown[]> = {
    service: ["", "_ours", "a.b", "a/b", "a b", "x".repeat(65), "a\n", 7, null, undefined],
    queue: ["a:b", "a*"],
    instance: ["a>b"],
    schedule: ["a.b", "_a"],
    type: [".a", "a.", "a:", "_a", "a b", "a/b", "a@1", "x".repeat(65)],
    id: ["-a", "_a", "a.b", "", "x".repeat(65), "a\u0000"],
    tag: ["", " a", "a ", "a\tb", "x".repeat(129)],
  };

  for (const kind of Object.keys(good) as NameKind[]) {
    it(`of a ${kind} are checked`, () => {
      for (const name of good[kind]) expect(nameProblem(kind, name), name).toBeNull();
      for (const name of bad[kind]) expect(nameProblem(kind, name), String(name)).not.toBeNull();
    });
  }
});
