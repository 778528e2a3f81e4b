/**
 * A contract from its manifest: for programs that serve a service without its code, such as the HTTP server.
 * What a manifest cannot say (a backoff of one's own, a schema without a JSON Schema) becomes the default.
 */
import type { Json } from "../core/json.js";
import { type Backoff, backoffProblem } from "../core/retry.js";
import type { JobDefinition, JobEntries, Schema, ServiceContract } from "./definition.js";
import { jsonSchemaCheck } from "./json-schema-check.js";
import type { JobManifest, Manifest } from "./manifest.js";
import { type JobSettings, jobDefaults, type RetentionOptions } from "./settings.js";

type RetentionManifest = NonNullable<Manifest["retention"]>;

/** Reads a contract from its manifest, which `checkManifest` has found good. */
export function contractFrom({ service, jobs, retention, encrypted }: Manifest): ServiceContract {
  const byType = new Map<string, JobDefinition[]>();
  for (const job of jobs) {
    const definitions = byType.get(job.type) ?? [];
    definitions.push(definitionFrom(job));
    byType.set(job.type, definitions);
  }
  const entries = [...byType].map(([type, definitions]) => {
    const [only] = definitions;
    return [type, definitions.length === 1 && only ? only : { kind: "versions", definitions }];
  });
  return {
    kind: "service",
    name: service,
    jobs: Object.fromEntries(entries) as JobEntries,
    ...(retention && { retention: revived(retention) }),
    ...(encrypted && { encrypted }),
  };
}

function definitionFrom({ payload, result, hasResult, settings }: JobManifest): JobDefinition {
  return {
    kind: "job",
    payload: checkOf(payload),
    result: hasResult ? checkOf(result) : undefined,
    settings: settingsFrom(settings),
  };
}

function checkOf(schema: Json | null): Schema {
  return schema === null ? anything : jsonSchemaCheck(schema);
}

/** Takes whatever is given. */
const anything: Schema = {
  "~standard": { version: 1, vendor: "millrace", validate: (value) => ({ value }) },
};

function settingsFrom(json: { readonly [name: string]: Json }): JobSettings {
  const retention = revived(json.retention as RetentionManifest);
  const settings = { ...json, retention } as unknown as JobSettings;
  const isKnown = (settings.backoff as unknown) !== "custom" && isBackoff(settings.backoff);
  return isKnown ? settings : { ...settings, backoff: jobDefaults.backoff };
}

/** What was kept for good is a word in a manifest. */
function revived(retention: RetentionManifest): RetentionOptions {
  return Object.fromEntries(
    Object.entries(retention).map(([state, kept]) => [
      state,
      kept === "forever" ? Number.POSITIVE_INFINITY : kept,
    ]),
  ) as RetentionOptions;
}

function isBackoff(value: unknown): value is Backoff {
  const hasShape = typeof value === "string" || (typeof value === "object" && value !== null);
  return hasShape && backoffProblem(value as Backoff) === null;
}
