/**
 * Jobs that were deleted while their worker ran: a record keeps what they hold until the worker lets go.
 */
import type { Job } from "../../core/job.js";

/** What a deleted job holds. */
export interface HeldDeleted {
  readonly token: number;
  readonly until: number;
  readonly type: string;
  readonly caps: readonly string[];
  readonly key?: Job["key"];
}

/** The record of what a deleted job holds. */
export function heldRecordId(service: string, jobId: string): string {
  return `held/${service}/${jobId}`;
}
