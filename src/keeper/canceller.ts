/**
 * The canceller: honours requests to cancel that had to be left beside jobs, because the transaction of an atomic handler,
 * or of whoever completed their chain, had locked them. Once the lock is gone the job is cancelled like any other, or has ended by itself.
 */
import { cancelRequestsOf, removeCancelRequests } from "../client/cancel-requests.js";
import { commandMany, firstFault } from "../client/commands.js";
import { isEnded } from "../core/job.js";
import { type DutyRound, dutyBatchMax } from "./duty.js";

/** Gives the cancel again to the jobs that it was left for, and removes the requests that are done with. */
export async function honourCancels({ runtime, mayGoOn, onFault }: DutyRound): Promise<void> {
  // Only who shares transactions with its store can lock a job in one.
  if (!runtime.engine.capabilities.transactions) return;
  const requests = await cancelRequestsOf(runtime, dutyBatchMax);
  if (requests.length === 0 || !mayGoOn()) return;
  const loaded = await runtime.engine.load(requests.map(({ jobId }) => jobId));
  const open = requests.filter(({ run }, index) => {
    const job = loaded[index]?.job;
    return job !== undefined && job.run === run && !isEnded(job.state);
  });
  const reasons = new Map(open.map(({ jobId, reason }) => [jobId, reason]));
  const outcomes = await commandMany(
    runtime,
    open.map(({ jobId }) => jobId),
    ({ id }) => {
      const reason = reasons.get(id);
      const origin = {
        eventId: runtime.ids.eventId(),
        actor: `keeper:${runtime.instance}`,
      } as const;
      return { command: "cancel", ...origin, ...(reason === undefined ? null : { reason }) };
    },
    { triesMax: 1 },
  );
  const waiting = new Set(
    open.filter((_, index) => {
      const outcome = outcomes[index];
      if (outcome === undefined || outcome.ok) return false;
      return "fault" in outcome || outcome.rejection.reason === "contended";
    }),
  );
  const fault = firstFault(outcomes);
  if (fault !== undefined) onFault(fault);
  await removeCancelRequests(
    runtime,
    requests.filter((request) => !waiting.has(request)),
  );
}
