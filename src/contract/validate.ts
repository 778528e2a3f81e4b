/**
 * Checks the options of a definition, so that a mistake is found where it is made and not by a job at night.
 */
import { endedStates, integerMax } from "../core/job.js";
import { templateProblem } from "../core/keys.js";
import { nameProblem } from "../core/names.js";
import { priorityMax, priorityMin } from "../core/order.js";
import { backoffProblem, delayMaxMs } from "../core/retry.js";
import { pointerProblem } from "../core/secrets.js";
import { InvalidDefinition } from "./errors.js";
import { hookNames } from "./hooks.js";
import { cpuSecondsLimit, memoryMbRange, outputBytesLimit } from "./isolate.js";
import { isSchema } from "./schema.js";
import { type JobOptions, jobDefaults } from "./settings.js";

/** How many tries a definition or a create may allow. */
export const maxTriesLimit = 10_000;

/** How many jobs of a type one process may run at once. */
export const concurrencyLimit = 10_000;

/** How many jobs may be active or wait under a limit that a definition names. */
const activeLimit = 1_000_000;

/** Says what is wrong with an option, as a sentence that goes on after its name, or `null`. */
export type Check = (value: unknown) => string | null;

/** The options that something has, each with its check. */
export type Checks = { readonly [option: string]: Check };

const jobChecks: Checks = {
  payload: schemaCheck,
  result: schemaCheck,
  version: whole(1, integerMax),
  retry: () => null,
  timeoutMs: whole(1, delayMaxMs),
  leaseMs: whole(1, delayMaxMs),
  concurrency: whole(1, concurrencyLimit),
  maxActive: whole(1, activeLimit),
  keyConcurrency: () => null,
  queue: () => null,
  deadlineMs: whole(1, delayMaxMs),
  priority: whole(priorityMin, priorityMax),
  progress: yesOrNo,
  logs: yesOrNo,
  deadLetter: yesOrNo,
  retention: () => null,
  continuations: namesCheck,
  blockers: blockersCheck,
  isolate: () => null,
  hooks: () => null,
  secret: () => null,
};

const retryChecks: Checks = {
  maxTries: whole(1, maxTriesLimit),
  backoff: backoffCheck,
};

const keyChecks: Checks = {
  key: (value) =>
    Array.isArray(value)
      ? templateProblem(value)
      : 'must be a list of constants and JSON Pointers, such as ["tickets", "/origin"]',
  maxActive: whole(1, activeLimit),
  heartbeatIntervalMs: whole(1, delayMaxMs),
  heartbeatTtlMs: whole(1, delayMaxMs),
  stalePolicy: oneOf("fail-stale", "requeue", "block"),
};

const queueChecks: Checks = {
  name: (value) => nameProblem("queue", value),
  maxActive: whole(1, activeLimit),
  maxQueuedPerKey: whole(0, activeLimit),
  whenFull: oneOf("reject", "coalesce", "replace-oldest"),
  maxAgeMs: whole(1, delayMaxMs),
};

const isolateChecks: Checks = {
  memoryMb: whole(memoryMbRange.least, memoryMbRange.most),
  cpuSeconds: whole(1, cpuSecondsLimit),
  environment: environmentCheck,
  outputBytesMax: whole(0, outputBytesLimit),
  mayLeaveProcesses: yesOrNo,
};

const retentionChecks: Checks = Object.fromEntries(endedStates.map((state) => [state, keptMs]));

const secretChecks: Checks = { payload: pointersCheck, result: pointersCheck };

const hookChecks: Checks = Object.fromEntries(hookNames.map((name) => [name, functionCheck]));

/** The checks of all options of a job type, by the group that they stand in. */
export const optionChecks = {
  job: jobChecks,
  retry: retryChecks,
  key: keyChecks,
  queue: queueChecks,
  isolate: isolateChecks,
  retention: retentionChecks,
  secret: secretChecks,
} as const;

/** Options that later versions will know. */
const laterOptions: ReadonlySet<string> = new Set(["sign"]);

/** Throws `InvalidDefinition` for the first option that cannot work. */
export function checkJobOptions(
  options: JobOptions & { readonly payload: unknown; readonly hooks?: object },
): void {
  checkMembers("", options, jobChecks);
  if (options.payload === undefined)
    fail("payload", "is missing; give a schema, such as z.object({ … })");
  if (options.retry !== undefined) checkMembers("retry", options.retry, retryChecks);
  if (options.queue !== undefined) checkMembers("queue", options.queue, queueChecks);
  if (options.retention !== undefined)
    checkMembers("retention", options.retention, retentionChecks);
  checkSecret(options);
  if (options.isolate !== undefined && options.isolate !== true)
    checkMembers("isolate", options.isolate, isolateChecks);
  if (options.hooks !== undefined) checkMembers("hooks", options.hooks, hookChecks);
  checkKeyConcurrency(options);
}

/** Throws `InvalidDefinition` for an option of a service that cannot work. */
export function checkServiceOptions(options: { readonly retention?: object }): void {
  checkMembers("", options, {
    schedules: () => null,
    retention: () => null,
    encrypted: yesOrNo,
  });
  if (options.retention !== undefined)
    checkMembers("retention", options.retention, retentionChecks);
}

/** Throws `InvalidDefinition` for a field. */
export function fail(field: string, problem: string): never {
  throw new InvalidDefinition({ field, message: `${field} ${problem}.` });
}

/** What a key is made of is shown wherever the key is. */
function checkSecret({ secret, keyConcurrency }: JobOptions): void {
  if (secret === undefined) return;
  checkMembers("secret", secret, secretChecks);
  for (const pointer of secret.payload ?? []) {
    const shown = keyConcurrency?.key.find(
      (segment) => segment === pointer || segment.startsWith(`${pointer}/`),
    );
    if (shown !== undefined)
      fail("secret.payload", `names ${pointer}, which the key of keyConcurrency shows`);
  }
}

function checkKeyConcurrency({ keyConcurrency, queue, leaseMs }: JobOptions): void {
  if (keyConcurrency === undefined) {
    for (const field of ["maxQueuedPerKey", "whenFull"] as const) {
      if (queue?.[field] !== undefined)
        fail(`queue.${field}`, "has no meaning without keyConcurrency; add a key");
    }
    return;
  }
  checkMembers("keyConcurrency", keyConcurrency, keyChecks);
  if (keyConcurrency.key === undefined) {
    fail(
      "keyConcurrency.key",
      'is missing; give constants and JSON Pointers, such as ["tickets", "/origin"]',
    );
  }
  if (leaseMs !== undefined) {
    fail(
      "leaseMs",
      "does not go with keyConcurrency, whose heartbeatTtlMs is the lease; set that one",
    );
  }
  const { heartbeatIntervalMs, heartbeatTtlMs = jobDefaults.heartbeatTtlMs } = keyConcurrency;
  if (heartbeatIntervalMs !== undefined && heartbeatTtlMs <= heartbeatIntervalMs) {
    const remedy = "or a running job would lose its key between two heartbeats";
    fail(
      "keyConcurrency.heartbeatTtlMs",
      `(${heartbeatTtlMs}) must exceed heartbeatIntervalMs (${heartbeatIntervalMs}), ${remedy}`,
    );
  }
}

/** Throws `InvalidDefinition` for the first member that is unknown or cannot work. `place` goes before its name. */
export function checkMembers(place: string, members: object, checks: Checks): void {
  if (typeof members !== "object" || members === null)
    fail(place || "the definition", "must be an object");
  for (const [name, value] of Object.entries(members)) {
    const field = place ? `${place}.${name}` : name;
    const check = Object.hasOwn(checks, name) ? checks[name] : undefined;
    if (check === undefined) {
      if (laterOptions.has(name)) fail(field, "is not supported by this version of Millrace");
      fail(field, `is not an option; use one of ${Object.keys(checks).join(", ")}`);
    }
    const problem = value === undefined ? null : check(value);
    if (problem !== null) throw new InvalidDefinition({ field, message: sentence(field, problem) });
  }
}

/** A problem that is a sentence of its own stands after the field's name and a colon. */
function sentence(field: string, problem: string): string {
  return problem.endsWith(".") ? `${field}: ${problem}` : `${field} ${problem}.`;
}

/** Whether the names are those of jobs, the service knows. */
function namesCheck(value: unknown): string | null {
  const good = Array.isArray(value) && value.every((name) => typeof name === "string");
  return good ? null : 'must be a list of job types, such as ["ship", "refund"]';
}

function blockersCheck(value: unknown): string | null {
  const good =
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    Object.keys(value).length > 0 &&
    Object.values(value).every((type) => typeof type === "string");
  return good ? null : 'must name job types, such as { invoice: "createInvoice" }';
}

function pointersCheck(value: unknown): string | null {
  if (!Array.isArray(value)) return 'must be a list of JSON Pointers, such as ["/card/number"]';
  for (const pointer of value) {
    const problem = pointerProblem(pointer);
    if (problem !== null) return `names ${String(pointer)}, which ${problem}`;
  }
  return null;
}

function environmentCheck(value: unknown): string | null {
  const good =
    Array.isArray(value) &&
    value.every((name) => typeof name === "string" && /^[A-Za-z_][A-Za-z0-9_]*$/.test(name));
  return good ? null : 'must be a list of names of environment variables, such as ["API_URL"]';
}

function schemaCheck(value: unknown): string | null {
  if (isSchema(value)) return null;
  const looksPlain =
    typeof value === "object" && value !== null && ("type" in value || "$schema" in value);
  const remedy =
    "use a schema of a library that speaks Standard Schema, such as zod, valibot or arktype";
  return looksPlain
    ? `is plain JSON Schema, which this version of Millrace does not read; ${remedy}`
    : `is not a schema; ${remedy}`;
}

function backoffCheck(value: unknown): string | null {
  const known =
    typeof value === "string" ||
    typeof value === "function" ||
    (typeof value === "object" && value !== null);
  if (!known) return "must be a name, a list of delays, an exponential backoff or a function";
  if (
    typeof value === "object" &&
    !("length" in value) &&
    (value as { kind?: unknown }).kind !== "exponential"
  ) {
    return 'is an object of an unknown kind; use { kind: "exponential" }';
  }
  return backoffProblem(value as Parameters<typeof backoffProblem>[0]);
}

/** Takes whole numbers within bounds. */
export function whole(least: number, most: number): Check {
  return (value) => {
    if (typeof value === "number" && Number.isSafeInteger(value) && value >= least && value <= most)
      return null;
    return `is ${String(value)}; it must be a whole number from ${least} to ${most}`;
  };
}

function functionCheck(value: unknown): string | null {
  return typeof value === "function" ? null : "must be a function";
}

/** Takes `true` and `false`. */
export function yesOrNo(value: unknown): string | null {
  return typeof value === "boolean" ? null : `is ${String(value)}; it must be true or false`;
}

/** Takes one of some words. */
export function oneOf(...choices: readonly string[]): Check {
  return (value) =>
    choices.includes(value as string)
      ? null
      : `is ${String(value)}; use one of ${choices.join(", ")}`;
}

function keptMs(value: unknown): string | null {
  const isWhole = Number.isSafeInteger(value) || value === Number.POSITIVE_INFINITY;
  return isWhole && Number(value) >= 0
    ? null
    : `is ${String(value)}; it must be 0 (discard at once) or more whole milliseconds, or Infinity`;
}
