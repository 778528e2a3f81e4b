/**
 * Leases that are renewed over HTTP: each is held, has ended, or is lost to whoever asks.
 */
import { jobDefaults } from "../../contract/settings.js";
import type { Job, JobError } from "../../core/job.js";
import type { HeldLease, RenewOutcome } from "../../engine/engine.js";
import type { Backend } from "./backend.js";
import { type Caller, may } from "./caller.js";
import { ownLeases } from "./holding.js";
import { Refused } from "./refusal.js";
import { boundJob, settleJob } from "./settling.js";
import { timeText } from "./wire/common.js";

/** A lease that a worker says it holds. */
export interface LeaseIn {
  readonly jobId: string;
  readonly token: number;
  readonly leaseMs?: number | undefined;
}

/** Renews leases. Gives what became of each, in their order. */
export async function renewLeases(
  backend: Backend,
  caller: Caller,
  leases: readonly LeaseIn[],
): Promise<readonly object[]> {
  const ids = [...new Set(leases.map(({ jobId }) => jobId))];
  const loaded = await backend.engine.load(ids);
  const jobs = new Map(ids.map((id, index) => [id, loaded[index]?.job]));
  const allowed = leases.flatMap((lease) => {
    const job = jobs.get(lease.jobId);
    return job && may(caller, `work:${job.service}`) ? [{ job, token: lease.token, lease }] : [];
  });
  const own = await ownLeases(backend, caller, allowed);
  const jobOf = new Map(own.map(({ lease, job }) => [lease, job]));
  const held = await Promise.all(
    leases.map((lease) => {
      const job = jobOf.get(lease);
      // What is not the caller's to hold is lost, and the others are renewed all the same.
      return job === undefined ? null : heldLease(backend, job, lease);
    }),
  );
  const open = held.filter((lease) => lease !== null);
  const outcomes = open.length > 0 ? await backend.engine.renew(open) : [];
  let next = 0;
  return leases.map(({ jobId }, index) => {
    const outcome = held[index] === null ? lost : (outcomes[next++] ?? lost);
    return { jobId, ...renewBody(outcome) };
  });
}

const lost: RenewOutcome = { outcome: "lost", state: null };

/** The lease to renew; none for a try that has taken longer than its type allows, which has failed. */
async function heldLease(
  backend: Backend,
  job: Job,
  { token: given, leaseMs: asked }: LeaseIn,
): Promise<HeldLease | null> {
  const { engine } = backend;
  const bound = await boundJob(backend, job);
  const timeoutMs = bound?.definition.settings.timeoutMs ?? jobDefaults.timeoutMs;
  const isCurrent = job.state === "active" && job.token === given;
  if (isCurrent && engine.now() >= (job.startedAt ?? job.updatedAt) + timeoutMs) {
    const error: JobError = {
      message: `The try took longer than ${timeoutMs} ms.`,
      reason: "timeout",
    };
    try {
      await settleJob(backend, { id: job.id, token: given, said: { outcome: "failed", error } });
    } catch (fault) {
      // Somebody else has ended it meanwhile, or its worker has settled it.
      if (!(fault instanceof Refused)) throw fault;
    }
    return null;
  }
  const { service, type, id } = job;
  const own = bound?.definition.settings.leaseMs ?? jobDefaults.leaseMs;
  const isKeyed = bound?.definition.settings.keyConcurrency !== undefined;
  return { job: { service, type, id }, token: given, leaseMs: isKeyed ? own : (asked ?? own) };
}

function renewBody(renewed: RenewOutcome): object {
  switch (renewed.outcome) {
    case "held": {
      const { outcome, leaseUntil, cancelRequested } = renewed;
      return { outcome, leaseUntil: timeText(leaseUntil), cancelRequested };
    }
    case "ended":
      return renewed;
    case "lost":
      return { outcome: "lost", ...(renewed.state === null ? null : { state: renewed.state }) };
  }
}
