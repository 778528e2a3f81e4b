/**
 * What changed between two manifests of a service, and whether each change is an update, which nobody has to be
 * asked about, or a migration: one that may refuse, skip, repeat or give up work that would have been done before.
 */
import { endedStates } from "../core/job.js";
import { canonicalHash, canonicalJson, type Json } from "../core/json.js";
import { type Backoff, retryDelayMs } from "../core/retry.js";
import type { JobManifest, Manifest } from "./manifest.js";
import { narrowings } from "./schema-diff.js";
import { retentionDefaults } from "./settings.js";

/** One field of a contract that is not what it was. */
export interface ContractChange {
  /** Where it stands, as a definition has it, such as `jobs.sendReceipt@1.retry.maxTries`. */
  readonly path: string;
  /** `null` where the field was not set. */
  readonly before: Json;
  /** `null` where the field is not set any more. */
  readonly after: Json;
  readonly kind: ChangeKind;
  /** What changed, and for a migration what may happen. */
  readonly sentence: string;
}

/** Whether a change needs somebody's consent. */
export type ChangeKind = "update" | "migration";

/** What lies between two manifests. */
export interface ContractDiff {
  readonly changes: readonly ContractChange[];
  /** The name of these migrations taken together, by which they are accepted; `null` where all changes are updates. */
  readonly migration: string | null;
  /** The schemas that neither manifest shows, because their library gives no JSON Schema: a change of them is not seen. */
  readonly unseen: readonly string[];
}

/** What a change of a field may do, as the end of a sentence; `null` where it does nothing to work that exists. */
type Judge = (before: Json | undefined, after: Json | undefined) => string | null;

/** A field of the settings: its name in a definition, where that is another, and what a change of it means. */
interface Rule {
  readonly option?: string;
  readonly judge: Judge;
}

/** How many tries of two backoffs are compared. */
const backoffTriesMax = 100;

/** How much of a value a sentence shows. */
const shownMax = 120;

/** The length of a migration's name. */
const migrationLength = 16;

const harmless: Judge = () => null;

/** The rules of all settings. Those that only mean something together with a key are in `keyRules`. */
const rules: { readonly [path: string]: Rule } = {
  maxTries: { option: "retry.maxTries", judge: lowered("jobs are given up after fewer tries") },
  backoff: { option: "retry.backoff", judge: backoffJudge },
  timeoutMs: { judge: lowered("a try that took longer than that is ended") },
  leaseMs: { judge: lowered("a worker that is slow to renew loses its job to another") },
  concurrency: { judge: harmless },
  maxActive: { judge: lowered("jobs wait that would have run") },
  deadlineMs: { judge: lowered("jobs expire that would have run") },
  priority: { judge: harmless },
  progress: { judge: harmless },
  logs: { judge: harmless },
  deadLetter: { judge: switchedOff("jobs whose tries are exhausted are no longer kept as dead") },
  blockers: { judge: always("creates and handlers must name the same jobs to wait for") },
  "secret.payload": { judge: lost("fields of payloads are shown that were secret") },
  "secret.result": { judge: lost("fields of results are shown that were secret") },
  "isolate.memoryMb": { judge: lowered("a try that needs more is ended") },
  "isolate.cpuSeconds": { judge: lowered("a try that needs more is ended") },
  "isolate.environment": { judge: lost("a handler that reads one of them does not find it") },
  "isolate.outputBytesMax": { judge: lowered("a try that prints more is ended") },
  "isolate.mayLeaveProcesses": {
    judge: switchedOff("a try fails whose handler leaves processes behind"),
  },
  "queue.maxActive": { judge: lowered("jobs wait that would have run") },
  "queue.maxAgeMs": { judge: lowered("jobs expire that would have run") },
  "keyConcurrency.key": {
    judge: always(
      "jobs that excluded one another may run at once, or are refused where they were not",
    ),
  },
  ...Object.fromEntries(
    endedStates.map((state) => [
      `retention.${state}`,
      { judge: lowered(`${state} jobs are removed earlier, also those that have ended already`) },
    ]),
  ),
};

/** The rules of what depends on a key, which are looked at where there is one before and after. */
const keyRules: { readonly [path: string]: Rule } = {
  "keyConcurrency.maxActive": { judge: lowered("jobs wait or are refused that would have run") },
  "keyConcurrency.heartbeatTtlMs": {
    judge: lowered("a worker that is slow to renew loses its key"),
  },
  "keyConcurrency.heartbeatIntervalMs": {
    judge: raised("a worker that is slow to renew loses its key"),
  },
  "keyConcurrency.stalePolicy": { judge: always("jobs of lost workers end in another way") },
  "queue.maxQueuedPerKey": { judge: lowered("creates are refused that would have been accepted") },
  "queue.whenFull": {
    judge: (before) =>
      before === "reject" ? null : "creates or waiting jobs are refused that would have been kept",
  },
};

/** Settings that follow from others, that the manifest shows elsewhere, or whose change is judged together with others. */
const apart: ReadonlySet<string> = new Set(["version", "renewMs", "queue.name", "continuations"]);

/** Settings that are compared as a whole. */
const wholes: ReadonlySet<string> = new Set(["backoff", "blockers"]);

/** Compares two manifests of a service. */
export function contractDiff(before: Manifest, after: Manifest): ContractDiff {
  const [had, has] = [byName(before), byName(after)];
  const changes: ContractChange[] = [];
  for (const [name, job] of had) {
    const next = has.get(name);
    changes.push(...(next === undefined ? [removed(name, job)] : jobChanges(name, job, next)));
  }
  for (const [name, job] of has) if (!had.has(name)) changes.push(added(name, job));
  changes.push(
    ...retentionChanges(before, after),
    ...scheduleChanges(before, after),
    ...encryptionChanges(before, after),
  );
  const unseen = [...has].flatMap(([name, job]) => unseenSchemas(name, had.get(name), job));
  return { changes, migration: migrationName(changes), unseen };
}

/** Stands for all changes from a contract that is stored and broken, which nobody can tell. */
export function brokenDiff(
  { problem, signature }: { readonly problem: string; readonly signature: string },
  after: Manifest,
): ContractDiff {
  const sentence = `The accepted contract is broken, so that nobody can tell what changes: ${problem}`;
  const values = { path: "manifest", before: signature, after: after.signature };
  const changes = [{ ...values, kind: "migration", sentence } as const];
  return { changes, migration: migrationName(changes), unseen: [] };
}

/** What the service says of retention is the rule of all types that no contract names. */
function retentionChanges(before: Manifest, after: Manifest): readonly ContractChange[] {
  const [had, has] = [before, after].map(({ retention }) =>
    leavesOf({ retention: { ...retentionDefaults, ...retention } }),
  ) as [Map<string, Json>, Map<string, Json>];
  return [...new Set([...had.keys(), ...has.keys()])].flatMap((path) => {
    const { judge } = rules[path] ?? unknownRule;
    return change("other types", path, had.get(path), has.get(path), judge).map((changed) => ({
      ...changed,
      path,
    }));
  });
}

/** Schedules start new work only, so that a change of them hurts none that waits. */
function scheduleChanges(
  { schedules: had = {} }: Manifest,
  { schedules: has = {} }: Manifest,
): readonly ContractChange[] {
  const names = [...new Set([...Object.keys(had), ...Object.keys(has)])];
  return names.flatMap((name) => {
    const [before = null, after = null] = [had[name], has[name]];
    if (canonicalJson(before) === canonicalJson(after)) return [];
    const what = before === null ? "is new" : after === null ? "is gone" : "has changed";
    const sentence = `The schedule ${name} ${what}.`;
    return [{ path: `schedules.${name}`, before, after, kind: "update", sentence }];
  });
}

/** Nobody should fall back to plain text because a process was started without its keys. */
function encryptionChanges(had: Manifest, has: Manifest): readonly ContractChange[] {
  const [before, after] = [had.encrypted ?? null, has.encrypted ?? null];
  if (before === after) return [];
  const sentence = after
    ? "Payloads and results are stored encrypted only."
    : "Payloads and results are stored in plain text again; give encryption at connect, or declare encrypted in the contract.";
  const kind = after ? "update" : "migration";
  return [{ path: "encrypted", before, after, kind, sentence }];
}

function byName({ jobs }: Manifest): ReadonlyMap<string, JobManifest> {
  return new Map(jobs.map((job) => [`${job.type}@${job.version}`, job]));
}

/** The hash of what the migrations change, so that consent to one set of them is consent to no other. */
function migrationName(changes: readonly ContractChange[]): string | null {
  const migrations = changes.filter(({ kind }) => kind === "migration");
  if (migrations.length === 0) return null;
  const content = migrations.map(({ path, before, after }) => ({ path, before, after }));
  return canonicalHash(content).slice(0, migrationLength);
}

function added(name: string, { queue }: JobManifest): ContractChange {
  const sentence = `${name} is new.`;
  return { path: `jobs.${name}`, before: null, after: { queue }, kind: "update", sentence };
}

function removed(name: string, { queue }: JobManifest): ContractChange {
  const sentence = `${name} is gone: jobs of it that wait are not run any more.`;
  return { path: `jobs.${name}`, before: { queue }, after: null, kind: "migration", sentence };
}

function jobChanges(name: string, before: JobManifest, after: JobManifest): ContractChange[] {
  const leaves = always("jobs that wait in the old queue are not run any more");
  return [
    ...change(name, "queue.name", before.queue, after.queue, leaves),
    ...change(name, "payload", before.payload, after.payload, schemaJudge, "the payload's schema"),
    ...endChanges(name, before, after),
    ...settingChanges(name, before.settings, after.settings),
  ];
}

/** What changes of how a job may end: with a result, or with a continuation. */
function endChanges(name: string, before: JobManifest, after: JobManifest): ContractChange[] {
  const [was, is] = [schemaOfResult(before), schemaOfResult(after)];
  const [had, has] = [before.settings.continuations, after.settings.continuations];
  const forbidden = !alwaysContinues(before) && alwaysContinues(after) ? forbidsEnds : null;
  const isFirst = continuationsIn(before).length === 0;
  const judge = (isFirst ? forbidden : null) ?? lostContinuations;
  return [
    ...change(name, "result", was, is, forbidden ?? schemaJudge, "the result's schema"),
    ...change(name, "continuations", had, has, judge),
  ];
}

const forbidsEnds = always(
  "a job that ends without a continuation fails, because its type names continuations and no result",
);

const lostContinuations = lost("a job that continues with one of them fails");

/** Whether no job of a type may end without a continuation. */
function alwaysContinues(job: JobManifest): boolean {
  return !job.hasResult && continuationsIn(job).length > 0;
}

function continuationsIn({ settings: { continuations } }: JobManifest): readonly Json[] {
  return Array.isArray(continuations) ? continuations : [];
}

/** What a manifest says of the result: a schema, that there is one, or that everything is taken. */
function schemaOfResult({ hasResult, result }: JobManifest): Json {
  return hasResult ? (result ?? "unseen") : true;
}

function schemaJudge(before: Json = null, after: Json = null): string | null {
  if (after === true) return null;
  if (!isJsonSchema(before) || !isJsonSchema(after))
    return "it cannot be compared, because one of the two has no JSON Schema";
  const reasons = narrowings(before, after);
  return reasons.length === 0 ? null : `what fitted before may be refused: ${reasons.join(", ")}`;
}

function isJsonSchema(schema: Json): boolean {
  return typeof schema === "boolean" || (typeof schema === "object" && schema !== null);
}

function unseenSchemas(
  name: string,
  before: JobManifest | undefined,
  after: JobManifest,
): readonly string[] {
  if (before === undefined) return [];
  const fields: string[] = [];
  if (before.payload === null && after.payload === null) fields.push("payload");
  if (before.hasResult && after.hasResult && before.result === null && after.result === null)
    fields.push("result");
  return fields.map((field) => `jobs.${name}.${field}`);
}

type Settings = JobManifest["settings"];

function settingChanges(name: string, before: Settings, after: Settings): ContractChange[] {
  const [had, has] = [leavesOf(before), leavesOf(after)];
  const bothKeyed = [had, has].every((leaves) => leaves.has("keyConcurrency.key"));
  const paths = [...new Set([...had.keys(), ...has.keys()])].filter(
    (path) => !apart.has(path) && !(path === "leaseMs" && bothKeyed),
  );
  return paths.flatMap((path) => {
    const keyRule = keyRules[path];
    if (keyRule !== undefined && !bothKeyed) return [];
    const { option = path, judge } = keyRule ?? rules[path] ?? unknownRule;
    return change(name, option, had.get(path), has.get(path), judge);
  });
}

/** A setting that only another version of Millrace knows. */
const unknownRule: Rule = {
  judge: always("this version of Millrace does not know what that means"),
};

/** The change of one field, if it is one. `what` names a field whose values are too long to be shown. */
function change(
  name: string,
  option: string,
  before: Json | undefined,
  after: Json | undefined,
  judge: Judge,
  what?: string,
): ContractChange[] {
  if (canonicalJson(before) === canonicalJson(after)) return [];
  const harm = judge(before, after);
  const said = what ? `${what} changes` : `${option} goes from ${shown(before)} to ${shown(after)}`;
  const sentence = harm === null ? `${name}: ${said}.` : `${name}: ${said}: ${harm}.`;
  const kind = harm === null ? "update" : "migration";
  const path = `jobs.${name}.${option}`;
  return [{ path, before: before ?? null, after: after ?? null, kind, sentence }];
}

/** The settings by their path, such as `queue.whenFull`. */
function leavesOf(settings: Settings, at = ""): Map<string, Json> {
  const leaves = new Map<string, Json>();
  for (const [name, value] of Object.entries(settings)) {
    const path = `${at}${name}`;
    const isLeaf = typeof value !== "object" || value === null || Array.isArray(value);
    if (isLeaf || wholes.has(path)) leaves.set(path, value);
    else
      for (const [inner, leaf] of leavesOf(value as Settings, `${path}.`)) leaves.set(inner, leaf);
  }
  return leaves;
}

function always(harm: string): Judge {
  return () => harm;
}

function lowered(harm: string): Judge {
  return (before, after) => (numberOf(after) < numberOf(before) ? harm : null);
}

function raised(harm: string): Judge {
  return (before, after) => (numberOf(after) > numberOf(before) ? harm : null);
}

function switchedOff(harm: string): Judge {
  return (before, after) => (before === true && after !== true ? harm : null);
}

/** A list that has lost some of what it had. */
function lost(harm: string): Judge {
  return (before, after) => {
    const has = Array.isArray(after) ? after : [];
    const gone = Array.isArray(before) ? before.filter((item) => !has.includes(item)) : [];
    return gone.length === 0 ? null : harm;
  };
}

/** A backoff may grow and not shrink at any try; a function of one's own cannot be looked into. */
function backoffJudge(before: Json | undefined, after: Json | undefined): string | null {
  if (before === "custom" || after === "custom")
    return "delays that a function gives cannot be compared";
  const [old, next] = [before as Backoff, after as Backoff];
  for (let tries = 1; tries <= backoffTriesMax; tries++) {
    // Jitter moves delays both ways; its middle is what a policy says.
    if (retryDelayMs(next, tries, 0.5) < retryDelayMs(old, tries, 0.5))
      return "jobs are tried again, and given up, sooner";
  }
  return null;
}

/** A setting as a number: none is no limit, and `"forever"` no end. */
function numberOf(value: Json | undefined): number {
  return typeof value === "number" ? value : Number.POSITIVE_INFINITY;
}

function shown(value: Json | undefined): string {
  const text = value === undefined || value === null ? "nothing" : JSON.stringify(value);
  return text.length > shownMax ? `${text.slice(0, shownMax)}…` : text;
}
