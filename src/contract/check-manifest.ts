/**
 * Checks a manifest that comes from outside as `defineJob` and `defineService` check what code says, so that whoever serves
 * the service by it meets no setting or schema that cannot work. What a later version may have added is left alone.
 */
import type { Json } from "../core/json.js";
import { defineService, versions } from "./define.js";
import { queueOf, type ServiceContract } from "./definition.js";
import { contractFrom } from "./from-manifest.js";
import { jsonSchemaProblem } from "./json-schema-problem.js";
import { type JobManifest, type Manifest, manifestVersion } from "./manifest.js";
import { type Check, type Checks, checkMembers, fail, optionChecks } from "./validate.js";

const { job, retry, key, queue, isolate, retention, secret } = optionChecks;
const { payload: _payload, result: _result, ...jobChecks } = job;

const settingChecks: Checks = {
  ...jobChecks,
  ...retry,
  // A function of one's own is this word in a manifest.
  backoff: (value) => (value === "custom" ? null : (retry.backoff?.(value) ?? null)),
  renewMs: positive,
};

const settingsRequired = [
  ...["version", "maxTries", "backoff", "timeoutMs", "leaseMs", "renewMs", "concurrency"],
  ...["queue", "priority", "progress", "logs", "deadLetter", "retention", "continuations"],
];

// It is a third of the lease where nothing else is said, which need not be whole.
const keySettings: Checks = { ...key, heartbeatIntervalMs: positive };

/** What is kept for good is a word in a manifest. */
const retentionSettings: Checks = Object.fromEntries(
  Object.entries(retention).map(([state, check]) => [
    state,
    (value: unknown) => (value === "forever" ? null : check(value)),
  ]),
);

/** Gives the contract of a manifest. Throws `InvalidDefinition` for the first field of it that cannot work. */
export function checkManifest(manifest: Manifest): ServiceContract {
  if (manifest.manifest !== manifestVersion)
    fail("manifest", `is ${manifest.manifest}; this version of Millrace reads ${manifestVersion}`);
  const { encrypted } = manifest;
  if (encrypted !== undefined && encrypted !== true) fail("encrypted", "must be true or left out");
  if (manifest.retention !== undefined)
    checkGroup("retention", manifest.retention, retentionSettings, []);
  for (const [index, each] of manifest.jobs.entries()) checkJob(`jobs.${index}`, each);
  const contract = contractFrom(manifest);
  for (const entry of Object.values(contract.jobs)) {
    const [first, ...more] = entry.kind === "job" ? [entry] : entry.definitions;
    if (first !== undefined) versions(first, ...more);
  }
  const { name, jobs, retention: kept } = contract;
  defineService(name, jobs, kept === undefined ? {} : { retention: kept });
  return contract;
}

function checkJob(place: string, each: JobManifest): void {
  const { type, version, payload, result, settings } = each;
  checkSettings(`${place}.settings`, settings);
  if (version !== settings.version)
    fail(`${place}.version`, `is ${version}, but its settings say ${String(settings.version)}`);
  const bound = queueOf(type, { settings: settings as never });
  if (each.queue !== bound)
    fail(`${place}.queue`, `is ${each.queue}, but its settings say ${bound}`);
  for (const [name, schema] of Object.entries({ payload, result })) {
    const problem = schema === null ? null : jsonSchemaProblem(schema);
    if (problem !== null) fail(`${place}.${name}`, problem);
  }
}

function checkSettings(place: string, settings: JobManifest["settings"]): void {
  checkGroup(place, settings, settingChecks, settingsRequired);
  const queueRequired = ["maxQueuedPerKey", "whenFull"];
  checkGroup(`${place}.queue`, settings.queue, queue, queueRequired);
  const states = Object.keys(retentionSettings);
  checkGroup(`${place}.retention`, settings.retention, retentionSettings, states);
  const { keyConcurrency, leaseMs, renewMs } = settings;
  if (keyConcurrency !== undefined)
    checkGroup(`${place}.keyConcurrency`, keyConcurrency, keySettings, Object.keys(keySettings));
  if (settings.secret !== undefined) checkGroup(`${place}.secret`, settings.secret, secret, []);
  if (settings.isolate !== undefined)
    checkGroup(`${place}.isolate`, settings.isolate, isolate, [
      "memoryMb",
      "environment",
      "outputBytesMax",
    ]);
  if (Number(renewMs) >= Number(leaseMs))
    fail(`${place}.renewMs`, `(${renewMs}) must be less than leaseMs (${leaseMs})`);
}

/** Checks the members that are known, and that those are there which every exported manifest has. */
function checkGroup(
  place: string,
  members: Json | undefined,
  checks: Checks,
  required: readonly string[],
): void {
  if (typeof members !== "object" || members === null || Array.isArray(members))
    fail(place, "must be an object");
  const given = Object.entries(members);
  const missing = required.find((name) => !Object.hasOwn(members, name));
  if (missing !== undefined) fail(`${place}.${missing}`, "is missing; export the manifest anew");
  const known = given.filter(([name]) => Object.hasOwn(checks, name));
  checkMembers(place, Object.fromEntries(known), checks);
}

function positive(value: unknown): ReturnType<Check> {
  return typeof value === "number" && value > 0 ? null : `is ${String(value)}; it must exceed 0`;
}
