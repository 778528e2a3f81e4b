/**
 * The janitor: expires jobs whose deadline has come. Workers and claims do it, too;
 * the janitor sees to those that nobody touches.
 */
import { type DutyDone, type DutyRound, tend } from "./duty.js";

/** Expires the jobs of a service whose deadline has come. */
export async function expireOverdue(round: DutyRound): Promise<DutyDone> {
  const { service, logger } = round.runtime;
  const done = await tend(round, { kind: "deadline", service }, (_job, _due, origin) => ({
    command: "expire",
    ...origin,
  }));
  if (done.changed > 0) logger.info({ jobs: done.changed }, "Jobs expired at their deadline.");
  return done;
}
