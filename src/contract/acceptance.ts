/**
 * The contract that a service goes by: which manifest was accepted, and how another one stands to it.
 * Pure: whoever starts reads the record, asks here, and writes what comes out.
 */
import type { Json } from "../core/json.js";
import { type ContractDiff, contractDiff } from "./diff.js";
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

/** Says how a manifest stands to the accepted one. */
export function contractStanding(
  accepted: AcceptedContract | "unreadable" | null,
  own: Manifest,
): ContractStanding {
  if (accepted === null) return { standing: "first" };
  if (accepted === "unreadable") return { standing: "unreadable" };
  if (accepted.manifest.signature === own.signature) return { standing: "accepted" };
  const diff = contractDiff(accepted.manifest, own);
  if (accepted.earlier.includes(own.signature)) return { standing: "earlier", diff };
  const { migration } = diff;
  return migration === null
    ? { standing: "update", diff }
    : { standing: "migration", diff, migration };
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
export function readAccepted(body: Json): AcceptedContract | "unreadable" {
  const { manifest, earlier } = body as Partial<AcceptedContract>;
  const isKnown = manifest?.manifest === manifestVersion && Array.isArray(manifest.jobs);
  return isKnown && Array.isArray(earlier) ? (body as unknown as AcceptedContract) : "unreadable";
}
