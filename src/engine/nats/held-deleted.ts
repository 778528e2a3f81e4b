/**
 * Jobs that were deleted while their worker ran: a record keeps what they hold until the worker lets go.
 */
import type { Job } from "../../core/job.js";
import type { Records } from "./records.js";

/** What a deleted job holds. */
export interface HeldDeleted {
  readonly token: number;
  readonly until: number;
  readonly type: string;
  readonly caps: readonly string[];
  readonly key?: Job["key"];
}

/** When the record of what a deleted job holds may be forgotten: nobody holds anything any more. */
export function lapsesAt({ until }: HeldDeleted): number {
  return until;
}

/** The worker of a deleted job still runs: gives what it holds from now on until then, or `null` if that is nothing. */
export function keepHeld(
  records: Records,
  ended: { readonly service: string; readonly id: string; readonly token: number },
  until: number,
  now: number,
): Promise<HeldDeleted | null> {
  return records.update<HeldDeleted, HeldDeleted | null>(
    heldRecordId(ended.service, ended.id),
    (body) => {
      const stands = body !== null && body.token === ended.token && body.until > now;
      return stands ? { body: { ...body, until }, extra: body } : { body, extra: null };
    },
    lapsesAt,
  );
}

/** The record of what a deleted job holds. */
export function heldRecordId(service: string, jobId: string): string {
  return `held/${service}/${jobId}`;
}
