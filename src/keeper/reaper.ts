/**
 * The reaper: takes jobs from workers whose lease has lapsed. The core decides what becomes of
 * them: another try, `dead`, or what the key's policy says.
 */
import { type DutyDone, type DutyRound, tend } from "./duty.js";

/** Reaps the jobs of a service whose lease has lapsed. */
export async function reap(round: DutyRound): Promise<DutyDone> {
  const { engine, service, logger } = round.runtime;
  const done = await tend(round, { kind: "lapsed", service }, (_job, due, origin) => ({
    command: "lapse",
    token: due.token,
    // The worker is gone and the job has done nothing wrong: the next try need not wait.
    retryAt: engine.now(),
    ...origin,
  }));
  if (done.changed > 0) {
    logger.warn({ jobs: done.changed }, "Leases lapsed; their jobs were taken from their workers.");
  }
  return done;
}
