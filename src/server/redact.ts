/**
 * Keeps secrets and payloads out of logs. Fields go by their names, wherever they stand; texts by what they look like.
 * What is logged may come from anywhere, so that depth, length and number of everything are bounded.
 */

/** What stands where something was taken out. */
const redactedMark = "[redacted]";

/** How deep fields are looked into, how many of a kind are kept, and how long a text may be. */
const depthMax = 6;
const entriesMax = 100;
const textLengthMax = 8_192;

/** Names of fields, without case, hyphens and underscores, that hold secrets, or payloads, which may. */
const secretNames =
  /(?:authorization|cookie|token|secret|password|passphrase|credentials?|apikey|privatekey|signature)$/;
const payloadNames = /^(?:payload|payloadbase64|result|body)$/;

/** Credentials inside a text: those of a header, and those of a URL. */
const bearer = /\b(Bearer|Basic)\s+[A-Za-z0-9+/=._~-]{8,}/gi;
const urlCredentials = /(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/?#@]*@/gi;

/** A text without the credentials in it. */
export function redactText(text: string): string {
  const safe = text
    .replaceAll(bearer, `$1 ${redactedMark}`)
    .replaceAll(urlCredentials, `$1${redactedMark}@`);
  return safe.length <= textLengthMax ? safe : `${safe.slice(0, textLengthMax)}…`;
}

/** Fields as they may be logged: plain JSON without secrets and payloads. */
export function redactFields(fields: object): Record<string, unknown> {
  return redactEntries(fields, 1);
}

function redactEntries(value: object, depth: number): Record<string, unknown> {
  const safe: Record<string, unknown> = {};
  for (const [name, entry] of Object.entries(value).slice(0, entriesMax))
    safe[name] = isSecret(name, entry) ? redactedMark : redactValue(entry, depth);
  return safe;
}

/** Numbers are no secrets: a fencing token is one, and so is the number of tokens. */
function isSecret(name: string, value: unknown): boolean {
  if (typeof value === "number" || typeof value === "boolean" || value == null) return false;
  const plain = name.toLowerCase().replaceAll(/[-_]/g, "");
  return secretNames.test(plain) || payloadNames.test(plain);
}

function redactValue(value: unknown, depth: number): unknown {
  if (typeof value === "string") return redactText(value);
  if (typeof value === "bigint" || typeof value === "symbol") return String(value);
  if (typeof value === "function") return "[function]";
  if (typeof value !== "object" || value === null) return value;
  if (depth >= depthMax) return "[deeper]";
  if (value instanceof Error) return errorFields(value, depth);
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString();
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  if (Array.isArray(value))
    return value.slice(0, entriesMax).map((entry) => redactValue(entry, depth + 1));
  if (value instanceof Map || value instanceof Set) return `[${value.size} entries]`;
  return redactEntries(value, depth + 1);
}

/** An error as a line shows it. Other members of it may hold whatever was being done, and are left out. */
function errorFields(error: Error, depth: number): Record<string, unknown> {
  const { code } = error as { readonly code?: unknown };
  return {
    name: error.name,
    message: redactText(error.message),
    ...(typeof code === "string" || typeof code === "number" ? { code } : null),
    ...(error.stack === undefined ? null : { stack: redactText(error.stack) }),
    ...(error.cause === undefined ? null : { cause: redactValue(error.cause, depth + 1) }),
  };
}
