/**
 * What nobody but a handler should see of a job: fields that its type marks as secret, and payloads that are encrypted.
 * Whatever shows jobs or events to people goes through here.
 */
import type { JobEvent } from "./event.js";
import type { JobSecrets } from "./job.js";
import type { Json } from "./json.js";

/** A payload or a result that is encrypted. */
export interface Sealed {
  readonly $sealed: 1;
  /** The name of the key. */
  readonly key: string;
  /** Nonce, tag and text, in base64. */
  readonly data: string;
}

/** What stands in place of a secret. */
const redactedText = "[redacted]";

/** What stands in place of what is encrypted. */
export const encryptedText = "[encrypted]";

/** Whether a stored value is encrypted. */
export function isSealed(value: unknown): value is Sealed & Json {
  return (
    typeof value === "object" &&
    value !== null &&
    (value as Partial<Sealed>).$sealed === 1 &&
    typeof (value as Partial<Sealed>).data === "string"
  );
}

/** What is wrong with a payload or a result that only looks encrypted: nobody could read it. */
export const sealedProblem = {
  path: "/$sealed",
  message: "looks like something encrypted; a payload or a result may not have the members of that",
} as const;

/** A value without its secrets. Pointers that lead nowhere do nothing; `*` stands for every entry of a list or an object. */
export function redact(value: Json, pointers: readonly string[] = []): Json {
  if (isSealed(value)) return encryptedText;
  return pointers.reduce((left, pointer) => redactAt(left, segmentsOf(pointer)), value);
}

/** What of a job, or of a view of one, may have to be hidden. */
interface Hideable {
  readonly payload: Json;
  readonly result?: Json | undefined;
  readonly secret?: JobSecrets;
}

/** A job as people may see it. */
export function redactJob<Shown extends Hideable>(job: Shown): Shown {
  const { payload, result, secret } = job;
  if (secret === undefined && !isSealed(payload) && !isSealed(result)) return job;
  const shown = { ...job, payload: redact(payload, secret?.payload) };
  return result === undefined ? shown : { ...shown, result: redact(result, secret?.result) };
}

/** An event as people may see it. */
export function redactEvent(event: JobEvent): JobEvent {
  if (event.name === "created") {
    const { payload, secret } = event;
    if (secret === undefined && !isSealed(payload)) return event;
    return { ...event, payload: redact(payload, secret?.payload) };
  }
  if (event.name !== "completed" || event.result === undefined) return event;
  const { result, secret } = event;
  if (secret === undefined && !isSealed(result)) return event;
  return { ...event, result: redact(result, secret?.result) };
}

/** What is wrong with a pointer, as a sentence that goes on after its place, or `null`. */
export function pointerProblem(pointer: unknown): string | null {
  if (typeof pointer !== "string" || !(pointer === "" || pointer.startsWith("/")))
    return 'must be a JSON Pointer, such as "/card/number"';
  return /~(?![01])/.test(pointer) ? "holds a ~ that is neither ~0 nor ~1" : null;
}

function segmentsOf(pointer: string): readonly string[] {
  if (pointer === "") return [];
  const segments = pointer.slice(1).split("/");
  return segments.map((segment) => segment.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function redactAt(value: Json, segments: readonly string[]): Json {
  const [name, ...rest] = segments;
  if (name === undefined) return redactedText;
  if (typeof value !== "object" || value === null) return value;
  if (isList(value)) {
    const isMeant = (index: number) => name === "*" || name === String(index);
    return value.map((entry, index) => (isMeant(index) ? redactAt(entry, rest) : entry));
  }
  const names = name === "*" ? Object.keys(value) : Object.hasOwn(value, name) ? [name] : [];
  const changed = names.map((each) => [each, redactAt(value[each] ?? null, rest)]);
  return { ...value, ...Object.fromEntries(changed) };
}

function isList(value: Json): value is readonly Json[] {
  return Array.isArray(value);
}
