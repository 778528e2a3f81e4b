/**
 * Concurrency keys: a template of constants and JSON Pointers becomes a readable key and a stable hash.
 */
import { createHash } from "node:crypto";

/** What reading a key from a payload gave. */
export type KeyOutcome =
  | { readonly ok: true; readonly key: string; readonly hash: string }
  | { readonly ok: false; readonly pointer: string; readonly message: string };

/** The longest readable key. */
export const keyLengthMax = 512;

/** What is wrong with a key template, as a sentence, or `null` when nothing is. */
export function templateProblem(template: readonly string[]): string | null {
  if (!Array.isArray(template) || template.length === 0)
    return "A key template needs at least one segment.";
  for (const segment of template) {
    if (typeof segment !== "string" || segment === "")
      return "A segment of a key template must be a non-empty string.";
    if (segment.startsWith("/") && /~(?![01])/.test(segment))
      return `"${segment}" is not a JSON Pointer: ~ must be ~0 or ~1.`;
  }
  // What the pointers find may be empty, but never shortens what stands there already.
  const { length } = template.map((segment) => (segment.startsWith("/") ? "" : segment)).join("/");
  return length > keyLengthMax
    ? `The constants of the key are ${length} characters long; at most ${keyLengthMax} are allowed.`
    : null;
}

/**
 * Reads the key of a payload. A segment that starts with `/` is a JSON Pointer to a string, number or boolean;
 * every other segment stands for itself. Only own properties are followed.
 */
export function deriveKey(
  service: string,
  type: string,
  template: readonly string[],
  payload: unknown,
): KeyOutcome {
  const segments: string[] = [];
  for (const segment of template) {
    if (!segment.startsWith("/")) {
      segments.push(segment);
      continue;
    }
    const value = resolvePointer(payload, segment);
    if (typeof value !== "string" && typeof value !== "number" && typeof value !== "boolean") {
      const found =
        value === undefined
          ? "nothing"
          : value === null
            ? "null"
            : Array.isArray(value)
              ? "an array"
              : "an object";
      const message = `The key needs a string, number or boolean at ${segment}; the payload has ${found} there.`;
      return { ok: false, pointer: segment, message };
    }
    segments.push(String(value));
  }
  const key = segments.join("/");
  if (key.length > keyLengthMax) {
    const pointer = template.find((segment) => segment.startsWith("/")) ?? "";
    return {
      ok: false,
      pointer,
      message: `The key is ${key.length} characters long; at most ${keyLengthMax} are allowed.`,
    };
  }
  return { ok: true, key, hash: keyHash(service, type, segments) };
}

/** The hash that names a key. Segments are hashed apart, so that `a/b` + `c` and `a` + `b/c` are different keys. */
export function keyHash(service: string, type: string, segments: readonly string[]): string {
  return createHash("sha256")
    .update(JSON.stringify([service, type, ...segments]))
    .digest("hex")
    .slice(0, 32);
}

/** Follows a JSON Pointer (RFC 6901) through own properties; `undefined` where it leads nowhere. */
export function resolvePointer(value: unknown, pointer: string): unknown {
  let current = value;
  for (const part of pointer.split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof current !== "object" || current === null || !Object.hasOwn(current, name))
      return undefined;
    if (Array.isArray(current) && !/^(0|[1-9]\d*)$/.test(name)) return undefined;
    current = (current as Record<string, unknown>)[name];
  }
  return current;
}
