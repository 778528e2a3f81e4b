/**
 * The manifest of a contract: what a service's jobs take, give and promise, as plain JSON
 * that can be stored, shown and compared.
 */
import { canonicalHash, type Json } from "../core/json.js";
import { encryptedText, redact } from "../core/secrets.js";
import { type BoundJob, boundJobs, type ServiceContract } from "./definition.js";
import { jsonSchemaOf } from "./schema.js";

/** The version of the manifest's own shape. */
export const manifestVersion = 1;

/** One version of a job type in a manifest. */
export interface JobManifest {
  readonly type: string;
  readonly version: number;
  readonly queue: string;
  /** JSON Schema of what `create` takes; `null` where the schema library cannot give it. */
  readonly payload: Json | null;
  /** JSON Schema of the result; `null` where there is none or the schema library cannot give it. */
  readonly result: Json | null;
  readonly hasResult: boolean;
  readonly settings: { readonly [name: string]: Json };
}

/** A service and its job types as plain JSON. */
export interface Manifest {
  readonly manifest: number;
  readonly service: string;
  /** By type, then by version. */
  readonly jobs: readonly JobManifest[];
  /** What the service starts by itself, by name; left out where there is nothing. */
  readonly schedules?: { readonly [name: string]: Json };
  /** How long ended jobs are kept where their type says nothing; left out where the service says nothing. */
  readonly retention?: { readonly [state: string]: Json };
  /** Whether payloads and results may be stored encrypted only; left out where they need not be. */
  readonly encrypted?: true;
  /** The hash of everything above: equal for equal contracts. */
  readonly signature: string;
}

/** Writes the manifest of a contract. */
export function manifest(contract: ServiceContract): Manifest {
  const jobs = boundJobs(contract).map(jobManifest).sort(byTypeAndVersion);
  const { retention } = contract;
  const schedules = shownSchedules(contract);
  const content = {
    manifest: manifestVersion,
    service: contract.name,
    jobs,
    ...(schedules === undefined ? null : { schedules: plainJson(schedules) }),
    ...(retention === undefined ? null : { retention: plainJson(retention) }),
    ...(contract.encrypted ? ({ encrypted: true } as const) : null),
  };
  return { ...content, signature: canonicalHash(content) };
}

/** Schedules as everybody may see them: without what is encrypted, and what the types of their jobs mark as secret. */
function shownSchedules(contract: ServiceContract): object | undefined {
  const { schedules, encrypted } = contract;
  if (schedules === undefined) return undefined;
  const secrets = new Map(
    boundJobs(contract).map(({ type, definition }) => [type, definition.settings.secret?.payload]),
  );
  const entries = Object.entries(schedules).map(([name, schedule]) => {
    const payload = encrypted
      ? encryptedText
      : redact(schedule.payload as Json, secrets.get(schedule.type));
    return [name, { ...schedule, payload }];
  });
  return Object.fromEntries(entries);
}

function jobManifest({ type, queue, definition }: BoundJob): JobManifest {
  return {
    type,
    version: definition.settings.version,
    queue,
    payload: jsonSchemaOf(definition.payload, "input"),
    result: definition.result === undefined ? null : jsonSchemaOf(definition.result, "output"),
    hasResult: definition.result !== undefined,
    settings: plainJson(definition.settings),
  };
}

/** Settings as JSON: a function of one's own becomes `"custom"`, and what is kept for good `"forever"`. */
function plainJson(settings: object): { readonly [name: string]: Json } {
  const text = JSON.stringify(settings, (_, value: unknown) => {
    if (typeof value === "function") return "custom";
    return value === Number.POSITIVE_INFINITY ? "forever" : value;
  });
  return JSON.parse(text) as { readonly [name: string]: Json };
}

function byTypeAndVersion(a: JobManifest, b: JobManifest): number {
  return a.type < b.type ? -1 : a.type > b.type ? 1 : a.version - b.version;
}
