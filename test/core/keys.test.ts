// Concurrency keys: templates, pointers, hashes.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  deriveKey,
  keyHash,
  keyLengthMax,
  resolvePointer,
  templateProblem,
} from "#millrace/core/keys.js";

function derive(template: readonly string[], payload: unknown) {
  return deriveKey("shop", "sync", template, payload);
}

describe("a key", () => {
  it("joins constants and what pointers find", () => {
    const payload = { origin: "acme", page: { number: 7, last: false } };
    const template = ["zendesk", "/origin", "/page/number", "/page/last"];
    expect(derive(template, payload)).toMatchObject({ ok: true, key: "zendesk/acme/7/false" });
  });

  it.each([
    ["nothing", {}, "nothing"],
    ["null", { origin: null }, "null"],
    ["an object", { origin: {} }, "an object"],
    ["an array", { origin: [] }, "an array"],
  ])("is refused where the pointer finds %s", (_, payload, found) => {
    const outcome = derive(["a", "/origin"], payload);
    expect(outcome).toMatchObject({ ok: false, pointer: "/origin" });
    expect(outcome.ok ? "" : outcome.message).toContain(found);
  });

  it("is refused when it is too long", () => {
    expect(derive(["/id"], { id: "x".repeat(keyLengthMax) }).ok).toBe(true);
    expect(derive(["/id"], { id: "x".repeat(keyLengthMax + 1) }).ok).toBe(false);
  });

  it("has a hash that is stable and knows service, type and segments apart", () => {
    expect(keyHash("shop", "sync", ["a", "b"])).toBe(keyHash("shop", "sync", ["a", "b"]));
    const hashes = [
      keyHash("shop", "sync", ["a", "b"]),
      keyHash("shop", "sync", ["a/b"]),
      keyHash("shop", "other", ["a", "b"]),
      keyHash("bank", "sync", ["a", "b"]),
      keyHash("shop", "sync", ["b", "a"]),
    ];
    expect(new Set(hashes).size).toBe(hashes.length);
    expect(keyHash("shop", "sync", ["a"])).toMatch(/^[0-9a-f]{32}$/);
  });

  it("differs whenever its segments differ", () => {
    const segments = fc.array(fc.string(), { minLength: 1, maxLength: 3 });
    fc.assert(
      fc.property(segments, segments, (a, b) => {
        const same = JSON.stringify(a) === JSON.stringify(b);
        expect(keyHash("s", "t", a) === keyHash("s", "t", b)).toBe(same);
      }),
    );
  });
});

describe("a pointer", () => {
  it("follows own properties only", () => {
    for (const name of ["constructor", "__proto__", "toString", "hasOwnProperty"]) {
      expect(resolvePointer({}, `/${name}`)).toBeUndefined();
      expect(resolvePointer([], `/${name}`)).toBeUndefined();
    }
    expect(resolvePointer("text", "/length")).toBeUndefined();
    expect(resolvePointer([1, 2], "/length")).toBeUndefined();
    const own = JSON.parse('{"__proto__": {"x": 1}}') as unknown;
    expect(resolvePointer(own, "/__proto__/x")).toBe(1);
  });

  it("unescapes ~1 and ~0, in that order", () => {
    const value = { "a/b": 1, "m~n": 2, "~1": 3, "": 4 };
    expect(resolvePointer(value, "/a~1b")).toBe(1);
    expect(resolvePointer(value, "/m~0n")).toBe(2);
    expect(resolvePointer(value, "/~01")).toBe(3);
    expect(resolvePointer(value, "/")).toBe(4);
    expect(resolvePointer(value, "")).toBe(value);
  });

  it("indexes arrays by plain numbers", () => {
    const list = { items: ["a", "b"] };
    expect(resolvePointer(list, "/items/1")).toBe("b");
    for (const index of ["01", "-", "2", "1.0", "-1", " 1"]) {
      expect(resolvePointer(list, `/items/${index}`)).toBeUndefined();
    }
  });

  it("finds every value at its own path, and never throws", () => {
    const escaped = (name: string) => name.replaceAll("~", "~0").replaceAll("/", "~1");
    fc.assert(
      fc.property(fc.array(fc.string(), { maxLength: 4 }), fc.integer(), (path, leaf) => {
        const value = path.reduceRight<unknown>(
          (inner, name) => Object.defineProperty({}, name, { value: inner, enumerable: true }),
          leaf,
        );
        expect(resolvePointer(value, path.map((name) => `/${escaped(name)}`).join(""))).toBe(leaf);
      }),
    );
    fc.assert(
      fc.property(fc.jsonValue(), fc.string(), (value, pointer) => {
        resolvePointer(value, pointer);
      }),
    );
  });
});

describe("a template", () => {
  it.each([
    [["a", "/b"], true],
    [["/a~0b~1c"], true],
    [[], false],
    [["a", ""], false],
    [["/a~2"], false],
    [["/a~"], false],
  ])("%j is good: %s", (template, good) => {
    const problem = templateProblem(template);
    if (good) expect(problem).toBeNull();
    else expect(problem).toMatch(/\.$/);
  });
});
