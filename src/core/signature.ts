/**
 * What a signature of a job covers: one text for one job, so that every language can make it and nothing of it can be
 * moved to another job.
 */
import type { JobKey, JobSignature } from "./job.js";
import { canonicalHash, canonicalJson, type Json } from "./json.js";

/** What of a job is signed. The payload is the one that the handler gets: as it was created, and not encrypted. */
export interface SignedJob extends JobKey {
  readonly typeVersion: number;
  readonly payload: Json;
}

/** The text that is signed: canonical JSON. */
export function signedText(
  { service, type, typeVersion, id, payload }: SignedJob,
  { createdAt, expiresAt }: Omit<JobSignature, "value">,
): string {
  return canonicalJson({
    signed: "millrace-job-1",
    service,
    type,
    version: typeVersion,
    id,
    payload: canonicalHash(payload),
    createdAt,
    expiresAt,
  });
}
