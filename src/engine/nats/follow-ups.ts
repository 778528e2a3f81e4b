/**
 * What follows from an event, on servers that cannot store both together: it is kept in a record before the event is
 * stored, and forgotten when all of it is, so that whoever dies in between leaves it to the keeper.
 */
import type { Json } from "../../core/json.js";
import type { Change } from "../engine.js";
import type { Records } from "./records.js";

/** What follows from an event, and when it was kept. */
export interface FollowUp {
  readonly jobId: string;
  readonly eventId: string;
  readonly follow: readonly Change[];
  readonly since: number;
}

/** What the ids of these records begin with. */
export const followUpPrefix = "follow/";

/** Keeps what follows from a change. Gives the way to forget it. */
export async function keepFollowUp(
  records: Records,
  { job, event, follow = [] }: Change,
  now: number,
): Promise<() => Promise<void>> {
  const id = `${followUpPrefix}${job.service}/${event.id}`;
  const body: FollowUp = { jobId: job.id, eventId: event.id, follow, since: now };
  await records.update<FollowUp, void>(id, () => ({ body, extra: undefined }));
  return () => forgetFollowUp(records, id);
}

/** Forgets what follows from an event, because all of it is stored, or nothing ever will be. */
export async function forgetFollowUp(records: Records, id: string): Promise<void> {
  const seen = await records.get(id);
  if (seen.record) await records.put(id, seen, null);
}

/** What a record keeps. */
export function followUpOf(body: Json): FollowUp {
  return body as unknown as FollowUp;
}
