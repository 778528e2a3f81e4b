/**
 * The contract that a service goes by: which manifest was accepted, and how another one stands to it.
 * Pure: whoever starts reads the record, asks here, and writes what comes out.
 */
import { canonicalHash, type Json } from "../core/json.js";
import { checkManifest } from "./check-manifest.js";
import { brokenDiff, type ContractDiff, contractDiff } from "./diff.js";
import { InvalidDefinition } from "./errors.js";
import { type Manifest, manifestVersion } from "./manifest.js";

/** How many earlier manifests are remembered. One that is older than all of them counts as new. */
const earlierMax = 100;

/** The contract of a service as it was last accepted. */
export interface AcceptedContract {
  readonly manifest: Manifest;
  /** When it was stored, in milliseconds since 1970. */
  readonly acceptedAt: number;
  /** The process that stored it. */
  readonly acceptedBy: string;
  /** The signatures of the manifests before it, newest first. */
  readonly earlier: readonly string[];
}

/** What stands in the place of an accepted contract and is none, though no newer version wrote it. */
export interface BrokenContract {
  /** What is wrong with it, as a sentence. */
  readonly problem: string;
  /** Stands for what it says, so that consent to replace it is consent to replace nothing else. */
  readonly signature: string;
  /** Whether it says that payloads and results may be stored encrypted only. */
  readonly encrypted: boolean;
}

/** What the record of a contract may hold; one of a newer version, in a shape that this one does not know, is unreadable. */
export type StoredContract = AcceptedContract | BrokenContract | "unreadable";

/** How a process's own contract stands to the accepted one. */
export type ContractStanding =
  /** None was accepted yet. */
  | { readonly standing: "first" }
  /** They are the same. */
  | { readonly standing: "accepted" }
  /** The process runs one that was accepted before the present one. */
  | { readonly standing: "earlier"; readonly diff: ContractDiff }
  /** The accepted one was written by a newer version of Millrace, in a shape that this one does not know. */
  | { readonly standing: "unreadable" }
  /** It differs in ways that nobody has to be asked about. */
  | { readonly standing: "update"; readonly diff: ContractDiff }
  /** It differs in ways that somebody has to accept, under this name. */
  | { readonly standing: "migration"; readonly diff: ContractDiff; readonly migration: string };

/**
 * Says how a manifest stands to the accepted one. What takes the place of a broken one is a migration, because nobody can
 * tell what it changes.
 */
export function contractStanding(stored: StoredContract | null, own: Manifest): ContractStanding {
  if (stored === null) return { standing: "first" };
  if (stored === "unreadable") return { standing: "unreadable" };
  const accepted = isBroken(stored) ? null : stored;
  if (accepted?.manifest.signature === own.signature) return { standing: "accepted" };
  const diff = diffOf(stored, own);
  if (accepted?.earlier.includes(own.signature)) return { standing: "earlier", diff };
  const { migration } = diff;
  return migration === null
    ? { standing: "update", diff }
    : { standing: "migration", diff, migration };
}

/** Whether what is stored is a contract that cannot be gone by. */
export function isBroken(stored: StoredContract): stored is BrokenContract {
  return typeof stored === "object" && "problem" in stored;
}

/** The changes from what is stored. Settings of a kind that no rule expects show only when they are compared. */
function diffOf(stored: AcceptedContract | BrokenContract, own: Manifest): ContractDiff {
  if (isBroken(stored)) return brokenDiff(stored, own);
  const { manifest } = stored;
  try {
    return contractDiff(manifest, own);
  } catch (error) {
    return brokenDiff({ signature: canonicalHash(manifest), problem: why(manifest, error) }, own);
  }
}

function why(manifest: Manifest, thrown: unknown): string {
  try {
    checkManifest(manifest);
  } catch (error) {
    if (InvalidDefinition.is(error)) return error.message;
  }
  return String(thrown);
}

/** The accepted contract once a manifest takes the place of the one before. */
export function accept(
  before: AcceptedContract | null,
  manifest: Manifest,
  acceptance: { readonly acceptedAt: number; readonly acceptedBy: string },
): AcceptedContract {
  const { signature } = manifest;
  const signatures = before === null ? [] : [before.manifest.signature, ...before.earlier];
  const earlier = signatures.filter((other) => other !== signature).slice(0, earlierMax);
  return { manifest, ...acceptance, earlier };
}

/** Reads the accepted contract from its record. */
export function readAccepted(body: Json): StoredContract {
  const found = membersOf(body);
  const manifest = membersOf(found.manifest);
  if (Number(manifest.manifest) > manifestVersion) return "unreadable";
  const problem = shapeProblem(found, manifest);
  if (problem === null) return body as unknown as AcceptedContract;
  const encrypted = manifest.encrypted === true;
  return { problem, signature: canonicalHash(body), encrypted };
}

/** What everybody who reads a contract relies on and is not there, as a sentence. */
function shapeProblem(found: Members, manifest: Members): string | null {
  const { jobs, schedules = {}, retention = {} } = manifest;
  const parts: readonly (readonly [name: string, isGood: boolean])[] = [
    ["manifest.manifest", manifest.manifest === manifestVersion],
    ["manifest.service", typeof manifest.service === "string"],
    ["manifest.signature", typeof manifest.signature === "string"],
    ["manifest.schedules", isObject(schedules)],
    ["manifest.retention", isObject(retention)],
    ["manifest.jobs", Array.isArray(jobs)],
    ...(Array.isArray(jobs) ? jobs : []).map(
      (job, index) => [`manifest.jobs.${index}`, isJob(membersOf(job))] as const,
    ),
    ["acceptedAt", Number.isFinite(found.acceptedAt)],
    ["acceptedBy", typeof found.acceptedBy === "string"],
    ["earlier", isTexts(found.earlier)],
  ];
  const [name] = parts.find(([, isGood]) => !isGood) ?? [];
  return name === undefined ? null : `${name} is missing or of another kind than it must be.`;
}

function isJob({ type, version, queue, hasResult, settings }: Members): boolean {
  const isNamed = typeof type === "string" && Number.isInteger(version);
  return (
    isNamed && typeof queue === "string" && typeof hasResult === "boolean" && isObject(settings)
  );
}

type Members = { readonly [name: string]: Json };

function membersOf(value: Json | undefined): Members {
  return isObject(value) ? value : {};
}

function isObject(value: Json | undefined): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isTexts(value: Json | undefined): boolean {
  return Array.isArray(value) && value.every((text) => typeof text === "string");
}
